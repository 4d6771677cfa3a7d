//! Chains of the packet filter.

use corten_resources::{Definition, Spec};
use serde::{Serialize, Serializer};

use super::prefix::Prefix;
use super::{column, open};

/// A chain of the table `inet corten`; its id is the chain's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NfTablesChain {
    /// `filter`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Where packets come by.
    pub hook: Hook,
    /// Among the chains of that hook lower ones come first.
    pub priority: i32,
    /// What becomes of packets that no rule decides about.
    pub policy: Verdict,
    /// Looked at in order, up to the first that decides.
    pub rules: Vec<Rule>,
}

impl Spec for NfTablesChain {
    const DEFINITION: Definition = open(
        "NfTablesChains.net.talos.dev",
        "network",
        &["chain", "chains"],
        &[
            column("Type", ".type"),
            column("Hook", ".hook"),
            column("Priority", ".priority"),
            column("Policy", ".policy"),
        ],
    );
}

/// A place packets come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// All that come in, before anything is decided about them.
    Prerouting,
    /// Those for the node itself.
    Input,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is gone.
    Drop,
    /// It goes on.
    Accept,
}

/// A rule: all that it matches must be so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// The link it came by.
    #[serde(rename = "matchIIfName", skip_serializing_if = "Option::is_none")]
    pub match_iif_name: Option<IfNameMatch>,
    /// What the kernel knows of its connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_conntrack_state: Option<ConntrackMatch>,
    /// From whom it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_source_address: Option<AddressMatch>,
    /// For whom it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_destination_address: Option<AddressMatch>,
    /// Its protocol and ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_layer4: Option<Layer4Match>,
    /// How many there may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_limit: Option<LimitMatch>,
    /// Whether the kernel counts what comes so far.
    #[serde(
        rename = "anonymousCounter",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub counter: bool,
    /// What becomes of the packet; absent: the next rule says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// One of these links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IfNameMatch {
    /// Their names.
    #[serde(rename = "interfaceName")]
    pub names: Vec<String>,
    /// `==`.
    pub operator: &'static str,
}

/// One of these states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConntrackMatch {
    /// The states.
    pub states: Vec<ConntrackState>,
}

/// What the kernel knows of a packet's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConntrackState {
    /// The packet fits no connection and begins none.
    Invalid,
    /// Packets went both ways.
    Established,
    /// It belongs to another connection, as errors do.
    Related,
}

/// An address of these networks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressMatch {
    /// In one of these, ...
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include_subnets: Vec<Prefix>,
    /// ... and in none of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_subnets: Vec<Prefix>,
}

/// A protocol above IP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Layer4Match {
    /// Which.
    pub protocol: Protocol,
    /// The port it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_destination_port: Option<PortMatch>,
    /// What the message is, of ICMP and ICMPv6.
    #[serde(rename = "matchICMPType", skip_serializing_if = "Option::is_none")]
    pub match_icmp_type: Option<IcmpTypeMatch>,
}

/// Its number is that of the IP header (IANA, "Protocol Numbers").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// RFC 792.
    Icmp = 1,
    /// RFC 9293.
    Tcp = 6,
    /// RFC 768.
    Udp = 17,
    /// RFC 4443.
    #[serde(rename = "icmpv6")]
    IcmpV6 = 58,
}

/// One of these ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortMatch {
    /// From the lowest to the highest.
    pub ranges: Vec<PortRange>,
}

/// Ports, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PortRange {
    /// The lowest.
    pub lo: u16,
    /// The highest.
    pub hi: u16,
}

/// One of these messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IcmpTypeMatch {
    /// Their numbers (IANA, "ICMPv6 Parameters").
    #[serde(serialize_with = "numbers")]
    pub types: Vec<u8>,
}

/// `Vec<u8>` would be taken for bytes.
fn numbers<S: Serializer>(types: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(types.iter().map(|number| u32::from(*number)))
}

/// Not more than so many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitMatch {
    /// In a second.
    pub packet_rate_per_second: u64,
}
