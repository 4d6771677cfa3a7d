//! What a node does as long as nobody says otherwise: it asks for addresses on every link of a device.

use std::collections::BTreeSet;
use std::net::IpAddr;

use corten_types::network_names::{
    ClientIdentifier, Dhcp, OperatorSpec, ResolverSpec, TimeServerSpec,
};
use corten_types::network_spec::Layer;

use super::layers::{METRIC, Specs, hostname};

/// Asked when no layer names any; the choice of the system whose clients we serve.
const RESOLVERS: [[u8; 4]; 2] = [[1, 1, 1, 1], [8, 8, 8, 8]];
const TIME_SERVER: &str = "time.cloudflare.com";

/// `physical` are the links of devices, `spoken_for` those that another layer describes.
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

/// A link that asks for addresses as usual.
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
        layer,
    }
}

/// Who a node says it is when nobody says otherwise: by DHCPv4 its link, by DHCPv6 itself
/// (`super::identity::duid`).
#[must_use]
pub fn unsaid(operator: &str) -> &'static str {
    if operator == "dhcp6" { "none" } else { "mac" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_nobody_speaks_of_ask_for_addresses() {
        let physical = ["eth0".to_owned(), "eth1".to_owned()];
        let spoken_for = BTreeSet::from(["eth1".to_owned()]);
        let specs = specs("corten-1", &physical, &spoken_for);
        let links: Vec<&str> = specs.links.iter().map(|link| &*link.name).collect();
        assert_eq!(links, ["lo", "eth0"]);
        assert_eq!(specs.operators, [dhcp(Layer::Default, "dhcp4", "eth0")]);
        assert_eq!(specs.hostname.unwrap().hostname, "corten-1");
    }
}
