//! What one link shall have, whoever decided it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mozim::DhcpV4Lease;

use super::ip_param::prefix_of;

/// Of default routes, so that one learnt by IPv6 autoconfiguration or set by hand can win (the reference's
/// number).
const METRIC: u32 = 1024;

/// Addresses, routes and names of one link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkConfig {
    /// Each with its prefix length.
    pub addresses: Vec<(IpAddr, u8)>,
    /// In an order in which each gateway is reachable by what stands before.
    pub routes: Vec<Route>,
    /// Name servers, the best first.
    pub dns: Vec<IpAddr>,
    /// Search domains.
    pub search: Vec<String>,
    /// What the network calls this node.
    pub hostname: Option<String>,
    /// Largest packet.
    pub mtu: Option<u32>,
}

/// One route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Where to, with prefix length.
    pub destination: (IpAddr, u8),
    /// By which router; `None`: it is on the link.
    pub gateway: Option<IpAddr>,
    /// Lower is preferred.
    pub metric: u32,
}

/// The route to everywhere by this router.
#[must_use]
pub fn default_route(gateway: IpAddr) -> Route {
    let everywhere = match gateway {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Route {
        destination: (everywhere, 0),
        gateway: Some(gateway),
        metric: METRIC,
    }
}

/// What a lease gives. Classless routes, where present, stand for the routers (RFC 3442).
#[must_use]
pub fn from_lease(lease: &DhcpV4Lease) -> LinkConfig {
    let prefix = prefix_of(lease.subnet_mask)
        .filter(|length| *length > 0)
        .unwrap_or(32);
    let mut routes: Vec<Route> = match &lease.classless_routes {
        Some(routes) => routes
            .iter()
            .map(|route| classless(route.destination, route.prefix_length, route.router))
            .collect(),
        None => lease
            .gateways
            .iter()
            .flatten()
            .take(1)
            .map(|router| default_route((*router).into()))
            .collect(),
    };
    // A router outside of our own network (a /32 lease) must first be made reachable.
    let local = |address: Ipv4Addr| network(address, prefix) == network(lease.yiaddr, prefix);
    let far: Vec<Route> = routes
        .iter()
        .filter_map(|route| match route.gateway {
            Some(IpAddr::V4(router)) if !local(router) => {
                Some(classless(router, 32, Ipv4Addr::UNSPECIFIED))
            }
            _ => None,
        })
        .collect();
    routes.splice(0..0, far);
    LinkConfig {
        addresses: vec![(lease.yiaddr.into(), prefix)],
        routes,
        dns: lease
            .dns_srvs
            .iter()
            .flatten()
            .map(|server| (*server).into())
            .collect(),
        search: lease
            .domain_name
            .iter()
            .filter(|name| is_name(name))
            .cloned()
            .collect(),
        hostname: lease.host_name.clone().filter(|name| is_name(name)),
        // Below 576 IPv4 itself is broken (RFC 791); such an answer is a mistake.
        mtu: lease.mtu.map(u32::from).filter(|mtu| *mtu >= 576),
    }
}

/// With the router 0.0.0.0 the destination is on the link (RFC 3442).
fn classless(destination: Ipv4Addr, prefix: u8, router: Ipv4Addr) -> Route {
    Route {
        destination: (destination.into(), prefix),
        gateway: (!router.is_unspecified()).then_some(router.into()),
        metric: METRIC,
    }
}

fn network(address: Ipv4Addr, prefix: u8) -> u32 {
    let shift = 32 - u32::from(prefix.min(32));
    address.to_bits().checked_shr(shift).unwrap_or(0)
}

/// Whether foreign text is harmless as a DNS name (RFC 1123, 2.1). It goes into files and messages.
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
    use super::*;
    use mozim::DhcpV4ClasslessRoute;

    fn lease() -> DhcpV4Lease {
        let mut lease = DhcpV4Lease::default();
        lease.yiaddr = Ipv4Addr::new(10, 0, 2, 15);
        lease.subnet_mask = Ipv4Addr::new(255, 255, 255, 0);
        lease.gateways = Some(vec![Ipv4Addr::new(10, 0, 2, 2), Ipv4Addr::new(10, 0, 2, 4)]);
        lease.dns_srvs = Some(vec![Ipv4Addr::new(10, 0, 2, 3)]);
        lease
    }

    #[test]
    fn an_ordinary_lease() {
        let config = from_lease(&lease());
        assert_eq!(config.addresses, [("10.0.2.15".parse().unwrap(), 24)]);
        assert_eq!(config.routes, [default_route("10.0.2.2".parse().unwrap())]);
        assert_eq!(config.dns, ["10.0.2.3".parse::<IpAddr>().unwrap()]);
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
        let routes = from_lease(&lease).routes;
        assert_eq!(routes.len(), 2);
        assert_eq!(routes[0].gateway, None);
        assert_eq!(routes[1], default_route("10.0.2.9".parse().unwrap()));
    }

    #[test]
    fn a_router_outside_of_the_network_is_made_reachable_first() {
        let mut lease = lease();
        lease.subnet_mask = Ipv4Addr::BROADCAST;
        let routes = from_lease(&lease).routes;
        assert_eq!(routes[0].destination, ("10.0.2.2".parse().unwrap(), 32));
        assert_eq!(
            (routes[0].gateway, routes[1].gateway),
            (None, Some("10.0.2.2".parse().unwrap()))
        );
    }

    #[test]
    fn hostile_names_are_dropped() {
        let mut lease = lease();
        lease.host_name = Some("a\nnameserver 6.6.6.6".into());
        lease.domain_name = Some("example.com".into());
        lease.mtu = Some(68);
        let config = from_lease(&lease);
        assert_eq!((config.hostname, config.mtu), (None, None));
        assert_eq!(config.search, ["example.com"]);
        assert!(!is_name("-a") && !is_name("") && !is_name("a..b") && is_name("node-1.example"));
    }
}
