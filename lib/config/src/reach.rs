//! Whether a node can still be called after a change of config.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::Document;
use crate::kinds::{
    BondConfig, BridgeConfig, DHCPv4Config, DHCPv6Config, DefaultAction, DummyLinkConfig, Link,
    LinkConfig, NetworkDefaultActionConfig, NetworkRuleConfig, Protocol, VLANConfig, VRFConfig,
    VethConfig, WireguardConfig,
};
use crate::v1alpha1::{Interface, LegacyRoute};
use crate::values::{Cidr, LinkName, WireguardKey, WireguardSecret};

/// The port of the node API.
const API: u16 = 50_000;

/// Ways in which `new` might cut off who could call the node under `old`.
pub(crate) fn risks(old: &Document, new: &Document) -> Vec<String> {
    let mut risks = authorities(old, new);
    risks.extend(names(old, new));
    risks.extend(addresses(old, new));
    risks.extend(tunnels(old, new));
    risks.extend(firewall(old, new));
    risks
}

/// Whose certificates are let in.
fn authorities(old: &Document, new: &Document) -> Vec<String> {
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
    let text = "clients of an authority that is no longer in machine.ca or machine.acceptedCAs are refused";
    (lost > 0).then(|| text.to_owned()).into_iter().collect()
}

/// What its certificate says.
fn names(old: &Document, new: &Document) -> Vec<String> {
    let lost = old
        .machine
        .cert_sans
        .iter()
        .filter(|name| !new.machine.cert_sans.contains(name));
    lost.map(|name| {
        let name = crate::problem::printable(name);
        format!("the node's certificate no longer names {name} (machine.certSANs)")
    })
    .collect()
}

/// A link as the documents describe it.
#[derive(Default)]
struct Wanted {
    name: String,
    addresses: Vec<Cidr>,
    up: bool,
    /// Routes that lead through a gateway.
    gateways: usize,
    /// Links that stand under this one and have no addresses of their own.
    members: Vec<String>,
    dhcp: bool,
    /// A link of a device, which asks for addresses when nothing is said of it.
    physical: bool,
}

fn addresses(old: &Document, new: &Document) -> Vec<String> {
    let (before, after) = (links(old), links(new));
    let mut risks = Vec::new();
    let has = |links: &[Wanted], address: IpAddr| {
        links
            .iter()
            .any(|link| link.up && link.addresses.iter().any(|cidr| cidr.address == address))
    };
    for link in before.iter().filter(|link| link.up) {
        for cidr in link
            .addresses
            .iter()
            .filter(|cidr| !has(&after, cidr.address))
        {
            risks.push(format!("{} loses the address {cidr}", link.name));
        }
        let twin = after.iter().find(|other| other.name == link.name);
        if link.dhcp && !twin.is_some_and(|twin| twin.dhcp) {
            risks.push(format!(
                "{} no longer asks for addresses by DHCP",
                link.name
            ));
        }
        if link.gateways > 0 && twin.is_none_or(|twin| twin.gateways == 0) {
            risks.push(format!("{} loses its routes through a gateway", link.name));
        }
    }
    for link in &after {
        let was = before.iter().find(|other| other.name == link.name);
        if !link.up && was.is_none_or(|was| was.up) {
            risks.push(format!("{} is switched off", link.name));
        }
        if link.physical && !link.dhcp && was.is_none() {
            risks.push(format!(
                "{} no longer asks for addresses by itself, as the config describes it",
                link.name
            ));
        }
        let joined = |member: &&String| !was.is_some_and(|was| was.members.contains(member));
        for member in link.members.iter().filter(joined) {
            risks.push(format!(
                "{member} becomes a part of {} and loses its own addresses",
                link.name
            ));
        }
    }
    risks
}

/// Every link that is described; several documents can describe one.
fn links(document: &Document) -> Vec<Wanted> {
    let mut all: Vec<Wanted> = Vec::new();
    let described = document
        .all::<LinkConfig>()
        .map(|config| (&config.name, &config.link, true, &[][..]))
        .chain(
            document
                .all::<DummyLinkConfig>()
                .map(|c| (&c.name, &c.link, false, &[][..])),
        )
        .chain(
            document
                .all::<BondConfig>()
                .map(|c| (&c.name, &c.link, false, &c.links[..])),
        )
        .chain(
            document
                .all::<BridgeConfig>()
                .map(|c| (&c.name, &c.link, false, &c.links[..])),
        )
        .chain(
            document
                .all::<VLANConfig>()
                .map(|c| (&c.name, &c.link, false, &[][..])),
        )
        .chain(
            document
                .all::<VRFConfig>()
                .map(|c| (&c.name, &c.link, false, &[][..])),
        )
        .chain(
            document
                .all::<VethConfig>()
                .map(|c| (&c.name, &c.link, false, &[][..])),
        )
        .chain(
            document
                .all::<WireguardConfig>()
                .map(|c| (&c.name, &c.link, false, &[][..])),
        );
    for (name, link, physical, members) in described {
        all.push(wanted(name, link, physical, members));
    }
    for interface in &document.machine.network.interfaces {
        old_form(interface, &mut all);
    }
    let v4 = document.all::<DHCPv4Config>().map(|config| &config.name);
    let v6 = document.all::<DHCPv6Config>().map(|config| &config.name);
    for name in v4.chain(v6) {
        match all.iter_mut().find(|link| link.name == **name) {
            Some(link) => link.dhcp = true,
            None => all.push(Wanted {
                name: name.to_string(),
                up: true,
                dhcp: true,
                physical: true,
                ..Wanted::default()
            }),
        }
    }
    all
}

fn wanted(name: &LinkName, link: &Link, physical: bool, members: &[LinkName]) -> Wanted {
    Wanted {
        name: name.to_string(),
        addresses: link
            .addresses
            .iter()
            .map(|address| address.address)
            .collect(),
        up: link.up != Some(false),
        gateways: link
            .routes
            .iter()
            .filter(|route| route.gateway.is_some())
            .count(),
        members: members.iter().map(ToString::to_string).collect(),
        dhcp: false,
        physical,
    }
}

/// A link of `machine.network.interfaces`, and the VLANs on it.
fn old_form(interface: &Interface, all: &mut Vec<Wanted>) {
    let name = match &interface.interface {
        Some(name) => name.to_string(),
        None => "the selected link".to_owned(),
    };
    let gateways = |routes: &[LegacyRoute]| {
        routes
            .iter()
            .filter(|route| route.gateway.is_some())
            .count()
    };
    for vlan in &interface.vlans {
        all.push(Wanted {
            name: format!("{name}.{}", vlan.vlan_id),
            addresses: vlan.addresses.iter().chain(&vlan.cidr).copied().collect(),
            up: true,
            gateways: gateways(&vlan.routes),
            dhcp: vlan.dhcp,
            ..Wanted::default()
        });
    }
    let bonded = interface.bond.iter().flat_map(|bond| &bond.interfaces);
    let bridged = interface
        .bridge
        .iter()
        .flat_map(|bridge| &bridge.interfaces);
    all.push(Wanted {
        name,
        addresses: interface
            .addresses
            .iter()
            .chain(&interface.cidr)
            .copied()
            .collect(),
        up: !interface.ignore,
        gateways: gateways(&interface.routes),
        members: bonded.chain(bridged).map(ToString::to_string).collect(),
        dhcp: interface.dhcp == Some(true),
        physical: !interface.dummy
            && interface.bond.is_none()
            && interface.bridge.is_none()
            && interface.wireguard.is_none(),
    });
}

/// A WireGuard link as the documents describe it.
struct Tunnel {
    private_key: WireguardSecret,
    listen_port: Option<u16>,
    peers: BTreeMap<WireguardKey, Peer>,
}

/// The key both ends know, and what is let through.
type Peer = (Option<WireguardSecret>, BTreeSet<Cidr>);

/// Who comes through a tunnel.
fn tunnels(old: &Document, new: &Document) -> Vec<String> {
    let after = tunnels_of(new);
    let mut risks = Vec::new();
    for (name, before) in tunnels_of(old) {
        let Some(after) = after.get(&name) else {
            risks.push(format!("the tunnel {name} goes"));
            continue;
        };
        if after.private_key != before.private_key {
            risks.push(format!(
                "{name} gets another private key, which its peers do not know"
            ));
        }
        if after.listen_port != before.listen_port {
            risks.push(format!("{name} listens on another port"));
        }
        for (peer, (secret, networks)) in &before.peers {
            let Some((secret_after, networks_after)) = after.peers.get(peer) else {
                risks.push(format!("{name} loses its peer {peer}"));
                continue;
            };
            if secret != secret_after {
                let what = "another preshared key, which it does not know";
                risks.push(format!("{name} and its peer {peer} get {what}"));
            }
            for network in networks.difference(networks_after) {
                risks.push(format!(
                    "{name} lets its peer {peer} no longer use {network}"
                ));
            }
        }
    }
    risks
}

fn peer_of(
    key: WireguardKey,
    secret: Option<WireguardSecret>,
    allowed: &[Cidr],
) -> (WireguardKey, Peer) {
    // Zeros are none.
    let secret = secret.filter(|secret| *secret != WireguardSecret::default());
    (key, (secret, allowed.iter().map(Cidr::network).collect()))
}

fn tunnels_of(document: &Document) -> BTreeMap<String, Tunnel> {
    let by_kind = document.all::<WireguardConfig>().map(|config| {
        let tunnel = Tunnel {
            private_key: config.private_key,
            listen_port: config.listen_port,
            peers: config
                .peers
                .iter()
                .map(|peer| peer_of(peer.public_key, peer.preshared_key, &peer.allowed_ips))
                .collect(),
        };
        (config.name.to_string(), tunnel)
    });
    let interfaces = document.machine.network.interfaces.iter();
    let old_form = interfaces.filter_map(|interface| {
        let config = interface.wireguard.as_ref()?;
        let tunnel = Tunnel {
            private_key: config.private_key,
            listen_port: config.listen_port,
            peers: config
                .peers
                .iter()
                .map(|peer| peer_of(peer.public_key, None, &peer.allowed_ips))
                .collect(),
        };
        Some((interface.interface.as_ref()?.to_string(), tunnel))
    });
    by_kind.chain(old_form).collect()
}

/// Whether calls come through.
fn firewall(old: &Document, new: &Document) -> Vec<String> {
    let Some(after) = callers(new) else {
        return Vec::new();
    };
    if after.is_empty() {
        return vec![format!("the firewall lets nobody call port {API}")];
    }
    let before = callers(old);
    if before.is_some_and(|before| before.iter().all(|network| after.contains(network))) {
        return Vec::new();
    }
    let networks: Vec<String> = after.iter().map(ToString::to_string).collect();
    vec![format!(
        "the firewall lets port {API} be called only from {}",
        networks.join(", ")
    )]
}

/// The networks the API can be called from; `None`: from everywhere.
fn callers(document: &Document) -> Option<Vec<Cidr>> {
    let blocks = |config: &NetworkDefaultActionConfig| config.ingress == DefaultAction::Block;
    let blocks = document.all::<NetworkDefaultActionConfig>().any(blocks);
    let rules = document.all::<NetworkRuleConfig>().filter(|rule| {
        let ports = &rule.port_selector;
        ports.protocol == Protocol::Tcp && ports.ports.iter().any(|range| range.contains(API))
    });
    let rules: Vec<&NetworkRuleConfig> = rules.collect();
    // A port that rules name is for those they name, whatever the default is.
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
