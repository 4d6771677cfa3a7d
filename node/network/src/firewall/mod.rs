//! The ingress packet filter. This file derives rules from a config; `message` and `kernel` write them to the kernel.
//!
//! There are two chains, as in the reference. `ingress` filters packets to the node itself. A service's port on the
//! node's addresses is translated to a pod's before `ingress`, so `prerouting` filters those packets earlier.

mod kernel;
#[cfg(test)]
mod kernel_tests;
mod message;
mod ranges;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use corten_config::Document;
use corten_config::kinds::{self, DefaultAction, NetworkDefaultActionConfig, NetworkRuleConfig};

pub use kernel::replace;

use corten_types::firewall::{
    AddressMatch, ConntrackMatch, ConntrackState, Hook, IcmpTypeMatch, IfNameMatch, Layer4Match,
    LimitMatch, NfTablesChain, PortMatch, PortRange, Protocol, Rule, Verdict,
};
use corten_types::prefix::Prefix;

use super::host_dns::{PORT, service_addresses};
use super::layers::prefix;

/// Chains by name.
pub type Chains = BTreeMap<String, NfTablesChain>;

/// Priorities after mangling (-150) and before address translation (-100).
const INGRESS_PRIORITY: i32 = -140;
const PREROUTING_PRIORITY: i32 = -110;

/// Rate limit of ICMP: pings get answers, floods do not.
const ICMP_RATE: LimitMatch = LimitMatch {
    packet_rate_per_second: 5,
};

/// ICMPv6 types that IPv6 needs, without a rate limit (RFC 4890, section 4.4.1). They are errors (1 to 4), group
/// membership (130 to 132, 143), router and neighbor discovery (133 to 136).
const ICMPV6_NEEDED: [u8; 12] = [1, 2, 3, 4, 130, 131, 132, 133, 134, 135, 136, 143];

/// DHCPv6 client port (RFC 9915, section 7.2). Answers come from another address than the request's destination, so
/// connection tracking does not match them.
const DHCPV6_CLIENT: u16 = 546;

/// Chains of a config; empty if the config has no filter rules. `own` are the node's addresses.
#[must_use]
pub fn chains(document: &Document, own: &[IpAddr]) -> Chains {
    let rules: Vec<&NetworkRuleConfig> = document.all().collect();
    let default = document
        .all::<NetworkDefaultActionConfig>()
        .next()
        .map(|config| config.ingress);
    if default.is_none() && rules.is_empty() {
        return Chains::new();
    }
    let blocks = default == Some(DefaultAction::Block);
    let cluster = cluster(document);
    let cache = service_addresses(document);
    let chain = |hook, priority, policy, rules| NfTablesChain {
        kind: "filter",
        hook,
        priority,
        policy,
        rules,
    };
    let policy = if blocks {
        Verdict::Drop
    } else {
        Verdict::Accept
    };
    Chains::from([
        (
            "ingress".to_owned(),
            chain(
                Hook::Input,
                INGRESS_PRIORITY,
                policy,
                ingress(&rules, blocks, &cluster, &cache),
            ),
        ),
        (
            "prerouting".to_owned(),
            chain(
                Hook::Prerouting,
                PREROUTING_PRIORITY,
                Verdict::Accept,
                prerouting(&rules, blocks, &cluster, own),
            ),
        ),
    ])
}

/// Subnets of pods and services.
fn cluster(document: &Document) -> AddressMatch {
    let all = document
        .pod_subnets()
        .iter()
        .chain(document.service_subnets());
    AddressMatch {
        include_subnets: all.map(|subnet| prefix(*subnet).network()).collect(),
        exclude_subnets: Vec::new(),
    }
}

fn ingress(
    rules: &[&NetworkRuleConfig],
    blocks: bool,
    cluster: &AddressMatch,
    cache: &[IpAddr],
) -> Vec<Rule> {
    let mut all = known();
    all.push(Rule {
        match_conntrack_state: Some(ConntrackMatch {
            states: vec![ConntrackState::Invalid],
        }),
        verdict: Some(Verdict::Drop),
        ..Rule::default()
    });
    if blocks {
        all.extend(always());
        all.extend(inside(cluster));
        all.extend(names(cluster, cache));
    }
    all.extend(rules.iter().map(|rule| accept(rule)));
    if !blocks {
        // A port in rules is open only to the sources of those rules.
        all.extend(rules.iter().map(|rule| Rule {
            match_layer4: Some(layer4(rule)),
            ..counted(Verdict::Drop)
        }));
    }
    all
}

fn prerouting(
    rules: &[&NetworkRuleConfig],
    blocks: bool,
    cluster: &AddressMatch,
    own: &[IpAddr],
) -> Vec<Rule> {
    let own = AddressMatch {
        include_subnets: own.iter().copied().map(Prefix::host).collect(),
        exclude_subnets: Vec::new(),
    };
    let of_ports =
        |rule: &&&NetworkRuleConfig| matches!(protocol(rule), Protocol::Tcp | Protocol::Udp);
    let rules: Vec<&NetworkRuleConfig> = rules.iter().filter(of_ports).copied().collect();
    let mut all = known();
    all.extend(inside(cluster));
    all.extend(rules.iter().map(|rule| accept(rule)));
    let refused = if blocks {
        [Protocol::Tcp, Protocol::Udp].map(any_port).to_vec()
    } else {
        rules.iter().map(|rule| layer4(rule)).collect()
    };
    all.extend(refused.into_iter().map(|layer4| Rule {
        match_destination_address: Some(own.clone()),
        match_layer4: Some(layer4),
        ..counted(Verdict::Drop)
    }));
    all
}

/// Loopback traffic and established connections.
fn known() -> Vec<Rule> {
    vec![
        Rule {
            match_iif_name: Some(IfNameMatch {
                names: vec!["lo".to_owned()],
                operator: "==",
            }),
            verdict: Some(Verdict::Accept),
            ..Rule::default()
        },
        Rule {
            match_conntrack_state: Some(ConntrackMatch {
                states: vec![ConntrackState::Established, ConntrackState::Related],
            }),
            verdict: Some(Verdict::Accept),
            ..Rule::default()
        },
    ]
}

/// Traffic that even a fully closed node needs.
fn always() -> Vec<Rule> {
    let icmp = |protocol, types: Option<&[u8]>, limit| Rule {
        match_layer4: Some(Layer4Match {
            match_icmp_type: types.map(|types| IcmpTypeMatch {
                types: types.to_vec(),
            }),
            ..any_port(protocol)
        }),
        match_limit: limit,
        verdict: Some(Verdict::Accept),
        ..Rule::default()
    };
    let link_local = AddressMatch {
        include_subnets: vec![Prefix {
            address: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(),
            length: 10,
        }],
        exclude_subnets: Vec::new(),
    };
    let client = PortRange {
        lo: DHCPV6_CLIENT,
        hi: DHCPV6_CLIENT,
    };
    vec![
        icmp(Protocol::IcmpV6, Some(&ICMPV6_NEEDED), None),
        icmp(Protocol::Icmp, None, Some(ICMP_RATE)),
        icmp(Protocol::IcmpV6, None, Some(ICMP_RATE)),
        Rule {
            match_source_address: Some(link_local.clone()),
            match_destination_address: Some(link_local),
            match_layer4: Some(Layer4Match {
                match_destination_port: Some(PortMatch {
                    ranges: vec![client],
                }),
                ..any_port(Protocol::Udp)
            }),
            verdict: Some(Verdict::Accept),
            ..Rule::default()
        },
    ]
}

/// Traffic between pods and services.
fn inside(cluster: &AddressMatch) -> Option<Rule> {
    (!cluster.include_subnets.is_empty()).then(|| Rule {
        match_source_address: Some(cluster.clone()),
        match_destination_address: Some(cluster.clone()),
        verdict: Some(Verdict::Accept),
        ..Rule::default()
    })
}

/// DNS queries from pods and services to the node's name cache.
fn names(cluster: &AddressMatch, cache: &[IpAddr]) -> Vec<Rule> {
    if cache.is_empty() || cluster.include_subnets.is_empty() {
        return Vec::new();
    }
    let dns = PortRange { lo: PORT, hi: PORT };
    let rule = |protocol| Rule {
        match_source_address: Some(cluster.clone()),
        match_destination_address: Some(AddressMatch {
            include_subnets: cache.iter().copied().map(Prefix::host).collect(),
            exclude_subnets: Vec::new(),
        }),
        match_layer4: Some(Layer4Match {
            match_destination_port: Some(PortMatch { ranges: vec![dns] }),
            ..any_port(protocol)
        }),
        verdict: Some(Verdict::Accept),
        ..Rule::default()
    };
    [Protocol::Udp, Protocol::Tcp].map(rule).into()
}

fn accept(rule: &NetworkRuleConfig) -> Rule {
    let from = |include: &kinds::IngressRule| prefix(include.subnet).network();
    let but = |except: &kinds::IngressRule| Some(prefix(except.except?).network());
    Rule {
        match_source_address: Some(AddressMatch {
            include_subnets: rule.ingress.iter().map(from).collect(),
            exclude_subnets: rule.ingress.iter().filter_map(but).collect(),
        }),
        match_layer4: Some(layer4(rule)),
        ..counted(Verdict::Accept)
    }
}

fn counted(verdict: Verdict) -> Rule {
    Rule {
        counter: true,
        verdict: Some(verdict),
        ..Rule::default()
    }
}

fn layer4(rule: &NetworkRuleConfig) -> Layer4Match {
    let ports = &rule.port_selector.ports;
    let range = |ports: &corten_values::Ports| PortRange {
        lo: ports.first,
        hi: ports.last,
    };
    Layer4Match {
        match_destination_port: (!ports.is_empty()).then(|| PortMatch {
            ranges: ports.iter().map(range).collect(),
        }),
        ..any_port(protocol(rule))
    }
}

fn any_port(protocol: Protocol) -> Layer4Match {
    Layer4Match {
        protocol,
        match_destination_port: None,
        match_icmp_type: None,
    }
}

fn protocol(rule: &NetworkRuleConfig) -> Protocol {
    match rule.port_selector.protocol {
        kinds::Protocol::Tcp => Protocol::Tcp,
        kinds::Protocol::Udp => Protocol::Udp,
        kinds::Protocol::Icmp => Protocol::Icmp,
        kinds::Protocol::Icmpv6 => Protocol::IcmpV6,
    }
}

#[cfg(test)]
mod tests;
