//! The node's membership in etcd, its settings and its certificates.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::etcd as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::kubernetes_components::Args;
use super::message::net_ip;
use super::{column, open};

const NAMESPACE: &str = "etcd";

/// The node's etcd member; id [`EtcdMember::ID`]. It exists while the member runs, can vote and knows a leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdMember {
    /// Member id in hexadecimal.
    #[serde(rename = "memberID")]
    pub member_id: String,
}

impl EtcdMember {
    /// Id of the only resource of this type.
    pub const ID: &str = "local";
}

impl Spec for EtcdMember {
    const DEFINITION: Definition = open(
        "EtcdMembers.etcd.talos.dev",
        NAMESPACE,
        &[],
        &[column("Member ID", ".memberID")],
    );

    type Message = wire::MemberSpec;

    fn message(&self) -> wire::MemberSpec {
        wire::MemberSpec {
            member_id: self.member_id.clone(),
        }
    }
}

fn args(args: &Args) -> impl Iterator<Item = (String, wire::ArgValues)> {
    args.iter().map(|(name, values)| {
        let values = values.values.clone();
        (name.clone(), wire::ArgValues { values })
    })
}

/// Settings of etcd from the config; id [`EtcdConfig::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdConfig {
    /// Subnets of the advertised address; a leading `!` excludes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub advertise_valid_subnets: Vec<String>,
    /// Subnets that are never advertised.
    pub advertise_exclude_subnets: Vec<String>,
    /// Subnets of the listen addresses; without one, etcd listens at all addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listen_valid_subnets: Vec<String>,
    /// Subnets at which etcd never listens.
    pub listen_exclude_subnets: Vec<String>,
    /// Image.
    pub image: String,
    /// Arguments of the config.
    pub extra_args: Args,
}

impl EtcdConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "etcd";
}

impl Spec for EtcdConfig {
    const DEFINITION: Definition = open(
        "EtcdConfigs.etcd.talos.dev",
        NAMESPACE,
        &[],
        &[column("Image", ".image")],
    );

    type Message = wire::ConfigSpec;

    fn message(&self) -> wire::ConfigSpec {
        wire::ConfigSpec {
            advertise_valid_subnets: self.advertise_valid_subnets.clone(),
            advertise_exclude_subnets: self.advertise_exclude_subnets.clone(),
            image: self.image.clone(),
            listen_valid_subnets: self.listen_valid_subnets.clone(),
            listen_exclude_subnets: self.listen_exclude_subnets.clone(),
            extra_args: args(&self.extra_args).collect(),
        }
    }
}

/// The member that this node runs, or is to run; id [`EtcdSpec::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdSpec {
    /// Name of the member.
    pub name: String,
    /// Addresses for other members and clients.
    pub advertised_addresses: Vec<IpAddr>,
    /// Listen addresses for other members.
    pub listen_peer_addresses: Vec<IpAddr>,
    /// Listen addresses for clients.
    pub listen_client_addresses: Vec<IpAddr>,
    /// Image.
    pub image: String,
    /// Arguments of the config.
    pub extra_args: Args,
}

impl EtcdSpec {
    /// Id of the only resource of this type.
    pub const ID: &str = "etcd";
}

impl Spec for EtcdSpec {
    const DEFINITION: Definition = open(
        "EtcdSpecs.etcd.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Name", ".name"),
            column("AdvertisedAddresses", ".advertisedAddresses"),
            column("ListenPeerAddresses", ".listenPeerAddresses"),
            column("ListenClientAddresses", ".listenClientAddresses"),
        ],
    );

    type Message = wire::SpecSpec;

    fn message(&self) -> wire::SpecSpec {
        let ips = |addresses: &[IpAddr]| addresses.iter().copied().map(net_ip).collect();
        wire::SpecSpec {
            name: self.name.clone(),
            advertised_addresses: ips(&self.advertised_addresses),
            image: self.image.clone(),
            listen_peer_addresses: ips(&self.listen_peer_addresses),
            listen_client_addresses: ips(&self.listen_client_addresses),
            extra_args: args(&self.extra_args).collect(),
        }
    }
}

/// The member's certificates are written; id [`PkiStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PkiStatus {
    /// Always true: without certificates there is no status.
    pub ready: bool,
    /// Digest of the certificates.
    pub version: String,
}

impl PkiStatus {
    /// Id of the only resource of this type.
    pub const ID: &str = "etcd";
}

impl Spec for PkiStatus {
    const DEFINITION: Definition = open(
        "PKIStatuses.etcd.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Ready", ".ready"),
            column("Secrets Version", ".version"),
        ],
    );

    type Message = wire::PkiStatusSpec;

    fn message(&self) -> wire::PkiStatusSpec {
        wire::PkiStatusSpec {
            ready: self.ready,
            version: self.version.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn member_has_the_fields_of_the_reference() {
        let spec = EtcdSpec {
            name: "n1".to_owned(),
            advertised_addresses: vec!["10.0.0.1".parse().unwrap()],
            listen_peer_addresses: vec!["0.0.0.0".parse().unwrap()],
            listen_client_addresses: vec!["::".parse().unwrap()],
            image: "etcd:v3.6.5".to_owned(),
            extra_args: Args::new(),
        };
        let yaml = serde_json::to_value(&spec).unwrap();
        assert_eq!(yaml["advertisedAddresses"], json!(["10.0.0.1"]));
        assert_eq!(yaml["listenClientAddresses"], json!(["::"]));
        let message = spec.message();
        assert_eq!(message.advertised_addresses[0].ip, [10, 0, 0, 1]);
        assert_eq!(message.listen_client_addresses[0].ip.len(), 16);
    }
}
