//! The kernel's network over rtnetlink(7).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_types::network_spec::{AddressSpec, RouteSpec};
use corten_types::prefix::Prefix;
use futures_util::{StreamExt as _, TryStreamExt as _};
use rtnetlink::packet_core::{
    NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressFlags, AddressHeaderFlags, AddressMessage, AddressScope, CacheInfo,
};
use rtnetlink::packet_route::link::{
    InfoBond, InfoData, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{
    AddressMessageBuilder, Error, Handle, LinkMessageBuilder, LinkUnspec, RouteMessageBuilder,
};

use super::{Found, FoundLink, FoundRoute, Kernel, Refusal, Step, announce, bond, link_message};
use crate::wireguard;

/// A connection to the kernel.
#[derive(Debug, Clone)]
pub struct Rtnetlink(pub Handle);

impl Kernel for Rtnetlink {
    async fn look(&self) -> Result<Found, String> {
        self.read().await.map_err(|error| error.to_string())
    }

    async fn perform(&self, step: &Step) -> Result<(), Refusal> {
        self.take(step).await
    }
}

impl Rtnetlink {
    async fn read(&self) -> Result<Found, Error> {
        let mut found = Found::default();
        let links: Vec<LinkMessage> = self.0.link().get().execute().try_collect().await?;
        found.links = links.iter().filter_map(link).collect();
        for (name, link) in &mut found.links {
            if link.kind == wireguard::KIND {
                link.wireguard = wireguard::found(name).ok();
            }
        }
        let addresses = self.0.address().get().execute();
        let addresses: Vec<AddressMessage> = addresses.try_collect().await?;
        found.addresses = addresses.iter().filter_map(address).collect();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut request = RouteMessage::default();
            request.header.address_family = family;
            let mut routes = self.0.route().get(request).execute();
            while let Some(message) = routes.try_next().await? {
                found.routes.extend(found_routes(&message));
            }
        }
        Ok(found)
    }

    async fn take(&self, step: &Step) -> Result<(), Refusal> {
        let links = self.0.link();
        let done = match step {
            Step::Make(spec) => {
                let found = self.look().await?;
                let index = |name: &str| found.links.get(name).map(|link| link.index);
                links.add(link_message::make(spec, index)?).execute().await
            }
            Step::Delete(name) => links.del(self.index(name).await?).execute().await,
            Step::Up(name, true) => self.set(name, LinkMessageBuilder::up).await?,
            Step::Up(name, false) => self.set(name, LinkMessageBuilder::down).await?,
            Step::Mtu(name, mtu) => self.set(name, |link| link.mtu(*mtu)).await?,
            Step::HardwareAddr(name, address) => {
                self.set(name, |link| link.address(address.to_vec()))
                    .await?
            }
            Step::Wireguard(name, change) => return Ok(wireguard::perform(name, change)?),
            Step::Multicast(name, takes) => self.set(name, |link| link.multicast(*takes)).await?,
            Step::Master(name, Some(master)) => {
                let master = self.index(master).await?;
                self.set(name, |link| link.controller(master)).await?
            }
            Step::Master(name, None) => self.set(name, LinkMessageBuilder::nocontroller).await?,
            Step::Bond(bond, settings) => self.change_bond(bond, settings).await?,
            Step::Primary(bond, port) => {
                let port = match port {
                    Some(port) => self.index(port).await?,
                    None => 0,
                };
                self.change_bond(bond, &[InfoBond::Primary(port)]).await?
            }
            Step::AddAddress(spec) => {
                let message = self.link(&spec.link_name).await?;
                let index = message.header.index;
                let Prefix { address, length } = spec.address;
                let mut request = self.0.address().add(index, address, length).replace();
                if spec.priority != 0 {
                    let priority = AddressAttribute::RoutePriority(spec.priority);
                    request.message_mut().attributes.push(priority);
                }
                if spec.scope == "host" {
                    of_the_host(request.message_mut());
                }
                if spec.announce_with_arp {
                    announce::prepare(&spec.link_name);
                }
                let added = request.execute().await;
                if let (Ok(()), true, IpAddr::V4(address)) =
                    (&added, spec.announce_with_arp, address)
                {
                    let mac = link(&message).map(|(_, link)| link.hardware_addr);
                    announce::by_arp(index, mac.and_then(|mac| mac.try_into().ok()), address);
                }
                added
            }
            Step::RemoveAddress(spec) => {
                let index = self.index(&spec.link_name).await?;
                let message = address_message(index, spec);
                self.0.address().del(message).execute().await
            }
            Step::AddRoute(spec) => {
                let message = self.route_message(spec).await?;
                // Next to others with the same destination; `rtnetlink` itself can only replace them.
                let message = RouteNetlinkMessage::NewRoute(message);
                self.send(message, NLM_F_CREATE | NLM_F_APPEND).await
            }
            Step::RemoveRoute(spec) => {
                let message = self.route_message(spec).await?;
                self.0.route().del(message).execute().await
            }
        };
        match (done, step) {
            // The kernel may have removed it already, along with its link or its address.
            (Err(error), Step::RemoveAddress(_) | Step::RemoveRoute(_)) if is_gone(&error) => {
                Ok(())
            }
            (done, _) => done.map_err(Refusal::from),
        }
    }

    async fn set(
        &self,
        name: &str,
        change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Result<Result<(), Error>, Refusal> {
        let message = LinkUnspec::new_with_index(self.index(name).await?);
        Ok(self.0.link().set(change(message).build()).execute().await)
    }

    async fn change_bond(
        &self,
        name: &str,
        settings: &[InfoBond],
    ) -> Result<Result<(), Error>, Refusal> {
        let message = link_message::change_bond(self.index(name).await?, settings);
        Ok(self.send(RouteNetlinkMessage::NewLink(message), 0).await)
    }

    async fn index(&self, name: &str) -> Result<u32, Refusal> {
        Ok(self.link(name).await?.header.index)
    }

    async fn link(&self, name: &str) -> Result<LinkMessage, Refusal> {
        let mut found = self.0.link().get().match_name(name.to_owned()).execute();
        match found.try_next().await {
            Ok(Some(message)) => Ok(message),
            Ok(None) => Err(Refusal::from(format!("there is no link {name}"))),
            Err(error) => Err(Refusal::from(error)),
        }
    }

    /// Sends a message for which `rtnetlink` has no request with these flags.
    async fn send(&self, message: RouteNetlinkMessage, flags: u16) -> Result<(), Error> {
        let mut request = NetlinkMessage::from(message);
        request.header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut answers = self.0.clone().request(request)?;
        while let Some(answer) = answers.next().await {
            if let NetlinkPayload::Error(error) = answer.payload {
                return Err(Error::NetlinkError(error));
            }
        }
        Ok(())
    }

    async fn route_message(&self, spec: &RouteSpec) -> Result<RouteMessage, Refusal> {
        let invalid = |error| Refusal::from(format!("{error}"));
        let mut builder = RouteMessageBuilder::<IpAddr>::new()
            .table_id(spec.table)
            .priority(spec.priority)
            .protocol(match spec.protocol {
                "boot" => RouteProtocol::Boot,
                "dhcp" => RouteProtocol::Dhcp,
                _ => RouteProtocol::Static,
            })
            .destination_prefix(spec.dst.address, spec.dst.length)
            .map_err(invalid)?;
        if spec.route_type == "blackhole" {
            builder = builder.kind(RouteType::BlackHole);
        } else {
            builder = builder.output_interface(self.index(&spec.out_link_name).await?);
        }
        if let Some(gateway) = spec.gateway {
            builder = builder.gateway(gateway).map_err(invalid)?;
        }
        if let Some(source) = spec.src {
            builder = builder.pref_source(source).map_err(invalid)?;
        }
        if spec.scope == "link" {
            builder = builder.scope(RouteScope::Link);
        }
        let mut message = builder.build();
        if spec.mtu != 0 {
            let mtu = RouteMetric::Mtu(spec.mtu);
            message.attributes.push(RouteAttribute::Metrics(vec![mtu]));
        }
        Ok(message)
    }
}

/// Keeps the kernel from choosing this address as a source, except for sockets bound to it. IPv6 has no host scope;
/// there a deprecated address does the same (RFC 4862, section 5.5.4).
fn of_the_host(message: &mut AddressMessage) {
    message.header.scope = AddressScope::Host;
    if message.header.family == AddressFamily::Inet6 {
        let mut lifetime = CacheInfo::default();
        lifetime.ifa_preferred = 0;
        lifetime.ifa_valid = u32::MAX;
        let lifetime = AddressAttribute::CacheInfo(lifetime);
        message.attributes.push(lifetime);
    }
}

/// Whether the object to remove does not exist: `ESRCH`, `ENODEV` or `EADDRNOTAVAIL`.
fn is_gone(error: &Error) -> bool {
    use rustix::io::Errno;
    let Error::NetlinkError(message) = error else {
        return false;
    };
    let code = message.raw_code().saturating_neg();
    [Errno::SRCH, Errno::NODEV, Errno::ADDRNOTAVAIL]
        .iter()
        .any(|errno| errno.raw_os_error() == code)
}

/// The kernel's reason, without the netlink message.
pub fn describe(error: &Error) -> String {
    match error {
        Error::NetlinkError(message) => message.to_io().to_string(),
        other => other.to_string(),
    }
}

fn link(message: &LinkMessage) -> Option<(String, FoundLink)> {
    let mut name = None;
    let mut link = FoundLink {
        index: message.header.index,
        is_up: message.header.flags.contains(LinkFlags::Up),
        takes_multicast: message.header.flags.contains(LinkFlags::Multicast),
        ..FoundLink::default()
    };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(text) => name = Some(text.clone()),
            LinkAttribute::Mtu(bytes) => link.mtu = *bytes,
            LinkAttribute::Address(bytes) => link.hardware_addr.clone_from(bytes),
            LinkAttribute::Controller(index) => link.master = *index,
            LinkAttribute::LinkInfo(infos) => {
                for info in infos {
                    match info {
                        LinkInfo::Kind(kind) => link.kind = kind.to_string(),
                        LinkInfo::Data(InfoData::Bond(settings)) => {
                            link.primary = primary(settings);
                            let settings = settings.iter().filter(|one| bond::can_change(one));
                            link.bond = settings.cloned().collect();
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Some((name?, link))
}

fn primary(settings: &[InfoBond]) -> u32 {
    let mut ports = settings.iter().filter_map(|setting| match setting {
        InfoBond::Primary(port) => Some(*port),
        _ => None,
    });
    ports.next().unwrap_or(0)
}

fn address(message: &AddressMessage) -> Option<((u32, Prefix), bool)> {
    let (mut address, mut local) = (None, None);
    let mut tentative = message.header.flags.contains(AddressHeaderFlags::Tentative);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(found) => address = Some(*found),
            // On a point-to-point link, `Address` is the peer's.
            AddressAttribute::Local(found) => local = Some(*found),
            AddressAttribute::Flags(flags) => tentative |= flags.contains(AddressFlags::Tentative),
            _ => {}
        }
    }
    let prefix = Prefix {
        address: local.or(address)?,
        length: message.header.prefix_len,
    };
    Some(((message.header.index, prefix), !tentative))
}

fn address_message(index: u32, spec: &AddressSpec) -> AddressMessage {
    let Prefix { address, length } = spec.address;
    match address {
        IpAddr::V4(address) => AddressMessageBuilder::<Ipv4Addr>::new()
            .index(index)
            .address(address, length)
            .build(),
        IpAddr::V6(address) => AddressMessageBuilder::<Ipv6Addr>::new()
            .index(index)
            .address(address, length)
            .build(),
    }
}

/// Routes of a message: one, or one for each of its next hops.
pub fn found_routes(message: &RouteMessage) -> Vec<FoundRoute> {
    let header = &message.header;
    let leads_nowhere = match header.kind {
        RouteType::Unicast => false,
        RouteType::BlackHole => true,
        _ => return Vec::new(),
    };
    let everywhere: IpAddr = if header.address_family == AddressFamily::Inet6 {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    let mut route = FoundRoute {
        table: header.table.into(),
        dst: Prefix {
            address: everywhere,
            length: header.destination_prefix_length,
        },
        gateway: None,
        priority: 0,
        link: 0,
    };
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => route.table = *table,
            RouteAttribute::Priority(priority) => route.priority = *priority,
            RouteAttribute::Destination(found) => {
                route.dst.address = ip(found).unwrap_or(everywhere);
            }
            RouteAttribute::Gateway(found) => route.gateway = ip(found),
            RouteAttribute::Oif(index) if !leads_nowhere => route.link = *index,
            RouteAttribute::MultiPath(all) => {
                for hop in all {
                    let gateway = hop.attributes.iter().find_map(|attribute| match attribute {
                        RouteAttribute::Gateway(found) => ip(found),
                        _ => None,
                    });
                    hops.push((hop.interface_index, gateway));
                }
            }
            _ => {}
        }
    }
    if hops.is_empty() {
        return vec![route];
    }
    let of_hop = |(link, gateway)| FoundRoute {
        link,
        gateway,
        ..route.clone()
    };
    hops.into_iter().map(of_hop).collect()
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}
