//! What the network shall be. In namespace `network-config` each layer says it by itself, behind the
//! layer's name in the id; in `network` is what came of them.

use std::net::IpAddr;

use corten_config::Word;
use corten_config::kinds::{
    AdLacpActive, AdSelect, ArpAllTargets, ArpValidate, BondMode, FailOverMac, LacpRate,
    PrimaryReselect, XmitHashPolicy,
};
use corten_resources::{Definition, Sensitivity, Spec};
use serde::{Serialize, Serializer};

use super::network_wireguard::Wireguard;
use super::open;
use super::prefix::Prefix;

const NAMESPACE: &str = "network";

/// Where the layers are.
pub const LAYERS: &str = "network-config";

/// Who says something; later ones win.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layer {
    /// The node itself, as nobody said anything.
    #[default]
    Default,
    /// The kernel's parameters.
    Cmdline,
    /// What made the machine: a cloud by its seed, or whoever wrote META.
    Platform,
    /// A server of the network, by DHCP.
    Operator,
    /// The machine config.
    Configuration,
}

impl Layer {
    /// As ids begin.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Layer::Default => "default",
            Layer::Cmdline => "cmdline",
            Layer::Platform => "platform",
            Layer::Operator => "operator",
            Layer::Configuration => "configuration",
        }
    }
}

/// `inet4`, `inet6`.
#[must_use]
pub fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "inet4" } else { "inet6" }
}

/// An absent address is an empty text.
fn or_empty<S: Serializer>(value: &Option<IpAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_str(""),
    }
}

/// A link is up unless somebody says otherwise.
fn unless_off<S: Serializer>(value: &Option<bool>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bool(*value != Some(false))
}

fn colons<S: Serializer>(value: &Option<[u8; 6]>, serializer: S) -> Result<S::Ok, S::Error> {
    let bytes = value.iter().flatten().map(|byte| format!("{byte:02x}"));
    serializer.serialize_str(&bytes.collect::<Vec<_>>().join(":"))
}

const fn secret(type_name: &'static str) -> Definition {
    Definition {
        sensitivity: Sensitivity::Sensitive,
        ..open(type_name, NAMESPACE, &[], &[])
    }
}

/// The link that another is part of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Master {
    /// Its name.
    pub master_name: String,
}

/// A VLAN's number and protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Vlan {
    /// 1 to 4094.
    #[serde(rename = "vlanID")]
    pub id: u16,
    /// `802.1q`, `802.1ad`.
    #[serde(rename = "vlanProtocol")]
    pub protocol: &'static str,
}

/// A bond's settings (kernel: Documentation/networking/bonding.rst); an absent one is the kernel's own.
/// The names are the kernel's, too.
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
    /// The preferred member's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub primary: String,
}

/// Whether something is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Enabled {
    /// It is.
    pub enabled: bool,
}

/// Whether a bridge keeps VLANs apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Filtering {
    /// It does.
    pub filtering_enabled: bool,
}

/// A bridge's settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bridge {
    /// The spanning tree protocol.
    pub stp: Enabled,
    /// Its VLANs.
    pub vlan: Filtering,
}

/// A VRF's settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Vrf {
    /// Its routing table.
    pub table: u32,
}

/// The other end of a pair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Veth {
    /// Its name.
    pub peer_name: String,
}

/// A link; its id is its name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkSpec {
    /// Its name.
    pub name: String,
    /// Whether the node makes it; else it is a device's.
    pub logical: bool,
    /// `None`: nobody said, so it is.
    #[serde(serialize_with = "unless_off")]
    pub up: Option<bool>,
    /// In bytes; 0: as it is.
    pub mtu: u32,
    /// Of a link the node makes: `bond`, `bridge`, `dummy`, `veth`, `vlan`, `vrf`, `wireguard`.
    pub kind: &'static str,
    /// `ether`; `none` of a tunnel.
    #[serde(rename = "type")]
    pub link_type: &'static str,
    /// Its hardware address; absent: as it is.
    #[serde(serialize_with = "colons", skip_serializing_if = "Option::is_none")]
    pub hardware_addr: Option<[u8; 6]>,
    /// The link below a VLAN.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub parent_name: String,
    /// The bond it is part of.
    #[serde(rename = "masterName", skip_serializing_if = "String::is_empty")]
    pub bond_name: String,
    /// The bridge it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge_slave: Option<Master>,
    /// The VRF it is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf_slave: Option<Master>,
    /// Of a VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Vlan>,
    /// Of a bond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bond_master: Option<Bond>,
    /// Of a bridge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge_master: Option<Bridge>,
    /// Of a VRF.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf_master: Option<Vrf>,
    /// Of a tunnel: the reason why only administrators may read links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wireguard: Option<Wireguard>,
    /// Of one end of a pair; making it makes the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub veth: Option<Veth>,
    /// Who said so last.
    pub layer: Layer,
    /// Whether it takes multicast packets; absent: as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multicast: Option<bool>,
}

impl LinkSpec {
    /// The bond, bridge or VRF it is part of.
    #[must_use]
    pub fn master(&self) -> Option<&str> {
        let of_bond = Some(self.bond_name.as_str()).filter(|name| !name.is_empty());
        let other = self.bridge_slave.as_ref().or(self.vrf_slave.as_ref());
        of_bond.or(other.map(|master| master.master_name.as_str()))
    }
}

impl Spec for LinkSpec {
    const DEFINITION: Definition = secret("LinkSpecs.net.talos.dev");
}

/// An address of a link; its id is `<link>/<address>/<prefix length>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressSpec {
    /// The address.
    pub address: Prefix,
    /// The link.
    pub link_name: String,
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// `global`; `host`: no other machine can have it or reach the node by it.
    pub scope: &'static str,
    /// Metric of the route to its network; 0: the kernel's.
    #[serde(skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Who said so.
    pub layer: Layer,
}

impl Spec for AddressSpec {
    const DEFINITION: Definition = open("AddressSpecs.net.talos.dev", NAMESPACE, &[], &[]);
}

/// A route; its id is `[<table>/][<link>/]<family>/<gateway>/<destination>/<metric>`, with the link for
/// IPv6 and without the table for the main one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// Where it leads.
    #[serde(serialize_with = "unless_everywhere")]
    pub dst: Prefix,
    /// The address packets are sent from.
    #[serde(serialize_with = "or_empty")]
    pub src: Option<IpAddr>,
    /// Through whom; absent: it is on the link.
    #[serde(serialize_with = "or_empty")]
    pub gateway: Option<IpAddr>,
    /// The link; empty for a route that leads nowhere.
    pub out_link_name: String,
    /// The routing table.
    #[serde(serialize_with = "table")]
    pub table: u32,
    /// Lower wins.
    pub priority: u32,
    /// `global`, `link`.
    pub scope: &'static str,
    /// `unicast`, `blackhole`.
    #[serde(rename = "type")]
    pub route_type: &'static str,
    /// `static`, `boot`, `dhcp`: where it comes from.
    pub protocol: &'static str,
    /// Who said so.
    pub layer: Layer,
    /// In bytes; 0: the link's.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: u32,
}

impl Spec for RouteSpec {
    const DEFINITION: Definition = open("RouteSpecs.net.talos.dev", NAMESPACE, &[], &[]);
}

/// The main routing table.
pub const MAIN_TABLE: u32 = 254;

/// A table's name or number.
#[must_use]
pub fn table_name(table: u32) -> String {
    match table {
        253 => "default".to_owned(),
        MAIN_TABLE => "main".to_owned(),
        255 => "local".to_owned(),
        number => number.to_string(),
    }
}

fn table<S: Serializer>(value: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&table_name(*value))
}

fn unless_everywhere<S: Serializer>(value: &Prefix, serializer: S) -> Result<S::Ok, S::Error> {
    if value.length == 0 {
        serializer.serialize_str("")
    } else {
        serializer.collect_str(value)
    }
}

fn is_zero(number: &u32) -> bool {
    *number == 0
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
    use crate::resources::network_wireguard::WireguardPeer;
    use corten_config::values::{WireguardKey, WireguardSecret};
    use corten_resources::AnySpec as _;

    #[test]
    fn a_link_says_only_what_it_is() {
        let link = LinkSpec {
            name: "eth0".to_owned(),
            link_type: "ether",
            bond_name: "bond0".to_owned(),
            ..LinkSpec::default()
        };
        assert_eq!(
            link.to_yaml().unwrap(),
            "name: eth0\nlogical: false\nup: true\nmtu: 0\nkind: \"\"\ntype: ether\n\
             masterName: bond0\nlayer: default\n"
        );
        assert_eq!(link.master(), Some("bond0"));
    }

    #[test]
    fn a_tunnel_has_its_keys_in_the_spec_and_in_no_log() {
        let tunnel = Wireguard {
            private_key: WireguardSecret::new([1; 32]),
            listen_port: 51820,
            firewall_mark: 0,
            peers: vec![WireguardPeer {
                public_key: WireguardKey([2; 32]),
                preshared_key: Some(WireguardSecret::new([3; 32])),
                endpoint: Some("[fd00::9]:51820".parse().unwrap()),
                keepalive: 25,
                allowed_ips: vec![Prefix::host("10.8.0.1".parse().unwrap())],
            }],
        };
        let link = LinkSpec {
            wireguard: Some(tunnel),
            ..LinkSpec::default()
        };
        let yaml = link.to_yaml().unwrap();
        let expected = "wireguard:\n  privateKey: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n  \
             listenPort: 51820\n  firewallMark: 0\n  peers:\n  \
             - publicKey: AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n    \
             presharedKey: AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=\n    \
             endpoint: \"[fd00::9]:51820\"\n    persistentKeepaliveInterval: 25s\n    \
             allowedIPs:\n    - 10.8.0.1/32\n";
        assert!(yaml.contains(expected), "{yaml}");
        let debug = format!("{link:?}");
        assert!(
            !debug.contains("1, 1") && !debug.contains("3, 3"),
            "{debug}"
        );
        assert_eq!(debug.matches("<secret>").count(), 2, "{debug}");
        assert_eq!(LinkSpec::DEFINITION.sensitivity, Sensitivity::Sensitive);
    }

    #[test]
    fn networks_have_no_host_bits() {
        let of = |text: &str, length| Prefix {
            address: text.parse().unwrap(),
            length,
        };
        assert_eq!(of("10.1.2.3", 16).network(), of("10.1.0.0", 16));
        assert_eq!(of("10.1.2.3", 0).network(), of("0.0.0.0", 0));
        assert_eq!(of("10.1.2.3", 32).network(), of("10.1.2.3", 32));
        assert_eq!(of("fd00::1", 64).network(), of("fd00::", 64));
        assert_eq!(of("fd00::1", 0).network(), of("::", 0));
        assert_eq!(of("fd00::1", 128).network().to_string(), "fd00::1/128");
    }
}
