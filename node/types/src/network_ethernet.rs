//! Capabilities and settings of link devices, beyond those every link has.

use std::collections::BTreeMap;

use corten_api::talos::resource::definitions::network as wire;
use corten_config::kinds::{EthernetConfig, WakeUp};
use corten_resources::{Definition, Spec};
use corten_yaml::read::Word as _;
use serde::{Serialize, Serializer};

use super::column;
use super::names::{DUPLEXES, PORTS, WAKE_UPS, number};
use super::{is_default, open};

const NAMESPACE: &str = "network";

pub use wire::{
    EthernetChannelsSpec, EthernetChannelsStatus, EthernetRingsSpec, EthernetRingsStatus,
};

/// State of a link's device as its driver reports it; its id is the link's name. Unreported fields are absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EthernetStatus {
    /// Whether there is a carrier.
    #[serde(skip_serializing_if = "is_default")]
    pub link_state: Option<bool>,
    /// Speed in Mbit/s; also absent without a carrier.
    #[serde(rename = "speedMbit", skip_serializing_if = "is_default")]
    pub speed: Option<u32>,
    /// Connector type.
    pub port: String,
    /// Duplex mode: `Full`, `Half`, `Unknown`.
    pub duplex: String,
    /// Modes this end advertises, by the kernel's names: `1000baseT/Full`, `Autoneg`.
    #[serde(skip_serializing_if = "is_default")]
    pub our_modes: Vec<String>,
    /// Modes the other end advertises.
    #[serde(skip_serializing_if = "is_default")]
    pub peer_modes: Vec<String>,
    /// Current and maximum lengths of the packet rings.
    #[serde(skip_serializing_if = "is_default")]
    pub rings: Option<EthernetRingsStatus>,
    /// Offload features of the device and the kernel.
    #[serde(serialize_with = "by_name", skip_serializing_if = "is_default")]
    pub features: Vec<Feature>,
    /// Current and maximum numbers of queues.
    #[serde(skip_serializing_if = "is_default")]
    pub channels: Option<EthernetChannelsStatus>,
    /// Triggers that wake the machine up.
    #[serde(rename = "wakeOnLAN", skip_serializing_if = "is_default")]
    pub wake_on_lan: Vec<String>,
}

/// A feature that can be on or off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Feature {
    /// Name of the feature in the kernel.
    pub name: String,
    /// `on` or `off`, then `[fixed]` if it cannot be changed, or `[requested on]` if the request is not met yet.
    pub status: String,
}

/// Serializes the features as a map in the kernel's order.
fn by_name<S: Serializer>(features: &[Feature], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(features.iter().map(|one| (&one.name, &one.status)))
}

impl Spec for EthernetStatus {
    const DEFINITION: Definition = open(
        "EthernetStatuses.net.talos.dev",
        NAMESPACE,
        &["ethtool"],
        &[column("Link", ".linkState"), column("Speed", ".speedMbit")],
    );

    type Message = wire::EthernetStatusSpec;

    fn message(&self) -> wire::EthernetStatusSpec {
        let feature = |one: &Feature| wire::EthernetFeatureStatus {
            name: one.name.clone(),
            status: one.status.clone(),
        };
        let wake_ups = self.wake_on_lan.iter();
        wire::EthernetStatusSpec {
            link_state: self.link_state,
            speed_megabits: self.speed.unwrap_or_default().into(),
            port: number(&self.port, PORTS).unwrap_or_default(),
            duplex: number(&self.duplex, DUPLEXES).unwrap_or_default(),
            our_modes: self.our_modes.clone(),
            peer_modes: self.peer_modes.clone(),
            rings: self.rings,
            features: self.features.iter().map(feature).collect(),
            channels: self.channels,
            wake_on_lan: wake_ups.filter_map(|one| number(one, WAKE_UPS)).collect(),
        }
    }
}

/// Desired settings of a link's device; its id is the link's name. Absent settings are left alone.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EthernetSpec {
    /// Lengths of the packet rings.
    #[serde(skip_serializing_if = "is_default")]
    pub rings: EthernetRingsSpec,
    /// Desired state of features, by the kernel's name.
    #[serde(skip_serializing_if = "is_default")]
    pub features: BTreeMap<String, bool>,
    /// Numbers of queues.
    #[serde(skip_serializing_if = "is_default")]
    pub channels: EthernetChannelsSpec,
    /// Triggers that wake the machine up; an empty list disables wake-up.
    #[serde(skip_serializing_if = "is_default")]
    pub wake_on_lan: Option<Vec<&'static str>>,
}

impl From<&EthernetConfig> for EthernetSpec {
    fn from(config: &EthernetConfig) -> EthernetSpec {
        let (rings, channels) = (&config.rings, &config.channels);
        let words = |all: &Vec<WakeUp>| all.iter().map(|one| one.word()).collect();
        EthernetSpec {
            rings: EthernetRingsSpec {
                rx: rings.rx,
                rx_mini: rings.rx_mini,
                rx_jumbo: rings.rx_jumbo,
                tx: rings.tx,
                rx_buf_len: rings.rx_buf_len,
                cqe_size: rings.cqe_size,
                tx_push: rings.tx_push,
                rx_push: rings.rx_push,
                tx_push_buf_len: rings.tx_push_buf_len,
                tcp_data_split: rings.tcp_data_split,
            },
            features: config.features.clone(),
            channels: EthernetChannelsSpec {
                rx: channels.rx,
                tx: channels.tx,
                other: channels.other,
                combined: channels.combined,
            },
            wake_on_lan: config.wake_on_lan.as_ref().map(words),
        }
    }
}

impl Spec for EthernetSpec {
    const DEFINITION: Definition = open("EthernetSpecs.net.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::EthernetSpecSpec;

    fn message(&self) -> wire::EthernetSpecSpec {
        let wake_ups = self.wake_on_lan.iter().flatten();
        wire::EthernetSpecSpec {
            rings: Some(self.rings),
            features: self.features.clone().into_iter().collect(),
            channels: Some(self.channels),
            wake_on_lan: wake_ups.filter_map(|one| number(one, WAKE_UPS)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::AnySpec as _;

    use super::*;

    #[test]
    fn ethernet_status_omits_missing_features() {
        let feature = |name: &str, status: &str| Feature {
            name: name.to_owned(),
            status: status.to_owned(),
        };
        let status = EthernetStatus {
            link_state: Some(false),
            port: "Fibre".to_owned(),
            duplex: "Unknown".to_owned(),
            rings: Some(EthernetRingsStatus {
                rx_max: Some(4096),
                rx: Some(0),
                tx_push_buf_len: Some(7),
                tcp_data_split: Some(false),
                ..EthernetRingsStatus::default()
            }),
            features: vec![
                feature("tx-b", "off [fixed]"),
                feature("rx-a", "on [fixed]"),
            ],
            wake_on_lan: vec!["unicast".to_owned(), "magic".to_owned()],
            ..EthernetStatus::default()
        };
        let yaml = status.to_yaml().unwrap();
        assert_eq!(
            yaml,
            "linkState: false\nport: Fibre\nduplex: Unknown\n\
             rings:\n  rx-max: 4096\n  rx: 0\n  tx-push-buf-len: 7\n  tcp-data-split: false\n\
             features:\n  tx-b: off [fixed]\n  rx-a: on [fixed]\n\
             wakeOnLAN:\n- unicast\n- magic\n"
        );
        let message = status.message();
        assert_eq!((message.port, message.duplex), (3, 255));
        assert_eq!(
            (message.link_state, message.rings),
            (Some(false), status.rings)
        );
        assert_eq!(message.wake_on_lan, [2, 32]);
        assert_eq!((message.channels, message.features.len()), (None, 2));
    }
}
