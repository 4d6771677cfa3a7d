//! How apid serves.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::message::net_ip;
use super::open;

const NAMESPACE: &str = "runtime";

/// Whom apid serves, and where; id [`ApiServiceConfig::ID`]. There is none before it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiServiceConfig {
    /// `:50000`: at every address of the node.
    pub listen_address: String,
    /// It answers for this node alone.
    pub node_routing_disabled: bool,
    /// Whoever calls is a reader.
    pub readonly_role_mode: bool,
    /// Callers need no certificate.
    pub skip_verifying_client_cert: bool,
}

impl ApiServiceConfig {
    /// There is one.
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

/// Where a node without a machine config can be given one; id [`MaintenanceServiceConfig::ID`]. A node with one
/// has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MaintenanceServiceConfig {
    /// As [`ApiServiceConfig::listen_address`].
    pub listen_address: String,
    /// The node's own that others can reach it by.
    pub reachable_addresses: Vec<IpAddr>,
}

impl MaintenanceServiceConfig {
    /// There is one.
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
