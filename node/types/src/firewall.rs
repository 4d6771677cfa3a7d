//! Chains and rules of the packet filter.

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::{Serialize, Serializer};

use super::message::net_prefix;
use super::prefix::Prefix;
use super::{column, open};

/// A chain of the table `inet corten`; its id is the chain's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NfTablesChain {
    /// Type of the chain: `filter`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Hook at which the chain sees packets.
    pub hook: Hook,
    /// Priority among the chains of the hook; lower values run first.
    pub priority: i32,
    /// Verdict on packets that no rule decides.
    pub policy: Verdict,
    /// Rules in order; the first verdict ends the search.
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

    type Message = wire::NfTablesChainSpec;

    fn message(&self) -> wire::NfTablesChainSpec {
        wire::NfTablesChainSpec {
            r#type: self.kind.to_owned(),
            hook: self.hook as u32,
            priority: self.priority,
            rules: self.rules.iter().map(Rule::message).collect(),
            policy: self.policy as u32,
        }
    }
}

/// A netfilter hook; its number is that on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// All incoming packets, before routing.
    Prerouting,
    /// Packets addressed to the node itself.
    Input,
}

/// The decision on a packet; its number is that on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Discards the packet.
    Drop,
    /// Lets the packet pass.
    Accept,
}

/// A rule; it applies only if all its matches do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Incoming link.
    #[serde(rename = "matchIIfName", skip_serializing_if = "Option::is_none")]
    pub match_iif_name: Option<IfNameMatch>,
    /// Connection tracking state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_conntrack_state: Option<ConntrackMatch>,
    /// Source address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_source_address: Option<AddressMatch>,
    /// Destination address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_destination_address: Option<AddressMatch>,
    /// Transport protocol and ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_layer4: Option<Layer4Match>,
    /// Rate limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_limit: Option<LimitMatch>,
    /// Whether the kernel counts the packets that reach this point of the rule.
    #[serde(
        rename = "anonymousCounter",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub counter: bool,
    /// Verdict on the packet; if absent, the next rule decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Rule {
    fn message(&self) -> wire::NfTablesRule {
        let address = |one: &AddressMatch| wire::NfTablesAddressMatch {
            include_subnets: one
                .include_subnets
                .iter()
                .copied()
                .map(net_prefix)
                .collect(),
            exclude_subnets: one
                .exclude_subnets
                .iter()
                .copied()
                .map(net_prefix)
                .collect(),
        };
        let link = |one: &IfNameMatch| wire::NfTablesIfNameMatch {
            operator: u32::from(one.operator != "=="),
            interface_names: one.names.clone(),
        };
        let state = |one: &ConntrackMatch| wire::NfTablesConntrackStateMatch {
            states: one.states.iter().map(|state| *state as u32).collect(),
        };
        let limit = |one: LimitMatch| wire::NfTablesLimitMatch {
            packet_rate_per_second: one.packet_rate_per_second,
        };
        wire::NfTablesRule {
            verdict: self.verdict.map(|verdict| verdict as u32),
            match_source_address: self.match_source_address.as_ref().map(address),
            match_destination_address: self.match_destination_address.as_ref().map(address),
            match_layer4: self.match_layer4.as_ref().map(Layer4Match::message),
            match_i_if_name: self.match_iif_name.as_ref().map(link),
            match_limit: self.match_limit.map(limit),
            match_conntrack_state: self.match_conntrack_state.as_ref().map(state),
            anon_counter: self.counter,
        }
    }
}

/// A match of one of several links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IfNameMatch {
    /// Names of the links.
    #[serde(rename = "interfaceName")]
    pub names: Vec<String>,
    /// Comparison: `==`.
    pub operator: &'static str,
}

/// A match of one of several connection tracking states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConntrackMatch {
    /// States to match.
    pub states: Vec<ConntrackState>,
}

/// Connection tracking state of a packet; its number is the kernel's bit (`nf_conntrack_common.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConntrackState {
    /// The packet belongs to no connection and starts none.
    Invalid = 1,
    /// The connection has seen packets in both directions.
    Established = 1 << 1,
    /// The packet is related to another connection, such as an ICMP error.
    Related = 1 << 2,
}

/// A match of addresses by network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressMatch {
    /// Networks one of which must contain the address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub include_subnets: Vec<Prefix>,
    /// Networks none of which may contain the address.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_subnets: Vec<Prefix>,
}

/// A match of a protocol above IP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Layer4Match {
    /// The protocol.
    pub protocol: Protocol,
    /// Destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_destination_port: Option<PortMatch>,
    /// Message type of ICMP or ICMPv6.
    #[serde(rename = "matchICMPType", skip_serializing_if = "Option::is_none")]
    pub match_icmp_type: Option<IcmpTypeMatch>,
}

impl Layer4Match {
    fn message(&self) -> wire::NfTablesLayer4Match {
        let port = |one: &PortMatch| wire::NfTablesPortMatch {
            ranges: one.ranges.iter().copied().map(PortRange::message).collect(),
        };
        let icmp = |one: &IcmpTypeMatch| wire::NfTablesIcmpTypeMatch {
            types: one.types.iter().copied().map(u32::from).collect(),
        };
        wire::NfTablesLayer4Match {
            protocol: self.protocol as u32,
            match_destination_port: self.match_destination_port.as_ref().map(port),
            match_icmp_type: self.match_icmp_type.as_ref().map(icmp),
        }
    }
}

/// A protocol above IP; its number is that in the IP header (IANA, "Protocol Numbers").
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

/// A match of one of several ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortMatch {
    /// Port ranges in ascending order.
    pub ranges: Vec<PortRange>,
}

/// An inclusive range of ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PortRange {
    /// Lowest port.
    pub lo: u16,
    /// Highest port.
    pub hi: u16,
}

impl PortRange {
    fn message(self) -> wire::PortRange {
        wire::PortRange {
            lo: self.lo.into(),
            hi: self.hi.into(),
        }
    }
}

/// A match of one of several ICMP message types.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IcmpTypeMatch {
    /// Type numbers (IANA, "ICMPv6 Parameters").
    #[serde(serialize_with = "numbers")]
    pub types: Vec<u8>,
}

/// Serializes the types as numbers; serde would write a `Vec<u8>` as bytes.
fn numbers<S: Serializer>(types: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(types.iter().map(|number| u32::from(*number)))
}

/// A match of packets within a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LimitMatch {
    /// Packets per second.
    pub packet_rate_per_second: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firewall_chain_is_encoded_with_its_rules() {
        let rule = Rule {
            match_iif_name: Some(IfNameMatch {
                names: vec!["lo".to_owned()],
                operator: "==",
            }),
            match_conntrack_state: Some(ConntrackMatch {
                states: vec![ConntrackState::Established, ConntrackState::Related],
            }),
            match_source_address: Some(AddressMatch {
                include_subnets: vec![Prefix::host("10.0.0.1".parse().unwrap())],
                exclude_subnets: Vec::new(),
            }),
            match_layer4: Some(Layer4Match {
                protocol: Protocol::Tcp,
                match_destination_port: Some(PortMatch {
                    ranges: vec![PortRange { lo: 1, hi: 65535 }],
                }),
                match_icmp_type: None,
            }),
            match_limit: Some(LimitMatch {
                packet_rate_per_second: 5,
            }),
            counter: true,
            verdict: Some(Verdict::Drop),
            ..Rule::default()
        };
        let chain = NfTablesChain {
            kind: "filter",
            hook: Hook::Input,
            priority: -1,
            policy: Verdict::Accept,
            rules: vec![rule, Rule::default()],
        };
        let message = chain.message();
        assert_eq!((message.hook, message.priority, message.policy), (1, -1, 1));
        let first = &message.rules[0];
        assert_eq!((first.verdict, message.rules[1].verdict), (Some(0), None));
        let link = first.match_i_if_name.as_ref().unwrap();
        assert_eq!((link.operator, link.interface_names.len()), (0, 1));
        let states = first.match_conntrack_state.as_ref().unwrap();
        assert_eq!(states.states, [2, 4]);
        let source = first.match_source_address.as_ref().unwrap();
        assert_eq!(source.include_subnets[0].ip, [10, 0, 0, 1]);
        let layer4 = first.match_layer4.as_ref().unwrap();
        let ports = &layer4.match_destination_port.as_ref().unwrap().ranges;
        assert_eq!((layer4.protocol, ports[0].lo, ports[0].hi), (6, 1, 65535));
        assert_eq!(first.match_limit.unwrap().packet_rate_per_second, 5);
        assert!(first.anon_counter);
    }
}
