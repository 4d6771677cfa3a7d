//! Connects machined to the cluster's API.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_cluster::{Access, Cluster, from_kubeconfig};
use corten_config::Document;
use corten_kubernetes::Settings;
use corten_kubernetes::certificates::{Cas, admin_certificate};
use corten_resources::controller::with_causes as describe;
use corten_supervisor::KUBELET_FILES;

/// Kubeconfig of the kubelet, below [`KUBELET_FILES`].
pub const KUBECONFIG: &str = "kubeconfig-kubelet";
/// Lifetime of a client certificate; machined reconnects long before.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Connects through any API server that answers: as an administrator on a control plane node, otherwise as the node's
/// kubelet.
///
/// # Errors
/// The reason why there is no connection.
pub fn of_node(config: &Document, settings: &Settings) -> Result<Cluster, String> {
    if config.machine.kind.is_control_plane() {
        return connect(config, settings, &settings.any_server());
    }
    Cluster::connect(&of_kubelet()?).map_err(|error| describe(&error))
}

/// Like [`of_node`], for requests whose answer has long pauses.
///
/// # Errors
/// The reason why there is no connection.
pub fn of_node_to_watch(config: &Document, settings: &Settings) -> Result<Cluster, String> {
    if config.machine.kind.is_control_plane() {
        return connect_to_watch(config, settings, &settings.any_server());
    }
    Cluster::connect_to_watch(&of_kubelet()?).map_err(|error| describe(&error))
}

/// Credentials of the node's kubelet.
fn of_kubelet() -> Result<Access, String> {
    let path = Path::new(KUBELET_FILES).join(KUBECONFIG);
    let text = fs::read_to_string(&path);
    let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
    from_kubeconfig(&text).map_err(|error| describe(&error))
}

/// Connects to this API server as an administrator; on a control plane node only.
///
/// # Errors
/// The reason why there is no connection.
pub fn connect(config: &Document, settings: &Settings, server: &str) -> Result<Cluster, String> {
    let access = administrator(config, settings, server)?;
    Cluster::connect(&access).map_err(|error| describe(&error))
}

/// Like [`connect`], for requests whose answer has long pauses.
///
/// # Errors
/// The reason why there is no connection.
pub fn connect_to_watch(
    config: &Document,
    settings: &Settings,
    server: &str,
) -> Result<Cluster, String> {
    let access = administrator(config, settings, server)?;
    Cluster::connect_to_watch(&access).map_err(|error| describe(&error))
}

/// Credentials of an administrator.
fn administrator(config: &Document, settings: &Settings, server: &str) -> Result<Access, String> {
    let cas = Cas::of(config).map_err(|error| describe(&error))?;
    let now = SystemTime::now();
    let certificate =
        admin_certificate(&cas.kubernetes, now, LIFETIME).map_err(|error| describe(&error))?;
    Ok(Access {
        server: server.to_owned(),
        server_name: None,
        ca: settings.cas.clone(),
        crt: certificate.crt,
        key: certificate.key,
    })
}
