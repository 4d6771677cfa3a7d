//! Where a member of etcd listens, and where others reach it.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Deref;

use corten_config::Document;
use corten_config::kinds::Layer2VIPConfig;

use crate::Facts;
use crate::subnets::matching;

/// Port for clients.
pub const CLIENT_PORT: u16 = 2379;
/// Port for other members.
pub const PEER_PORT: u16 = 2380;

/// Addresses of a member; none of the lists is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// Addresses at which other members and clients reach it.
    pub advertised: Vec<IpAddr>,
    /// Listen addresses for other members.
    pub listen_peer: Vec<IpAddr>,
    /// Listen addresses for clients.
    pub listen_client: Vec<IpAddr>,
}

/// The node has no address for its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAddress {
    /// It has none to advertise.
    #[error(
        "the node has no address of cluster.etcd.advertisedSubnets: give it one, or change that field"
    )]
    Advertised,
    /// It has none to listen at.
    #[error(
        "the node itself has no address of cluster.etcd.listenSubnets, or of advertisedSubnets without that field: give it \
         one, or set listenSubnets to networks of its links"
    )]
    Listen,
}

impl Addresses {
    /// The addresses that the config selects.
    ///
    /// # Errors
    /// The node has none of them.
    pub fn of(document: &Document, facts: &Facts) -> Result<Addresses, NoAddress> {
        let (meant, listen) = (advertised_subnets(document), listen_subnets(document));
        let shared = shared(document);
        let own = |mut addresses: Vec<IpAddr>| {
            addresses.retain(|address| !shared.contains(address));
            addresses
        };
        let advertised = match meant.is_empty() {
            true => own(facts.addresses.clone()).into_iter().take(1).collect(),
            false => own(matching(&facts.reachable, &meant)),
        };
        let any: Vec<IpAddr> = vec![Ipv4Addr::UNSPECIFIED.into()];
        let (listen_peer, listen_client) = match listen.is_empty() {
            // etcd listens at this address of all families (Go, "net.Listen").
            true => (any.clone(), any),
            false => {
                let peer = matching(&facts.addresses, &listen);
                let local = IpAddr::from(Ipv4Addr::LOCALHOST);
                (peer.clone(), [vec![local], peer].concat())
            }
        };
        match (advertised.is_empty(), listen_peer.is_empty()) {
            (true, _) => Err(NoAddress::Advertised),
            (false, true) => Err(NoAddress::Listen),
            (false, false) => Ok(Addresses {
                advertised,
                listen_peer,
                listen_client,
            }),
        }
    }

    /// URLs at which other members reach it.
    #[must_use]
    pub fn peer_urls(&self) -> Vec<String> {
        peer_urls(&self.advertised)
    }
}

/// URLs at which other members reach a member with these addresses.
#[must_use]
pub fn peer_urls(advertised: &[IpAddr]) -> Vec<String> {
    urls(advertised, PEER_PORT)
}

pub(crate) fn urls(addresses: &[IpAddr], port: u16) -> Vec<String> {
    let url = |address: &IpAddr| match address {
        IpAddr::V4(address) => format!("https://{address}:{port}"),
        IpAddr::V6(address) => format!("https://[{address}]:{port}"),
    };
    addresses.iter().map(url).collect()
}

/// Subnets of the advertised addresses; empty for the node's first address.
#[must_use]
pub fn advertised_subnets(document: &Document) -> Vec<String> {
    let Some(etcd) = &document.cluster.etcd else {
        return Vec::new();
    };
    match (etcd.advertised_subnets.is_empty(), &etcd.subnet) {
        (true, Some(subnet)) => vec![subnet.to_string()],
        _ => texts(&etcd.advertised_subnets),
    }
}

/// Subnets of the listen addresses; empty for all addresses. Those of the advertised addresses count without own ones.
#[must_use]
pub fn listen_subnets(document: &Document) -> Vec<String> {
    let Some(etcd) = &document.cluster.etcd else {
        return Vec::new();
    };
    match etcd.listen_subnets.is_empty() {
        true => texts(&etcd.advertised_subnets),
        false => texts(&etcd.listen_subnets),
    }
}

fn texts<S: Deref<Target = str>>(subnets: &[S]) -> Vec<String> {
    subnets.iter().map(|subnet| (**subnet).to_owned()).collect()
}

/// Addresses that the config shares among control plane nodes. No member is reached by one of them, since another node
/// may have it next.
#[must_use]
pub fn shared(document: &Document) -> Vec<IpAddr> {
    let interfaces = document.machine.network.interfaces.iter();
    let old_form = interfaces.flat_map(|interface| {
        let vlans = interface.vlans.iter().filter_map(|vlan| vlan.vip.as_ref());
        interface.vip.iter().chain(vlans)
    });
    let documents = document.all::<Layer2VIPConfig>();
    let all = old_form.filter_map(|shared| shared.ip);
    all.chain(documents.filter_map(|shared| shared.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::patched;

    fn ips(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn facts() -> Facts {
        let own = [
            "10.0.0.5",
            "192.168.1.1",
            "192.168.1.50",
            "2001:db8::1",
            "2002:db8::1",
        ];
        Facts {
            addresses: ips(&own),
            reachable: [ips(&["1.3.5.7"]), ips(&own)].concat(),
            ..Facts::default()
        }
    }

    fn of(etcd: &str, machine: &str) -> Result<Addresses, NoAddress> {
        let patch = format!("machine: {machine}\ncluster: {{etcd: {etcd}}}");
        Addresses::of(&patched(&patch), &facts())
    }

    /// The advertised addresses, and the listen addresses for other members and for clients.
    fn lists(etcd: &str) -> [Vec<IpAddr>; 3] {
        let found = of(etcd, "{}").unwrap();
        [found.advertised, found.listen_peer, found.listen_client]
    }

    #[test]
    fn member_has_the_first_own_address_and_listens_at_all() {
        let all = ips(&["0.0.0.0"]);
        assert_eq!(lists("{}"), [ips(&["10.0.0.5"]), all.clone(), all]);
    }

    #[test]
    fn member_advertises_all_addresses_of_its_subnets_in_their_order_and_listens_at_its_own_of_them()
     {
        let listen = ["192.168.1.1", "192.168.1.50"];
        let etcd = "{advertisedSubnets: [192.168.0.0/16, 1.3.5.7/32]}";
        assert_eq!(
            lists(etcd),
            [
                ips(&["192.168.1.1", "192.168.1.50", "1.3.5.7"]),
                ips(&listen),
                [ips(&["127.0.0.1"]), ips(&listen)].concat()
            ]
        );
        let etcd = "{advertisedSubnets: [192.168.0.0/16, '!192.168.1.50']}";
        assert_eq!(lists(etcd)[0], ips(&["192.168.1.1"]));
    }

    #[test]
    fn listen_subnets_are_independent_of_the_advertised_address() {
        let etcd = "{advertisedSubnets: [1.3.5.7], listenSubnets: [10.0.0.0/8, '2001:db8::/32']}";
        let listen = ["10.0.0.5", "2001:db8::1"];
        assert_eq!(
            lists(etcd),
            [
                ips(&["1.3.5.7"]),
                ips(&listen),
                [ips(&["127.0.0.1"]), ips(&listen)].concat()
            ]
        );
    }

    #[test]
    fn old_subnet_selects_advertised_addresses_alone() {
        let all = ips(&["0.0.0.0"]);
        let found = lists("{subnet: 192.168.1.0/24}");
        let advertised = ips(&["192.168.1.1", "192.168.1.50"]);
        assert_eq!(found, [advertised, all.clone(), all]);
    }

    #[test]
    fn shared_address_is_never_advertised() {
        let machine = "{network: {interfaces: [{interface: eth0, vip: {ip: 10.0.0.5}, vlans: [{vlanId: 5, vip: {ip: \
                       192.168.1.1}}]}]}}";
        assert_eq!(
            of("{}", machine).unwrap().advertised,
            ips(&["192.168.1.50"])
        );
        let etcd = "{advertisedSubnets: [10.0.0.0/8, 192.168.0.0/16]}";
        assert_eq!(
            of(etcd, machine).unwrap().advertised,
            ips(&["192.168.1.50"])
        );
    }

    #[test]
    fn node_without_a_selected_address_names_the_field() {
        assert_eq!(
            of("{advertisedSubnets: [172.16.0.0/12]}", "{}"),
            Err(NoAddress::Advertised)
        );
        // The node reaches itself by no address that its platform translates.
        let translated = of("{advertisedSubnets: [1.3.5.7]}", "{}");
        assert_eq!(translated, Err(NoAddress::Listen));
    }

    #[test]
    fn urls_of_ipv6_addresses_have_brackets() {
        let found = peer_urls(&ips(&["10.0.0.5", "fd00::1"]));
        assert_eq!(found, ["https://10.0.0.5:2380", "https://[fd00::1]:2380"]);
    }
}
