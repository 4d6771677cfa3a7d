//! `upgrade-k8s`.

use std::time::Duration;

use clap::Args;

use crate::units::parse_duration;

/// `upgrade-k8s`.
#[derive(Debug, Clone, Args)]
pub(crate) struct UpgradeK8s {
    /// The version that runs, such as 1.36.2; without it the lowest that is found
    #[arg(long, value_name = "VERSION")]
    pub(crate) from: Option<String>,
    /// The version to change to; without it that of this client's bundled images
    #[arg(long, value_name = "VERSION")]
    pub(crate) to: Option<String>,
    /// Also when the cluster changes to an older version
    #[arg(long)]
    pub(crate) downgrade: bool,
    /// Also when a check finds that the cluster is not ready for it
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Only print what would be done
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) dry_run: bool,
    /// The URL of the Kubernetes API instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Have the nodes pull all images before the first change
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) pre_pull_images: bool,
    /// Change the kubelets, too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) upgrade_kubelet: bool,
    /// The image of kube-apiserver without its tag; without it the image stays and gets another tag
    #[arg(long, value_name = "IMAGE")]
    pub(crate) apiserver_image: Option<String>,
    /// The same of kube-controller-manager
    #[arg(long, value_name = "IMAGE")]
    pub(crate) controller_manager_image: Option<String>,
    /// The same of kube-scheduler
    #[arg(long, value_name = "IMAGE")]
    pub(crate) scheduler_image: Option<String>,
    /// The same of kube-proxy
    #[arg(long, value_name = "IMAGE")]
    pub(crate) proxy_image: Option<String>,
    /// The same of the kubelet
    #[arg(long, value_name = "IMAGE")]
    pub(crate) kubelet_image: Option<String>,
    /// How long a component may take to come up
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// How long workloads of the bootstrap manifests may take; 0: do not wait
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_wait)]
    pub(crate) manifests_reconcile_timeout: Duration,
    /// Keep objects that are no longer in the manifests; they are always kept
    #[arg(long, hide = true)]
    pub(crate) manifests_no_prune: bool,
}

fn parse_wait(text: &str) -> Result<Duration, String> {
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => parse_duration(text),
    }
}
