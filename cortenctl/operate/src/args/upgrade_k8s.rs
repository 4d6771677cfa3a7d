//! The arguments of `upgrade-k8s`.

use std::time::Duration;

use clap::Args;
use corten_client::units::parse_duration;

/// `upgrade-k8s`.
#[derive(Debug, Clone, Args)]
pub struct UpgradeK8s {
    /// Current version, such as 1.36.2 [default: the lowest version found in the cluster]
    #[arg(long, value_name = "VERSION")]
    pub(crate) from: Option<String>,
    /// Target version [default: the version of this client's bundled images]
    #[arg(long, value_name = "VERSION")]
    pub(crate) to: Option<String>,
    /// Allow an older target version
    #[arg(long)]
    pub(crate) downgrade: bool,
    /// Upgrade although a check fails
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Only print the steps
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) dry_run: bool,
    /// URL of the Kubernetes API, instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Pull all images on the nodes before the first change
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) pre_pull_images: bool,
    /// Also upgrade the kubelets
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) upgrade_kubelet: bool,
    /// Image of kube-apiserver, without a tag [default: the current image]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) apiserver_image: Option<String>,
    /// Image of kube-controller-manager, without a tag [default: the current image]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) controller_manager_image: Option<String>,
    /// Image of kube-scheduler, without a tag [default: the current image]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) scheduler_image: Option<String>,
    /// Image of kube-proxy, without a tag [default: the current image]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) proxy_image: Option<String>,
    /// Image of the kubelet, without a tag [default: the current image]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) kubelet_image: Option<String>,
    /// Timeout for a component to become ready
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Timeout for the workloads of the bootstrap manifests; 0: do not wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_wait)]
    pub(crate) manifests_reconcile_timeout: Duration,
    /// Keep objects that are no longer in the manifests of any control plane node
    #[arg(long)]
    pub(crate) manifests_no_prune: bool,
}

fn parse_wait(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => parse_duration(text),
    }
}
