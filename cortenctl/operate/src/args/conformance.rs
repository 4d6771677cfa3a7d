//! The arguments of `conformance`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use corten_client::units::parse_duration;

/// `conformance`.
#[derive(Debug, Subcommand)]
pub enum Conformance {
    /// The conformance tests of the Kubernetes project, in a pod
    #[command(visible_alias = "k8s")]
    Kubernetes(ConformanceKubernetes),
}

/// `conformance kubernetes`.
#[derive(Debug, Args)]
pub struct ConformanceKubernetes {
    /// Which tests run, and how
    #[arg(long, value_enum, default_value = "fast")]
    pub(crate) mode: ConformanceMode,
    /// Image of the tests [default: registry.k8s.io/conformance in the version of the cluster]
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// Timeout of one run [default: 1h; 4h for certified, 15m for network-policy]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) timeout: Option<Duration>,
    /// URL of the Kubernetes API, instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub(crate) k8s_endpoint: Option<String>,
}

/// Tests of `conformance kubernetes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ConformanceMode {
    /// All conformance tests: 16 at once, then those that disturb others
    Fast,
    /// All conformance tests, one after the other; log and report are written to v1.NN/corten
    Certified,
    /// The tests of network policies
    NetworkPolicy,
}
