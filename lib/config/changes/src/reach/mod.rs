//! Risks that a change of config makes the node unreachable.

mod described;
mod links;
mod tunnels;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use corten_values::Cidr;

use corten_config::Document;
use corten_config::kinds::{
    BlackholeRouteConfig, DefaultAction, LinkAliasConfig, NetworkDefaultActionConfig,
    NetworkRuleConfig, Protocol, RoutingRuleConfig,
};

/// Port of the node API.
const API: u16 = 50_000;

/// Ways in which `new` may cut off callers that could reach the node under `old`.
pub(crate) fn risks(old: &Document, new: &Document) -> Vec<String> {
    let mut risks = cas(old, new);
    risks.extend(names(old, new));
    risks.extend(links::risks(old, new));
    risks.extend(ways(old, new));
    risks.extend(tunnels::risks(old, new));
    risks.extend(firewall(old, new));
    risks
}

/// Removed client CAs.
fn cas(old: &Document, new: &Document) -> Vec<String> {
    let trusted = |document: &Document| -> BTreeSet<String> {
        let own = document.machine.ca.iter().map(|ca| ca.crt.to_string());
        let others = document
            .machine
            .accepted_cas
            .iter()
            .map(|ca| ca.crt.to_string());
        own.chain(others)
            .map(|pem| pem.trim().to_owned())
            .filter(|pem| !pem.is_empty())
            .collect()
    };
    let lost = trusted(old).difference(&trusted(new)).count();
    let text = "clients of a CA that is no longer in machine.ca or machine.acceptedCAs are refused";
    (lost > 0).then(|| text.to_owned()).into_iter().collect()
}

/// Names removed from the node's certificate.
fn names(old: &Document, new: &Document) -> Vec<String> {
    let lost = old
        .machine
        .cert_sans
        .iter()
        .filter(|name| !new.machine.cert_sans.contains(name));
    lost.map(|name| {
        let name = corten_yaml::problem::printable(name);
        format!("the node's certificate no longer names {name} (machine.certSANs)")
    })
    .collect()
}

/// Changes of routing independent of a link.
fn ways(old: &Document, new: &Document) -> Vec<String> {
    let mut risks = Vec::new();
    let dropped = |document: &Document| -> BTreeSet<Cidr> {
        let networks = document.all::<BlackholeRouteConfig>();
        networks.map(|config| config.name).collect()
    };
    for network in dropped(new).difference(&dropped(old)) {
        risks.push(format!("packets to {network} are dropped"));
    }
    let rules = |document: &Document| -> BTreeMap<u32, RoutingRuleConfig> {
        let rules = document.all::<RoutingRuleConfig>();
        rules.map(|rule| (rule.priority, rule.clone())).collect()
    };
    changed(&rules(old), &rules(new), |priority, what| {
        risks.push(format!("the routing rule {priority} {what}"));
    });
    let aliases = |document: &Document| -> BTreeMap<String, LinkAliasConfig> {
        let aliases = document.all::<LinkAliasConfig>();
        let named = aliases.map(|config| (config.name.to_string(), config.clone()));
        named.collect()
    };
    let after = aliases(new);
    for (name, alias) in aliases(old) {
        if after.get(&name) != Some(&alias) {
            risks.push(format!("the alias {name} selects other links"));
        }
    }
    risks
}

/// Calls `tell` for each added, removed and changed entry.
fn changed<K: Ord, V: PartialEq>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    mut tell: impl FnMut(&K, &str),
) {
    for (key, before) in old {
        match new.get(key) {
            None => tell(key, "is removed"),
            Some(after) if after != before => tell(key, "changes"),
            Some(_) => {}
        }
    }
    for key in new.keys().filter(|key| !old.contains_key(key)) {
        tell(key, "is added");
    }
}

/// Callers that the firewall newly excludes.
fn firewall(old: &Document, new: &Document) -> Vec<String> {
    let Some(after) = callers(new) else {
        return Vec::new();
    };
    if after.is_empty() {
        return vec![format!("the firewall blocks all callers of port {API}")];
    }
    let before = callers(old);
    if before.is_some_and(|before| before.iter().all(|network| after.contains(network))) {
        return Vec::new();
    }
    let networks: Vec<String> = after.iter().map(ToString::to_string).collect();
    vec![format!(
        "the firewall allows calls to port {API} only from {}",
        networks.join(", ")
    )]
}

/// Networks that may call the API; `None`: all.
fn callers(document: &Document) -> Option<Vec<Cidr>> {
    let blocks = |config: &NetworkDefaultActionConfig| config.ingress == DefaultAction::Block;
    let blocks = document.all::<NetworkDefaultActionConfig>().any(blocks);
    let rules = document.all::<NetworkRuleConfig>().filter(|rule| {
        let ports = &rule.port_selector;
        ports.protocol == Protocol::Tcp && ports.ports.iter().any(|range| range.contains(API))
    });
    let rules: Vec<&NetworkRuleConfig> = rules.collect();
    // A port in a rule is closed to other networks, even if the default action is accept.
    if !blocks && rules.is_empty() {
        return None;
    }
    let subnets: Vec<Cidr> = rules
        .into_iter()
        .flat_map(|rule| &rule.ingress)
        .map(|from| from.subnet)
        .collect();
    let all = |family: fn(&IpAddr) -> bool| {
        subnets
            .iter()
            .any(|subnet| subnet.is_default() && family(&subnet.address))
    };
    (!(all(IpAddr::is_ipv4) && all(IpAddr::is_ipv6))).then_some(subnets)
}
