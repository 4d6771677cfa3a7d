//! Shows every route.

use std::collections::BTreeMap;

use corten_network::apply::found_routes;
use corten_network::layers::route_id;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::names::table_name;
use corten_types::names::{ROUTE_PROTOCOLS, name};
use corten_types::network::RouteStatus;
use corten_types::network_spec::family;
use futures_util::TryStreamExt as _;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteScope, RouteType,
};

use super::Kernel;
use super::addresses::named;

#[derive(Debug, Clone)]
pub(crate) struct Routes;

impl Controller for Routes {
    fn name(&self) -> &'static str {
        "network.RouteStatusController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<RouteStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut kernel = Kernel::connect(&[
            MulticastGroup::Link,
            MulticastGroup::Ipv4Route,
            MulticastGroup::Ipv6Route,
        ])?;
        context.event().await;
        loop {
            let links = kernel.links().await?;
            let links: BTreeMap<u32, &str> = links.iter().filter_map(named).collect();
            context.start_outputs();
            for family in [AddressFamily::Inet, AddressFamily::Inet6] {
                let mut request = RouteMessage::default();
                request.header.address_family = family;
                let mut routes = kernel.handle.route().get(request).execute();
                while let Some(message) = routes.try_next().await? {
                    for (id, status) in statuses(&message, &links) {
                        context.put(Draft::new(&id, status))?;
                    }
                }
            }
            context.remove_others::<RouteStatus>()?;
            kernel.changed().await?;
        }
    }
}

/// Converts a message to one status per next hop, without the kernel's own local routes.
fn statuses(message: &RouteMessage, links: &BTreeMap<u32, &str>) -> Vec<(String, RouteStatus)> {
    let source = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::PrefSource(RouteAddress::Inet(address)) => Some(address.to_string()),
            RouteAttribute::PrefSource(RouteAddress::Inet6(address)) => Some(address.to_string()),
            _ => None,
        });
    let status = |found: corten_network::apply::FoundRoute| {
        let link = links.get(&found.link).copied().unwrap_or_default();
        let id = route_id(found.table, link, found.gateway, found.dst, found.priority);
        let status = RouteStatus {
            family: family(found.dst.address),
            dst: if found.dst.length == 0 {
                String::new()
            } else {
                found.dst.to_string()
            },
            src: source.clone().unwrap_or_default(),
            gateway: found
                .gateway
                .map(|gateway| gateway.to_string())
                .unwrap_or_default(),
            out_link_index: found.link,
            out_link_name: link.to_owned(),
            table: table_name(found.table),
            priority: found.priority,
            scope: match message.header.scope {
                RouteScope::Universe => "global",
                RouteScope::Site => "site",
                RouteScope::Link => "link",
                RouteScope::Host => "host",
                _ => "nowhere",
            },
            route_type: if message.header.kind == RouteType::BlackHole {
                "blackhole"
            } else {
                "unicast"
            },
            protocol: name(u8::from(message.header.protocol).into(), ROUTE_PROTOCOLS),
        };
        (id, status)
    };
    found_routes(message).into_iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rtnetlink::RouteMessageBuilder;
    use rtnetlink::packet_route::route::RouteProtocol;

    use super::*;

    #[test]
    fn route_message_becomes_a_status() {
        let message = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(Ipv4Addr::UNSPECIFIED, 0)
            .gateway(Ipv4Addr::new(10, 0, 2, 2))
            .pref_source(Ipv4Addr::new(10, 0, 2, 15))
            .output_interface(2)
            .priority(1024)
            .protocol(RouteProtocol::Dhcp)
            .build();
        let links = BTreeMap::from([(2, "eth0")]);
        let all = statuses(&message, &links);
        let [(id, status)] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!(id, "inet4/10.0.2.2//1024");
        assert_eq!((&*status.dst, &*status.gateway), ("", "10.0.2.2"));
        assert_eq!(
            (&*status.src, &*status.out_link_name),
            ("10.0.2.15", "eth0")
        );
        assert_eq!((&*status.table, &*status.protocol), ("main", "dhcp"));
    }
}
