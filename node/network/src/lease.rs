//! Translates DHCP leases into network specs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_types::network_names::{Dhcp, ResolverSpec};
use corten_types::network_spec::{Layer, RouteSpec};
use corten_types::prefix::Prefix;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::proto::serialize::binary::{BinDecodable as _, BinDecoder};
use mozim::{DhcpV4Lease, DhcpV6Lease};

use super::ip_param::prefix_of;
use super::layers::{Specs, hostname, resolver, route, time_servers};

const LAYER: Layer = Layer::Operator;
/// DHCPv4: the domain search option (RFC 3397).
pub const SEARCH_DOMAINS: u8 = 119;
/// DHCPv6: the name server option (RFC 3646, section 3).
const DNS_SERVERS_V6: u16 = 23;

/// Specs of a DHCPv4 lease. Classless routes, where present, replace the router option (RFC 3442).
#[must_use]
pub fn of_v4(link: &str, dhcp: &Dhcp, lease: &DhcpV4Lease) -> Specs {
    let mut specs = Specs::default();
    if !is_of_one(lease.yiaddr.into()) {
        return specs;
    }
    let length = prefix_of(lease.subnet_mask)
        .filter(|length| *length > 0)
        .unwrap_or(32);
    let own = Prefix {
        address: lease.yiaddr.into(),
        length,
    };
    specs.address(LAYER, link, own, 0);
    if !dhcp.skip_routes {
        specs.routes = routes(link, dhcp.route_metric, own, lease);
    }
    // IPv4 requires an MTU of 576 bytes (RFC 791), so a smaller one is a mistake.
    if let Some(mtu) = lease.mtu.map(u32::from).filter(|mtu| *mtu >= 576) {
        specs.link(LAYER, link).mtu = mtu;
    }
    let domain = lease.domain_name.as_deref().filter(|name| is_name(name));
    let name = lease.host_name.as_deref().filter(|name| is_name(name));
    if let Some(name) = name.filter(|_| !dhcp.skip_hostname) {
        let mut spec = hostname(LAYER, name);
        if spec.domainname.is_empty() {
            domain.unwrap_or_default().clone_into(&mut spec.domainname);
        }
        specs.hostname = Some(spec);
    }
    let servers = lease.dns_srvs.iter().flatten();
    let raw = lease.get_option_raw(SEARCH_DOMAINS).unwrap_or_default();
    // Skip the option's code and length bytes.
    let mut search = domains(raw.get(2..).unwrap_or_default());
    if search.is_empty() {
        search.extend(domain.map(str::to_owned));
    }
    let servers = servers.map(|server| IpAddr::from(*server)).collect();
    specs.resolver = names(servers, search);
    let servers = lease.ntp_srvs.iter().flatten();
    specs.time_servers = time_servers(LAYER, servers.map(ToString::to_string).collect());
    specs
}

fn routes(link: &str, metric: u32, own: Prefix, lease: &DhcpV4Lease) -> Vec<RouteSpec> {
    // The router 0.0.0.0 means that the destination is on the link (RFC 3442).
    let by = |destination: Ipv4Addr, length: u8, router: Ipv4Addr| {
        let gateway = (!router.is_unspecified()).then_some(IpAddr::from(router));
        let dst = Prefix {
            address: destination.into(),
            length,
        };
        RouteSpec {
            priority: metric,
            src: Some(own.address),
            protocol: "dhcp",
            ..route(LAYER, link, dst, gateway)
        }
    };
    let everywhere = |router: Ipv4Addr| by(Ipv4Addr::UNSPECIFIED, 0, router);
    let mut routes: Vec<RouteSpec> = match &lease.classless_routes {
        Some(routes) => routes
            .iter()
            .filter(|route| route.prefix_length <= 32)
            .map(|route| by(route.destination, route.prefix_length, route.router))
            .collect(),
        None => lease
            .gateways
            .iter()
            .flatten()
            .take(1)
            .map(|router| everywhere(*router))
            .collect(),
    };
    // A router outside of the link's own network (a /32 lease) needs a route on the link first.
    let far = |route: &RouteSpec| match route.gateway {
        Some(IpAddr::V4(router)) if !own.contains(router.into()) => {
            Some(by(router, 32, Ipv4Addr::UNSPECIFIED))
        }
        _ => None,
    };
    let far: Vec<RouteSpec> = routes.iter().filter_map(far).collect();
    routes.splice(0..0, far);
    routes
}

/// Specs of a DHCPv6 lease. It has no routes: routers advertise those (RFC 4861).
#[must_use]
pub fn of_v6(link: &str, lease: &DhcpV6Lease) -> Specs {
    let mut specs = Specs::default();
    if is_of_one(lease.address.into()) {
        let own = Prefix {
            address: lease.address.into(),
            length: 128,
        };
        specs.address(LAYER, link, own, 0);
    }
    let raw = lease.get_option_raw(DNS_SERVERS_V6).unwrap_or_default();
    let servers = raw.iter().flat_map(|bytes| addresses(bytes)).collect();
    let domains = lease.domain_list.iter();
    let domains = domains.map(|name| name.trim_end_matches('.'));
    let domains: Vec<String> = domains
        .filter(|name| is_name(name))
        .map(str::to_owned)
        .collect();
    specs.resolver = names(servers, domains);
    let usable = |server: &&String| is_name(server) || server.parse::<IpAddr>().is_ok();
    let servers = lease.ntp_srvs.iter().filter(usable);
    specs.time_servers = time_servers(LAYER, servers.cloned().collect());
    specs
}

/// Whether an address can belong to one host (RFC 1122, section 3.2.1.3; RFC 4291, section 2.4). A lease with any other
/// address is a mistake.
#[must_use]
pub fn is_of_one(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::from(Ipv4Addr::BROADCAST);
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_broadcast)
}

/// Domains of a search option, up to the first invalid one. Names may be compressed (RFC 1035, section 4.1.4).
fn domains(bytes: &[u8]) -> Vec<String> {
    let mut decoder = BinDecoder::new(bytes);
    let mut domains = Vec::new();
    while !decoder.is_empty()
        && let Ok(name) = Name::read(&mut decoder)
    {
        let name = name.to_ascii();
        domains.push(name.trim_end_matches('.').to_owned());
    }
    domains.retain(|name| is_name(name));
    domains
}

/// Addresses of a DHCPv6 option, with or without its 4-byte header of code and length.
fn addresses(bytes: &[u8]) -> Vec<IpAddr> {
    let bytes = bytes.get(bytes.len() % 16..).unwrap_or_default();
    let chunks = bytes.chunks_exact(16);
    let address = |chunk: &[u8]| Some(Ipv6Addr::from(<[u8; 16]>::try_from(chunk).ok()?).into());
    chunks.filter_map(address).collect()
}

fn names(dns_servers: Vec<IpAddr>, search_domains: Vec<String>) -> Option<ResolverSpec> {
    resolver(ResolverSpec {
        dns_servers,
        layer: LAYER,
        search_domains,
        no_own_domain: false,
    })
}

/// Whether untrusted text is a valid DNS name (RFC 1123, 2.1), safe to write into files and messages.
#[must_use]
pub fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use corten_corpus::{hostile, hostile_text};
    use mozim::DhcpV4ClasslessRoute;
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;
    use crate::layers::Layered as _;

    fn lease() -> DhcpV4Lease {
        let mut lease = DhcpV4Lease::default();
        lease.yiaddr = Ipv4Addr::new(10, 0, 2, 15);
        lease.subnet_mask = Ipv4Addr::new(255, 255, 255, 0);
        lease.gateways = Some(vec![Ipv4Addr::new(10, 0, 2, 2), Ipv4Addr::new(10, 0, 2, 4)]);
        lease.dns_srvs = Some(vec![Ipv4Addr::new(10, 0, 2, 3)]);
        lease
    }

    fn specs(lease: &DhcpV4Lease) -> Specs {
        let dhcp = Dhcp {
            route_metric: 1024,
            ..Dhcp::default()
        };
        of_v4("eth0", &dhcp, lease)
    }

    fn routes(lease: &DhcpV4Lease) -> Vec<String> {
        specs(lease).routes.iter().map(|route| route.id()).collect()
    }

    #[test]
    fn ordinary_lease_gives_address_route_and_name_server() {
        let specs = specs(&lease());
        assert_eq!(specs.addresses[0].id(), "eth0/10.0.2.15/24");
        assert_eq!(routes(&lease()), ["inet4/10.0.2.2//1024"]);
        assert_eq!(specs.routes[0].src, Some("10.0.2.15".parse().unwrap()));
        let servers = specs.resolver.unwrap().dns_servers;
        assert_eq!(servers, ["10.0.2.3".parse::<IpAddr>().unwrap()]);
        assert!(specs.links.is_empty() && specs.time_servers.is_none());
    }

    #[test]
    fn addresses_that_no_host_can_have_are_refused() {
        for address in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255"] {
            let mut lease = lease();
            lease.yiaddr = address.parse().unwrap();
            assert_eq!(specs(&lease), Specs::default(), "{address}");
        }
        for address in ["::", "::1", "ff02::1"] {
            let mut lease = DhcpV6Lease::default();
            lease.address = address.parse().unwrap();
            assert!(of_v6("eth0", &lease).addresses.is_empty(), "{address}");
        }
    }

    #[test]
    fn disabled_dhcp_options_are_ignored() {
        let mut lease = lease();
        lease.host_name = Some("n1".into());
        let dhcp = Dhcp {
            skip_routes: true,
            skip_hostname: true,
            ..Dhcp::default()
        };
        let specs = of_v4("eth0", &dhcp, &lease);
        assert!(specs.routes.is_empty() && specs.hostname.is_none());
    }

    #[test]
    fn classless_routes_replace_the_router() {
        let mut lease = lease();
        let route = |destination, prefix_length, router| DhcpV4ClasslessRoute {
            destination,
            prefix_length,
            router,
        };
        lease.classless_routes = Some(vec![
            route(Ipv4Addr::new(10, 9, 0, 0), 16, Ipv4Addr::UNSPECIFIED),
            route(Ipv4Addr::UNSPECIFIED, 0, Ipv4Addr::new(10, 0, 2, 9)),
        ]);
        assert_eq!(
            routes(&lease),
            ["inet4//10.9.0.0/16/1024", "inet4/10.0.2.9//1024"]
        );
    }

    #[test]
    fn router_outside_the_network_gets_a_link_route_first() {
        let mut lease = lease();
        lease.subnet_mask = Ipv4Addr::BROADCAST;
        assert_eq!(
            routes(&lease),
            ["inet4//10.0.2.2/32/1024", "inet4/10.0.2.2//1024"]
        );
    }

    #[test]
    fn hostile_names_are_dropped() {
        let mut lease = lease();
        lease.host_name = Some("a\nnameserver 6.6.6.6".into());
        lease.domain_name = Some("example.com".into());
        lease.mtu = Some(68);
        let specs = specs(&lease);
        assert!(specs.hostname.is_none() && specs.links.is_empty());
        assert_eq!(specs.resolver.unwrap().search_domains, ["example.com"]);
        assert!(!is_name("-a") && !is_name("") && !is_name("a..b") && is_name("node-1.example"));
    }

    #[test]
    fn search_domains_may_be_compressed_and_hostile_ones_are_dropped() {
        let example = b"\x07example\x03com\x00";
        let second = [example.as_slice(), b"\x04node\xc0\x00"].concat();
        assert_eq!(domains(&second), ["example.com", "node.example.com"]);
        let endless = b"\x01a\xc0\x00";
        assert!(domains(endless).is_empty() && domains(b"\xc0").is_empty());
        let hostile = [b"\x03a\nb\x00".as_slice(), b"\x00", example, b"\x3f"].concat();
        assert_eq!(domains(&hostile), ["example.com"]);
    }

    proptest! {
        #[test]
        fn hostile_options_give_valid_names_and_whole_addresses(bytes in hostile("dhcpv4"), v6 in hostile("dhcpv6")) {
            prop_assert!(domains(&bytes).iter().all(|name| is_name(name)));
            let options = bytes.get(236..).unwrap_or_default();
            prop_assert!(domains(options).iter().all(|name| is_name(name)));
            prop_assert!(addresses(&v6).len() <= v6.len() / 16);
        }

        #[test]
        fn hostile_leases_give_only_valid_networks(
            numbers: [u32; 4],
            routes in vec((any::<u32>(), any::<u8>(), any::<u32>()), 0..4),
            name in hostile_text("syslog"),
            mtu: u16,
            v6: u128,
        ) {
            let [own, mask, router, server] = numbers.map(Ipv4Addr::from_bits);
            let mut lease = lease();
            (lease.yiaddr, lease.subnet_mask) = (own, mask);
            lease.gateways = Some(vec![router]);
            lease.dns_srvs = Some(vec![server]);
            lease.mtu = Some(mtu);
            (lease.host_name, lease.domain_name) = (Some(name.clone()), Some(name.clone()));
            let route = |(to, prefix_length, by): &(u32, u8, u32)| DhcpV4ClasslessRoute {
                destination: Ipv4Addr::from_bits(*to),
                prefix_length: *prefix_length,
                router: Ipv4Addr::from_bits(*by),
            };
            lease.classless_routes = Some(routes.iter().map(route).collect());
            let found = specs(&lease);
            prop_assert!(found.addresses.iter().all(|spec| spec.address.length <= 32));
            let is_network = |route: &RouteSpec| route.dst.length <= 32 && route.dst == route.dst.network();
            prop_assert!(found.routes.iter().all(is_network), "{:?}", found.routes);
            prop_assert!(found.hostname.is_none_or(|spec| is_name(&spec.hostname)));
            let mut lease = DhcpV6Lease::default();
            lease.address = Ipv6Addr::from_bits(v6);
            lease.domain_list = vec![name.clone()];
            lease.ntp_srvs = vec![name];
            let domains = of_v6("eth0", &lease).resolver.map(|spec| spec.search_domains);
            prop_assert!(domains.into_iter().flatten().all(|name| is_name(&name)));
        }
    }

    #[test]
    fn host_name_gets_the_domain_of_the_network() {
        let mut lease = lease();
        lease.host_name = Some("n1".into());
        lease.domain_name = Some("example.com".into());
        lease.ntp_srvs = Some(vec![Ipv4Addr::new(10, 0, 2, 9)]);
        lease.mtu = Some(1400);
        let specs = specs(&lease);
        let name = specs.hostname.unwrap();
        assert_eq!((&*name.hostname, &*name.domainname), ("n1", "example.com"));
        assert_eq!(specs.time_servers.unwrap().time_servers, ["10.0.2.9"]);
        assert_eq!((&*specs.links[0].name, specs.links[0].mtu), ("eth0", 1400));
    }

    #[test]
    fn dhcpv6_lease_gives_one_address_and_no_route() {
        let mut lease = DhcpV6Lease::default();
        lease.address = "fd00::5".parse().unwrap();
        lease.domain_list = vec!["example.com.".into(), "a\nb".into()];
        lease.ntp_srvs = vec!["fd00::9".into(), "not a name".into()];
        let specs = of_v6("eth0", &lease);
        assert_eq!(specs.addresses[0].id(), "eth0/fd00::5/128");
        assert!(specs.routes.is_empty());
        assert_eq!(specs.resolver.unwrap().search_domains, ["example.com"]);
        assert_eq!(specs.time_servers.unwrap().time_servers, ["fd00::9"]);
        let server = [[0; 15].as_slice(), &[1]].concat();
        let framed = [&[0, 23, 0, 16], server.as_slice()].concat();
        assert_eq!(addresses(&server), addresses(&framed));
        assert_eq!(addresses(&framed), ["::1".parse::<IpAddr>().unwrap()]);
        assert!(addresses(&[1, 2, 3]).is_empty());
    }
}
