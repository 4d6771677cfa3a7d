//! Network specs of a node without configuration: DHCP on every link of a device.

use std::collections::BTreeSet;
use std::net::IpAddr;

use corten_types::network_names::{
    ClientIdentifier, Dhcp, OperatorSpec, ResolverSpec, TimeServerSpec,
};
use corten_types::network_spec::Layer;

use super::layers::{METRIC, Specs, hostname};

/// Fallback servers when no layer names any; the same as in the system whose clients we serve.
const RESOLVERS: [[u8; 4]; 2] = [[1, 1, 1, 1], [8, 8, 8, 8]];
const TIME_SERVER: &str = "time.cloudflare.com";

/// The default specs. `physical` are the links of devices, `spoken_for` the links that another layer configures.
#[must_use]
pub fn specs(name: &str, physical: &[String], spoken_for: &BTreeSet<String>) -> Specs {
    let mut specs = Specs {
        hostname: Some(hostname(Layer::Default, name)),
        resolver: Some(ResolverSpec {
            dns_servers: RESOLVERS.map(IpAddr::from).to_vec(),
            layer: Layer::Default,
            ..ResolverSpec::default()
        }),
        time_servers: Some(TimeServerSpec {
            time_servers: vec![TIME_SERVER.to_owned()],
            layer: Layer::Default,
        }),
        ..Specs::default()
    };
    let loopback = specs.link(Layer::Default, "lo");
    loopback.link_type = "loopback";
    for link in physical.iter().filter(|link| !spoken_for.contains(*link)) {
        specs.link(Layer::Default, link);
        specs.operators.push(dhcp(Layer::Default, "dhcp4", link));
    }
    specs
}

/// A DHCP client with default settings on a link.
#[must_use]
pub fn dhcp(layer: Layer, operator: &'static str, link: &str) -> OperatorSpec {
    OperatorSpec {
        operator,
        link_name: link.to_owned(),
        require_up: true,
        dhcp: Dhcp {
            route_metric: METRIC,
            client_identifier: ClientIdentifier {
                client_identifier: unsaid(operator),
                duid: String::new(),
            },
            ..Dhcp::default()
        },
        shared: None,
        layer,
    }
}

/// A share in an address of several nodes.
#[must_use]
pub fn vip(layer: Layer, link: &str, address: IpAddr) -> OperatorSpec {
    OperatorSpec {
        operator: "vip",
        link_name: link.to_owned(),
        require_up: true,
        dhcp: Dhcp::default(),
        shared: Some(address),
        layer,
    }
}

/// Default client identifier: the hardware address for DHCPv4, the node's own DUID for DHCPv6
/// (`super::identity::duid`).
#[must_use]
pub fn unsaid(operator: &str) -> &'static str {
    if operator == "dhcp6" { "none" } else { "mac" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unconfigured_links_use_dhcp() {
        let physical = ["eth0".to_owned(), "eth1".to_owned()];
        let spoken_for = BTreeSet::from(["eth1".to_owned()]);
        let specs = specs("corten-1", &physical, &spoken_for);
        let links: Vec<&str> = specs.links.iter().map(|link| &*link.name).collect();
        assert_eq!(links, ["lo", "eth0"]);
        assert_eq!(specs.operators, [dhcp(Layer::Default, "dhcp4", "eth0")]);
        assert_eq!(specs.hostname.unwrap().hostname, "corten-1");
    }
}
