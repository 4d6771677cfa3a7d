//! Settings of the node's API services.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::message::net_ip;
use super::open;

const NAMESPACE: &str = "runtime";

/// Listen address and access policy of apid; id [`ApiServiceConfig::ID`]. It does not exist until both are known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServiceConfig {
    /// `:50000`: port 50000 on every address of the node.
    pub listen_address: String,
    /// Whether apid answers for this node alone and routes nothing to others.
    pub node_routing_disabled: bool,
    /// Whether every caller has the role of a reader.
    pub readonly_role_mode: bool,
    /// Whether callers need no certificate.
    pub skip_verifying_client_cert: bool,
}

impl ApiServiceConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "apid";
}

impl Spec for ApiServiceConfig {
    const DEFINITION: Definition = open("APIServiceConfigs.runtime.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::ApiServiceConfigSpec;

    fn message(&self) -> wire::ApiServiceConfigSpec {
        wire::ApiServiceConfigSpec {
            listen_address: self.listen_address.clone(),
            node_routing_disabled: self.node_routing_disabled,
            readonly_role_mode: self.readonly_role_mode,
            skip_verifying_client_cert: self.skip_verifying_client_cert,
        }
    }
}

/// Where a node without a machine config accepts one; id [`MaintenanceServiceConfig::ID`]. A node with a machine config
/// has no such resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceServiceConfig {
    /// Same form as [`ApiServiceConfig::listen_address`].
    pub listen_address: String,
    /// Addresses of the node that others can reach.
    pub reachable_addresses: Vec<IpAddr>,
}

impl MaintenanceServiceConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "maintenance";
}

impl Spec for MaintenanceServiceConfig {
    const DEFINITION: Definition = open(
        "MaintenanceServiceConfigs.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[],
    );

    type Message = wire::MaintenanceServiceConfigSpec;

    fn message(&self) -> wire::MaintenanceServiceConfigSpec {
        let addresses = self.reachable_addresses.iter().copied();
        wire::MaintenanceServiceConfigSpec {
            listen_address: self.listen_address.clone(),
            reachable_addresses: addresses.map(net_ip).collect(),
        }
    }
}
