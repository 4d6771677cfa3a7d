//! KubePrism, the load balancer through which the node's own programs reach the Kubernetes API.

use corten_api::talos::resource::definitions::k8s as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

const NAMESPACE: &str = "k8s";

/// A server of the Kubernetes API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Upstream {
    /// Name or address of the server.
    pub host: String,
    /// Port of the server.
    pub port: u16,
}

impl From<&Upstream> for wire::KubePrismEndpoint {
    fn from(upstream: &Upstream) -> Self {
        wire::KubePrismEndpoint {
            host: upstream.host.clone(),
            port: upstream.port.into(),
        }
    }
}

/// Known servers of the Kubernetes API; id [`KubePrismEndpoints::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KubePrismEndpoints {
    /// The servers.
    pub endpoints: Vec<Upstream>,
}

impl KubePrismEndpoints {
    /// Id of the only resource of this type.
    pub const ID: &str = "k8s-cluster";
}

impl Spec for KubePrismEndpoints {
    const DEFINITION: Definition = open(
        "KubePrismEndpoints.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Hosts", ".endpoints[*].host"),
            column("Ports", ".endpoints[*].port"),
        ],
    );

    type Message = wire::KubePrismEndpointsSpec;

    fn message(&self) -> wire::KubePrismEndpointsSpec {
        wire::KubePrismEndpointsSpec {
            endpoints: self.endpoints.iter().map(Into::into).collect(),
        }
    }
}

/// Settings of KubePrism; id [`KubePrismConfig::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KubePrismConfig {
    /// Listen address.
    pub host: String,
    /// Listen port.
    pub port: u16,
    /// API servers to balance among.
    pub endpoints: Vec<Upstream>,
}

impl KubePrismConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "k8s-loadbalancer-config";
}

impl Spec for KubePrismConfig {
    const DEFINITION: Definition = open(
        "KubePrismConfigs.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Host", ".host"),
            column("Port", ".port"),
            column("Endpoints", ".endpoints"),
        ],
    );

    type Message = wire::KubePrismConfigSpec;

    fn message(&self) -> wire::KubePrismConfigSpec {
        wire::KubePrismConfigSpec {
            host: self.host.clone(),
            port: self.port.into(),
            endpoints: self.endpoints.iter().map(Into::into).collect(),
        }
    }
}

/// Health of KubePrism; id [`KubePrismStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KubePrismStatus {
    /// Listen address with the port.
    pub host: String,
    /// Whether at least one server accepted a connection in the last round.
    pub healthy: bool,
}

impl KubePrismStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "k8s-loadbalancer";
}

impl Spec for KubePrismStatus {
    const DEFINITION: Definition = open(
        "KubePrismStatuses.kubernetes.talos.dev",
        NAMESPACE,
        &[],
        &[column("HOST", ".host"), column("HEALTHY", ".healthy")],
    );

    type Message = wire::KubePrismStatusesSpec;

    fn message(&self) -> wire::KubePrismStatusesSpec {
        wire::KubePrismStatusesSpec {
            host: self.host.clone(),
            healthy: self.healthy,
        }
    }
}
