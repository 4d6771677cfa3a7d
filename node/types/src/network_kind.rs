//! Settings of virtual links by kind, both desired and actual.

use std::net::IpAddr;

use corten_api::talos::resource::definitions::network as wire;
use corten_config::kinds::{
    AdLacpActive, AdSelect, ArpAllTargets, ArpValidate, BondMode, FailOverMac, LacpRate,
    PrimaryReselect, XmitHashPolicy,
};
use corten_yaml::read::Word;
use serde::{Serialize, Serializer};

use super::message::net_ip;
use super::names::{VLAN_PROTOCOLS, number, table_name};

/// A VLAN's number and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Vlan {
    /// VLAN id, 1 to 4094.
    #[serde(rename = "vlanID")]
    pub id: u16,
    /// `802.1q`, `802.1ad`.
    #[serde(rename = "vlanProtocol")]
    pub protocol: &'static str,
}

impl Vlan {
    pub(super) fn message(self) -> wire::VlanSpec {
        wire::VlanSpec {
            vid: self.id.into(),
            protocol: number(self.protocol, VLAN_PROTOCOLS).unwrap_or_default(),
        }
    }
}

/// A bond's settings (kernel: Documentation/networking/bonding.rst), with the kernel's names. An absent setting has the
/// kernel's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bond {
    #[serde(serialize_with = "word")]
    pub mode: BondMode,
    #[serde(serialize_with = "words", skip_serializing_if = "Option::is_none")]
    pub xmit_hash_policy: Option<XmitHashPolicy>,
    #[serde(serialize_with = "words", skip_serializing_if = "Option::is_none")]
    pub lacp_rate: Option<LacpRate>,
    #[serde(serialize_with = "words", skip_serializing_if = "Option::is_none")]
    pub arp_validate: Option<ArpValidate>,
    #[serde(serialize_with = "words", skip_serializing_if = "Option::is_none")]
    pub arp_all_targets: Option<ArpAllTargets>,
    #[serde(serialize_with = "words", skip_serializing_if = "Option::is_none")]
    pub primary_reselect: Option<PrimaryReselect>,
    #[serde(serialize_with = "words", skip_serializing_if = "Option::is_none")]
    pub fail_over_mac: Option<FailOverMac>,
    #[serde(serialize_with = "words", skip_serializing_if = "Option::is_none")]
    pub ad_select: Option<AdSelect>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miimon: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updelay: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub downdelay: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arp_interval: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resend_igmp: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_links: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lp_interval: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets_per_slave: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub num_peer_notif: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb_logical_lb: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_slaves_active: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_carrier: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ad_actor_sys_prio: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "colons")]
    pub ad_actor_system: Option<[u8; 6]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ad_user_port_key: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_notify_delay: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arp_ip_targets: Vec<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ns_ip6_targets: Vec<IpAddr>,
    #[serde(serialize_with = "words", skip_serializing_if = "Option::is_none")]
    pub ad_lacp_active: Option<AdLacpActive>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_max: Option<u8>,
    /// Name of the preferred member.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub primary: String,
}

impl Bond {
    /// Enum discriminants are the wire numbers, except that of the last enum.
    pub(super) fn message(&self) -> wire::BondMasterSpec {
        let ips = |addresses: &[IpAddr]| addresses.iter().copied().map(net_ip).collect();
        wire::BondMasterSpec {
            mode: self.mode as u32,
            hash_policy: self.xmit_hash_policy.unwrap_or_default() as u32,
            lacp_rate: self.lacp_rate.unwrap_or_default() as u32,
            arp_validate: self.arp_validate.unwrap_or_default() as u32,
            arp_all_targets: self.arp_all_targets.unwrap_or_default() as u32,
            primary_reselect: self.primary_reselect.unwrap_or_default() as u32,
            fail_over_mac: self.fail_over_mac.unwrap_or_default() as u32,
            ad_select: self.ad_select.unwrap_or_default() as u32,
            mii_mon: self.miimon.unwrap_or_default(),
            up_delay: self.updelay.unwrap_or_default(),
            down_delay: self.downdelay.unwrap_or_default(),
            arp_interval: self.arp_interval.unwrap_or_default(),
            resend_igmp: self.resend_igmp.unwrap_or_default(),
            min_links: self.min_links.unwrap_or_default(),
            lp_interval: self.lp_interval.unwrap_or_default(),
            packets_per_slave: self.packets_per_slave.unwrap_or_default(),
            num_peer_notif: self.num_peer_notif.unwrap_or_default().into(),
            tlb_dynamic_lb: self.tlb_logical_lb.unwrap_or_default().into(),
            all_slaves_active: self.all_slaves_active.unwrap_or_default().into(),
            use_carrier: self.use_carrier.unwrap_or_default(),
            ad_actor_sys_prio: self.ad_actor_sys_prio.unwrap_or_default().into(),
            ad_user_port_key: self.ad_user_port_key.unwrap_or_default().into(),
            peer_notify_delay: self.peer_notify_delay.unwrap_or_default(),
            arpip_targets: ips(&self.arp_ip_targets),
            nsip6_targets: ips(&self.ns_ip6_targets),
            adlacp_active: u32::from(self.ad_lacp_active == Some(AdLacpActive::On)),
            missed_max: self.missed_max.unwrap_or_default().into(),
            primary: self.primary.clone(),
        }
    }
}

/// A setting that is on or off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Enabled {
    /// Whether it is on.
    pub enabled: bool,
}

/// VLAN filtering of a bridge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filtering {
    /// Whether it is on.
    pub filtering_enabled: bool,
}

/// A bridge's settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bridge {
    /// Spanning tree protocol.
    pub stp: Enabled,
    /// VLAN filtering.
    pub vlan: Filtering,
}

impl Bridge {
    pub(super) fn message(self) -> wire::BridgeMasterSpec {
        wire::BridgeMasterSpec {
            stp: Some(wire::StpSpec {
                enabled: self.stp.enabled,
            }),
            vlan: Some(wire::BridgeVlanSpec {
                filtering_enabled: self.vlan.filtering_enabled,
            }),
        }
    }
}

/// A VRF's settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Vrf {
    /// Routing table of the VRF.
    #[serde(serialize_with = "table")]
    pub table: u32,
}

impl Vrf {
    pub(super) fn message(self) -> wire::VrfMasterSpec {
        wire::VrfMasterSpec { table: self.table }
    }
}

/// The other end of a veth pair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Veth {
    /// Name of the other end.
    pub peer_name: String,
}

impl Veth {
    pub(super) fn message(&self) -> wire::VethSpec {
        wire::VethSpec {
            peer_name: self.peer_name.clone(),
        }
    }
}

/// Serializes a routing table by its name or number.
pub(super) fn table<S: Serializer>(value: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&table_name(*value))
}

/// Serializes a hardware address in hexadecimal with colons.
pub(super) fn colons<S: Serializer>(
    value: &Option<[u8; 6]>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let bytes = value.iter().flatten().map(|byte| format!("{byte:02x}"));
    serializer.serialize_str(&bytes.collect::<Vec<_>>().join(":"))
}

fn word<S: Serializer, W: Word>(value: &W, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.word())
}

fn words<S: Serializer, W: Word>(value: &Option<W>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(value.map(Word::word).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bond_settings_map_to_the_kernel_numbers() {
        let bond = Bond {
            mode: BondMode::Lacp,
            xmit_hash_policy: Some(XmitHashPolicy::Layer34),
            lacp_rate: Some(LacpRate::Fast),
            arp_validate: Some(ArpValidate::FilterBackup),
            ad_lacp_active: Some(AdLacpActive::On),
            num_peer_notif: Some(3),
            arp_ip_targets: vec!["192.0.2.1".parse().unwrap()],
            primary: "eth0".to_owned(),
            ..Bond::default()
        };
        let message = bond.message();
        assert_eq!((message.mode, message.hash_policy), (4, 1));
        assert_eq!((message.lacp_rate, message.arp_validate), (1, 6));
        assert_eq!((message.adlacp_active, message.num_peer_notif), (1, 3));
        assert_eq!(message.arpip_targets[0].ip, [192, 0, 2, 1]);
        assert_eq!(message.primary, "eth0");
        assert_eq!(Bond::default().message().adlacp_active, 0);
    }

    #[test]
    fn vlan_bridge_and_vrf_settings_are_encoded() {
        let vlan = Vlan {
            id: 7,
            protocol: "802.1ad",
        };
        assert_eq!((vlan.message().vid, vlan.message().protocol), (7, 0x88a8));
        let bridge = Bridge {
            vlan: Filtering {
                filtering_enabled: true,
            },
            ..Bridge::default()
        };
        assert!(bridge.message().vlan.unwrap().filtering_enabled);
        assert!(!bridge.message().stp.unwrap().enabled);
        let vrf = Vrf { table: 254 };
        assert_eq!(serde_json::to_string(&vrf).unwrap(), r#"{"table":"main"}"#);
        assert_eq!(vrf.message().table, 254);
    }
}
