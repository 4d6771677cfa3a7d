//! Translates DHCP leases into network specs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_network::layers::{Specs, hostname, resolver, route, time_servers};
use corten_network::prefix_of;
use corten_types::network_names::{Dhcp, ResolverSpec};
use corten_types::network_spec::{Layer, RouteSpec};
use corten_types::prefix::Prefix;
use corten_values::is_host_name;

use crate::options::is_of_one;
use crate::{Asking, Leased, v4, v6};

const LAYER: Layer = Layer::Operator;

impl Leased for v4::Lease {
    type Address = Ipv4Addr;

    fn address(&self) -> Ipv4Addr {
        self.address
    }

    fn specs(&self, asking: &Asking) -> Specs {
        of_v4(&asking.name, &asking.dhcp, self)
    }
}

impl Leased for v6::Lease {
    type Address = Ipv6Addr;

    fn address(&self) -> Ipv6Addr {
        self.address
    }

    fn specs(&self, asking: &Asking) -> Specs {
        of_v6(&asking.name, self)
    }
}

/// Specs of a DHCPv4 lease. Classless routes, where present, replace the router option (RFC 3442).
fn of_v4(link: &str, dhcp: &Dhcp, lease: &v4::Lease) -> Specs {
    let mut specs = Specs::default();
    if !is_of_one(lease.address.into()) {
        return specs;
    }
    let length = lease
        .mask
        .and_then(prefix_of)
        .filter(|length| *length > 0)
        .unwrap_or(32);
    let own = Prefix {
        address: lease.address.into(),
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
    let domain = lease.domain.as_deref().filter(|name| is_host_name(name));
    let name = lease.hostname.as_deref().filter(|name| is_host_name(name));
    if let Some(name) = name.filter(|_| !dhcp.skip_hostname) {
        let mut spec = hostname(LAYER, name);
        if spec.domainname.is_empty() {
            domain.unwrap_or_default().clone_into(&mut spec.domainname);
        }
        specs.hostname = Some(spec);
    }
    let mut search = lease.search.clone();
    if search.is_empty() {
        search.extend(domain.map(str::to_owned));
    }
    let servers = lease.name_servers.iter();
    specs.resolver = names(
        servers.map(|server| IpAddr::from(*server)).collect(),
        search,
    );
    let servers = lease.time_servers.iter();
    specs.time_servers = time_servers(LAYER, servers.map(ToString::to_string).collect());
    specs
}

fn routes(link: &str, metric: u32, own: Prefix, lease: &v4::Lease) -> Vec<RouteSpec> {
    // The router 0.0.0.0 means that the destination is on the link (RFC 3442).
    let by = |dst: Prefix, router: Ipv4Addr| {
        let gateway = (!router.is_unspecified()).then_some(IpAddr::from(router));
        RouteSpec {
            priority: metric,
            src: Some(own.address),
            protocol: "dhcp",
            ..route(LAYER, link, dst, gateway)
        }
    };
    let all = |routes: &[(Prefix, Ipv4Addr)]| -> Vec<RouteSpec> {
        routes
            .iter()
            .map(|(dst, router)| by(*dst, *router))
            .collect()
    };
    let mut routes = lease.routes.as_deref().map_or_else(
        || {
            let router = lease.routers.first();
            let everywhere = Prefix::everywhere(own.address);
            let mut routes = all(&lease.old_routes);
            routes.extend(router.map(|router| by(everywhere, *router)));
            routes
        },
        all,
    );
    // A router outside of the link's own network (a /32 lease) needs a route on the link first.
    let far = |route: &RouteSpec| match route.gateway {
        Some(IpAddr::V4(router)) if !own.contains(router.into()) => {
            Some(by(Prefix::host(router.into()), Ipv4Addr::UNSPECIFIED))
        }
        _ => None,
    };
    let far: Vec<RouteSpec> = routes.iter().filter_map(far).collect();
    routes.splice(0..0, far);
    routes
}

/// Specs of a DHCPv6 lease. It has no routes: routers advertise those (RFC 4861).
fn of_v6(link: &str, lease: &v6::Lease) -> Specs {
    let mut specs = Specs::default();
    if is_of_one(lease.address.into()) {
        specs.address(LAYER, link, Prefix::host(lease.address.into()), 0);
    }
    let servers = lease
        .name_servers
        .iter()
        .map(|server| IpAddr::from(*server));
    specs.resolver = names(servers.collect(), lease.search.clone());
    specs.time_servers = time_servers(LAYER, lease.time_servers.clone());
    specs
}

fn names(dns_servers: Vec<IpAddr>, search_domains: Vec<String>) -> Option<ResolverSpec> {
    resolver(ResolverSpec {
        dns_servers,
        layer: LAYER,
        search_domains,
        no_own_domain: false,
    })
}

#[cfg(test)]
mod tests {
    use corten_corpus::hostile_text;
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;
    use corten_network::layers::Layered as _;

    fn lease() -> v4::Lease {
        let address = |last| Ipv4Addr::new(10, 0, 2, last);
        v4::Lease {
            mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
            routers: vec![address(2), address(4)],
            name_servers: vec![address(3)],
            ..v4::Lease::new(address(15), address(2))
        }
    }

    fn lease_v6(address: Ipv6Addr) -> v6::Lease {
        v6::Lease {
            address,
            server: vec![1],
            renew: 0,
            rebind: 0,
            preferred: 60,
            valid: 60,
            name_servers: Vec::new(),
            search: Vec::new(),
            time_servers: Vec::new(),
        }
    }

    fn to(address: [u8; 4], length: u8, router: [u8; 4]) -> (Prefix, Ipv4Addr) {
        let address = IpAddr::from(address);
        (Prefix { address, length }, router.into())
    }

    fn specs(lease: &v4::Lease) -> Specs {
        let dhcp = Dhcp {
            route_metric: 1024,
            ..Dhcp::default()
        };
        of_v4("eth0", &dhcp, lease)
    }

    fn routes(lease: &v4::Lease) -> Vec<String> {
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
            lease.address = address.parse().unwrap();
            assert_eq!(specs(&lease), Specs::default(), "{address}");
        }
        for address in ["::", "::1", "ff02::1"] {
            let lease = lease_v6(address.parse().unwrap());
            assert!(of_v6("eth0", &lease).addresses.is_empty(), "{address}");
        }
    }

    #[test]
    fn disabled_dhcp_options_are_ignored() {
        let mut lease = lease();
        lease.hostname = Some("n1".into());
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
        lease.old_routes = vec![to([10, 8, 0, 0], 16, [10, 0, 2, 8])];
        assert_eq!(
            routes(&lease),
            ["inet4/10.0.2.8/10.8.0.0/16/1024", "inet4/10.0.2.2//1024"]
        );
        lease.routes = Some(vec![
            to([10, 9, 0, 0], 16, [0; 4]),
            to([0; 4], 0, [10, 0, 2, 9]),
        ]);
        assert_eq!(
            routes(&lease),
            ["inet4//10.9.0.0/16/1024", "inet4/10.0.2.9//1024"]
        );
    }

    #[test]
    fn router_outside_the_network_gets_a_link_route_first() {
        let mut lease = lease();
        lease.mask = Some(Ipv4Addr::BROADCAST);
        assert_eq!(
            routes(&lease),
            ["inet4//10.0.2.2/32/1024", "inet4/10.0.2.2//1024"]
        );
    }

    #[test]
    fn hostile_names_are_dropped() {
        let mut lease = lease();
        lease.hostname = Some("a\nnameserver 6.6.6.6".into());
        lease.domain = Some("example.com".into());
        lease.mtu = Some(68);
        let specs = specs(&lease);
        assert!(specs.hostname.is_none() && specs.links.is_empty());
        assert_eq!(specs.resolver.unwrap().search_domains, ["example.com"]);
    }

    proptest! {
        #[test]
        fn hostile_leases_give_only_valid_networks(
            numbers: [u32; 4],
            routes in vec((any::<u32>(), any::<u8>(), any::<u32>()), 0..4),
            name in hostile_text("syslog"),
            mtu: u16,
            is_classless: bool,
        ) {
            let [own, mask, router, server] = numbers.map(Ipv4Addr::from_bits);
            let mut lease = lease();
            (lease.address, lease.mask) = (own, Some(mask));
            lease.routers = vec![router];
            lease.name_servers = vec![server];
            lease.mtu = Some(mtu);
            (lease.hostname, lease.domain) = (Some(name.clone()), Some(name));
            // The codec refuses longer prefixes.
            let routes = routes.into_iter().map(|(network, length, router)| {
                to(network.to_be_bytes(), length % 33, router.to_be_bytes())
            });
            lease.old_routes = routes.collect();
            if is_classless {
                lease.routes = Some(lease.old_routes.clone());
            }
            let found = specs(&lease);
            prop_assert!(found.addresses.iter().all(|spec| spec.address.length <= 32));
            let is_network = |route: &RouteSpec| route.dst.length <= 32 && route.dst == route.dst.network();
            prop_assert!(found.routes.iter().all(is_network), "{:?}", found.routes);
            prop_assert!(found.hostname.is_none_or(|spec| is_host_name(&spec.hostname)));
        }
    }

    #[test]
    fn host_name_gets_the_domain_of_the_network() {
        let mut lease = lease();
        lease.hostname = Some("n1".into());
        lease.domain = Some("example.com".into());
        lease.time_servers = vec![Ipv4Addr::new(10, 0, 2, 9)];
        lease.mtu = Some(1400);
        let specs = specs(&lease);
        let name = specs.hostname.unwrap();
        assert_eq!((&*name.hostname, &*name.domainname), ("n1", "example.com"));
        assert_eq!(specs.time_servers.unwrap().time_servers, ["10.0.2.9"]);
        assert_eq!((&*specs.links[0].name, specs.links[0].mtu), ("eth0", 1400));
    }

    #[test]
    fn dhcpv6_lease_gives_one_address_and_no_route() {
        let mut lease = lease_v6("fd00::5".parse().unwrap());
        lease.name_servers = vec![Ipv6Addr::LOCALHOST];
        lease.search = vec!["example.com".to_owned()];
        lease.time_servers = vec!["fd00::9".to_owned()];
        let specs = of_v6("eth0", &lease);
        assert_eq!(specs.addresses[0].id(), "eth0/fd00::5/128");
        assert!(specs.routes.is_empty());
        let resolver = specs.resolver.unwrap();
        assert_eq!(resolver.search_domains, ["example.com"]);
        assert_eq!(resolver.dns_servers, ["::1".parse::<IpAddr>().unwrap()]);
        assert_eq!(specs.time_servers.unwrap().time_servers, ["fd00::9"]);
    }
}
