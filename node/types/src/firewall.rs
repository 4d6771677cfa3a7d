//! Chains of the packet filter.

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::{Serialize, Serializer};

use super::message::net_prefix;
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

/// A place packets come by; its number is that on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// All that come in, before anything is decided about them.
    Prerouting,
    /// Those for the node itself.
    Input,
}

/// What becomes of a packet; its number is that on the wire.
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

/// What the kernel knows of a packet's connection; its number is the kernel's bit (`nf_conntrack_common.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ConntrackState {
    /// The packet fits no connection and begins none.
    Invalid = 1,
    /// Packets went both ways.
    Established = 1 << 1,
    /// It belongs to another connection, as errors do.
    Related = 1 << 2,
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

impl PortRange {
    fn message(self) -> wire::PortRange {
        wire::PortRange {
            lo: self.lo.into(),
            hi: self.hi.into(),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_its_rules_in_numbers() {
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
