//! The nodes of the cluster.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::cluster as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::config::MachineType;
use super::message::net_ip;
use super::{column, open};

/// A control plane node's API server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ControlPlane {
    /// Port.
    pub port: u16,
}

/// A node of the cluster; the id is the name of its Kubernetes object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Id of the machine (`/etc/machine-id`).
    pub node_id: String,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Name.
    pub hostname: String,
    /// Role.
    pub machine_type: MachineType,
    /// Name and version of the operating system.
    pub operating_system: String,
    /// API server of a control plane node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlane>,
}

impl Spec for Member {
    const DEFINITION: Definition = open(
        "Members.cluster.talos.dev",
        "cluster",
        &[],
        &[
            column("Hostname", ".hostname"),
            column("Machine Type", ".machineType"),
            column("OS", ".operatingSystem"),
            column("Addresses", ".addresses"),
        ],
    );

    type Message = wire::MemberSpec;

    fn message(&self) -> wire::MemberSpec {
        let control_plane = self.control_plane.as_ref().map(|own| wire::ControlPlane {
            api_server_port: own.port.into(),
        });
        wire::MemberSpec {
            node_id: self.node_id.clone(),
            addresses: self.addresses.iter().copied().map(net_ip).collect(),
            hostname: self.hostname.clone(),
            machine_type: self.machine_type.number(),
            operating_system: self.operating_system.clone(),
            control_plane,
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_config::MachineType as Kind;
    use serde_json::json;

    use super::*;

    #[test]
    fn member_has_the_fields_of_the_reference() {
        let member = Member {
            node_id: "abc".to_owned(),
            addresses: vec!["10.0.0.2".parse().unwrap()],
            hostname: "n1".to_owned(),
            machine_type: MachineType::from(Kind::ControlPlane),
            operating_system: "Corten 1.2.3".to_owned(),
            control_plane: Some(ControlPlane { port: 6443 }),
        };
        let expected = json!({
            "nodeId": "abc",
            "addresses": ["10.0.0.2"],
            "hostname": "n1",
            "machineType": "controlplane",
            "operatingSystem": "Corten 1.2.3",
            "controlPlane": { "port": 6443 },
        });
        assert_eq!(serde_json::to_value(&member).unwrap(), expected);
        let message = member.message();
        assert_eq!(message.machine_type, 2);
        assert_eq!(message.control_plane.unwrap().api_server_port, 6443);
    }
}
