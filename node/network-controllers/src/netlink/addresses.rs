//! Shows every address.

use std::collections::BTreeMap;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::names::{ADDRESS_FLAGS, flags};
use corten_types::network::AddressStatus;
use futures_util::TryStreamExt as _;
use rtnetlink::MulticastGroup;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use rtnetlink::packet_route::link::{LinkAttribute, LinkMessage};

use super::Kernel;

#[derive(Debug, Clone)]
pub(crate) struct Addresses;

impl Controller for Addresses {
    fn name(&self) -> &'static str {
        "network.AddressStatusController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::shared::<AddressStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        // Links as well: an address's id contains its link's name.
        let mut kernel = Kernel::connect(&[
            MulticastGroup::Link,
            MulticastGroup::Ipv4Ifaddr,
            MulticastGroup::Ipv6Ifaddr,
        ])?;
        context.event().await;
        loop {
            let links = kernel.links().await?;
            let links: BTreeMap<u32, &str> = links.iter().filter_map(named).collect();
            let addresses = kernel.handle.address().get().execute();
            let addresses: Vec<AddressMessage> = addresses.try_collect().await?;
            context.start_outputs();
            for message in &addresses {
                // A link added in between is seen in the next round.
                let name = links.get(&message.header.index);
                if let Some(status) = name.and_then(|name| status(message, name)) {
                    let id = format!("{}/{}", status.link_name, status.address);
                    context.put(Draft::new(&id, status))?;
                }
            }
            context.remove_others::<AddressStatus>()?;
            kernel.changed().await?;
        }
    }
}

pub(super) fn named(message: &LinkMessage) -> Option<(u32, &str)> {
    let name = message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name.as_str()),
            _ => None,
        })?;
    Some((message.header.index, name))
}

/// Converts a message; `None` if it lacks an address.
fn status(message: &AddressMessage, link_name: &str) -> Option<AddressStatus> {
    let header = &message.header;
    let (mut address, mut local, mut broadcast) = (None, None, None);
    let mut bits = u32::from(header.flags.bits());
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(found) => address = Some(*found),
            AddressAttribute::Local(found) => local = Some(*found),
            AddressAttribute::Broadcast(found) => broadcast = Some(*found),
            // The header has only the lowest eight flags.
            AddressAttribute::Flags(all) => bits = all.bits(),
            _ => {}
        }
    }
    let address = address.or(local)?;
    Some(AddressStatus {
        address: format!("{address}/{}", header.prefix_len),
        local: local.map(|local| local.to_string()).unwrap_or_default(),
        broadcast: broadcast.map(|all| all.to_string()).unwrap_or_default(),
        link_index: header.index,
        link_name: link_name.to_owned(),
        family: if header.family == AddressFamily::Inet6 {
            "inet6"
        } else {
            "inet4"
        },
        scope: match header.scope {
            AddressScope::Universe => "global",
            AddressScope::Site => "site",
            AddressScope::Link => "link",
            AddressScope::Host => "host",
            _ => "nowhere",
        },
        flags: flags(bits, ADDRESS_FLAGS),
    })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;
    use corten_types::network::LinkStatus;
    use rtnetlink::packet_route::address::AddressFlags;

    use super::*;
    use crate::netlink::links::Links;

    #[test]
    fn address_message_becomes_a_status() {
        let mut message = AddressMessage::default();
        message.header.index = 2;
        message.header.prefix_len = 24;
        message.header.family = AddressFamily::Inet;
        assert_eq!(status(&message, "eth0"), None);
        let ours = IpAddr::from([10, 0, 2, 15]);
        message.attributes = vec![
            AddressAttribute::Address(ours),
            AddressAttribute::Local(ours),
            AddressAttribute::Broadcast(Ipv4Addr::new(10, 0, 2, 255)),
            AddressAttribute::Flags(AddressFlags::Permanent | AddressFlags::Noprefixroute),
        ];
        let status = status(&message, "eth0").unwrap();
        assert_eq!(status.address, "10.0.2.15/24");
        assert_eq!(status.broadcast, "10.0.2.255");
        assert_eq!((status.family, status.scope), ("inet4", "global"));
        assert_eq!(status.flags, "permanent,noprefixroute");
    }

    /// Reading links and addresses needs no privilege, so the test uses the real kernel.
    #[tokio::test]
    async fn loopback_address_of_the_test_machine_is_found() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(Links::default()).unwrap();
        runtime.add(Addresses).unwrap();
        let _running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let link = sample::until::<LinkStatus>(&store, "lo", |link| link.is_some()).await;
        let id = "lo/127.0.0.1/8";
        let address = sample::until::<AddressStatus>(&store, id, |found| found.is_some()).await;
        let (link, address) = (link.unwrap(), address.unwrap());
        assert_eq!(link.link_type, "loopback");
        assert_eq!(address.link_index, link.index);
        assert_eq!(address.scope, "host");
    }
}
