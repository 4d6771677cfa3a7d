//! DHCPv4 messages (RFC 2131, section 2). dhcproto encodes requests and splits answers into header and options.
//!
//! The values of options are read here. dhcproto 0.15 drops every option behind one that it cannot read. With overflow
//! checks, it panics on some that are too short.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use corten_types::prefix::Prefix;
use dhcproto::Encodable as _;
use dhcproto::v4::borrowed::{DhcpOptionIterator, Message as Borrowed};
use dhcproto::v4::{
    DhcpOption, MIN_PACKET_SIZE, Message, MessageType, Opcode, OptionCode,
    borrowed::DhcpOption as Raw,
};

use crate::Asking;
use crate::options::{domains, is_of_one};

/// Type of a client identifier that consists of a four-byte IAID and a DUID (RFC 4361, section 6.1).
const DUID_CLIENT_ID: u8 = 255;
/// Hardware type of Ethernet (IANA, "Hardware Types").
const ETHERNET: u8 = 1;
/// Length limit of an answer in bytes: Ethernet's 1500, less the headers of IPv4 and UDP.
const LONGEST: u16 = 1472;
/// The classless routes of servers from before RFC 3442; same format (MS-DHCPE, section 2.2.9).
const OLD_CLASSLESS_ROUTES: u8 = 249;
/// Places of the fields that may hold options, too (RFC 2132, section 9.3).
const FILE: std::ops::Range<usize> = 108..236;
const SERVER_NAME: std::ops::Range<usize> = 44..108;
/// Requested options. A server that has little room sends the first ones; routes go before the router (RFC 3442).
const WANTED: [OptionCode; 13] = [
    OptionCode::SubnetMask,
    OptionCode::ClasslessStaticRoute,
    OptionCode::Router,
    OptionCode::DomainNameServer,
    OptionCode::AddressLeaseTime,
    OptionCode::Renewal,
    OptionCode::Rebinding,
    OptionCode::InterfaceMtu,
    OptionCode::NtpServers,
    OptionCode::Hostname,
    OptionCode::DomainName,
    OptionCode::DomainSearch,
    OptionCode::StaticRoutingTable,
];

/// Identity of the client for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub mac: [u8; 6],
    /// The client identifier (RFC 2132, section 9.14).
    pub client: Option<Vec<u8>>,
}

impl Identity {
    pub fn new(asking: &Asking, mac: [u8; 6]) -> Identity {
        let client = match asking.dhcp.client_identifier.client_identifier {
            "none" => None,
            "duid" => Some(
                [
                    &[DUID_CLIENT_ID][..],
                    &asking.iaid.to_be_bytes(),
                    &asking.duid,
                ]
                .concat(),
            ),
            _ => Some([&[ETHERNET][..], &mac].concat()),
        };
        Identity { mac, client }
    }
}

/// A client's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    pub kind: MessageType,
    /// Transaction id, which matches answers to the message.
    pub xid: u32,
    /// Seconds since the client began to ask.
    pub seconds: u16,
    /// Address that the client has (`ciaddr`).
    pub own: Option<Ipv4Addr>,
    /// Address that it requests or declines.
    pub requested: Option<Ipv4Addr>,
    /// Server that the message is for.
    pub server: Option<Ipv4Addr>,
    /// The node's name.
    pub name: Option<String>,
}

impl Question {
    pub fn new(kind: MessageType, xid: u32) -> Question {
        Question {
            kind,
            xid,
            seconds: 0,
            own: None,
            requested: None,
            server: None,
            name: None,
        }
    }

    pub fn bytes(self, identity: &Identity) -> Vec<u8> {
        let own = self.own.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let none = Ipv4Addr::UNSPECIFIED;
        let mut message = Message::new_with_id(self.xid, own, none, none, none, &identity.mac);
        message.set_secs(self.seconds);
        let options = message.opts_mut();
        options.insert(DhcpOption::MessageType(self.kind));
        if let Some(client) = &identity.client {
            options.insert(DhcpOption::ClientIdentifier(client.clone()));
        }
        if let Some(address) = self.requested {
            options.insert(DhcpOption::RequestedIpAddress(address));
        }
        if let Some(server) = self.server {
            options.insert(DhcpOption::ServerIdentifier(server));
        }
        if let Some(name) = self.name {
            options.insert(DhcpOption::Hostname(name));
        }
        if self.kind == MessageType::Discover {
            options.insert(DhcpOption::RapidCommit);
        }
        if self.kind != MessageType::Decline {
            let mut wanted = WANTED.to_vec();
            wanted.push(OptionCode::Unknown(OLD_CLASSLESS_ROUTES));
            options.insert(DhcpOption::ParameterRequestList(wanted));
            options.insert(DhcpOption::MaxMessageSize(LONGEST));
        }
        // Only a message beyond dhcproto's limits fails, and this one has a few short options.
        let mut bytes = message.to_vec().unwrap_or_default();
        // Some relays drop messages that are shorter than those of BOOTP (RFC 1542, section 2.1).
        bytes.resize(bytes.len().max(MIN_PACKET_SIZE), 0);
        bytes
    }
}

/// Kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Offer,
    Ack,
    Nak,
}

/// A server's message to this client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub kind: Kind,
    pub xid: u32,
    /// Whether the server skipped the offer (RFC 4039).
    pub is_rapid: bool,
    /// The offered or assigned lease; a refusal has only the server.
    pub lease: Lease,
}

/// A lease, as the server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub address: Ipv4Addr,
    pub server: Ipv4Addr,
    pub mask: Option<Ipv4Addr>,
    pub routers: Vec<Ipv4Addr>,
    /// Classless routes; where present, they replace `routers` and `old_routes` (RFC 3442).
    pub routes: Option<Vec<(Prefix, Ipv4Addr)>>,
    /// Routes to networks of classes.
    pub old_routes: Vec<(Prefix, Ipv4Addr)>,
    pub name_servers: Vec<Ipv4Addr>,
    pub time_servers: Vec<Ipv4Addr>,
    pub hostname: Option<String>,
    pub domain: Option<String>,
    pub search: Vec<String>,
    pub mtu: Option<u16>,
    /// Times in seconds: end, T1, T2.
    pub time: Option<u32>,
    pub renew: Option<u32>,
    pub rebind: Option<u32>,
}

impl Lease {
    pub fn new(address: Ipv4Addr, server: Ipv4Addr) -> Lease {
        Lease {
            address,
            server,
            mask: None,
            routers: Vec::new(),
            routes: None,
            old_routes: Vec::new(),
            name_servers: Vec::new(),
            time_servers: Vec::new(),
            hostname: None,
            domain: None,
            search: Vec::new(),
            mtu: None,
            time: None,
            renew: None,
            rebind: None,
        }
    }
}

impl Answer {
    /// Parses a server's message; `None` if it is malformed or for another client.
    pub fn read(bytes: &[u8], identity: &Identity) -> Option<Answer> {
        let message = Borrowed::new(bytes).ok()?;
        let is_ours = message.opcode() == Opcode::BootReply
            && usize::from(message.hlen()) == identity.mac.len()
            && message.chaddr() == identity.mac;
        if !is_ours {
            return None;
        }
        let options = Options::of(&message, bytes);
        let kind = match options.get(OptionCode::MessageType) {
            [2] => Kind::Offer,
            [5] => Kind::Ack,
            [6] => Kind::Nak,
            _ => return None,
        };
        // A server may repeat the identifier of the client that it answers (RFC 6842).
        let client = options.get(OptionCode::ClientIdentifier);
        if let Some(own) = identity.client.as_deref()
            && !client.is_empty()
            && client != own
        {
            return None;
        }
        let server = options.address(OptionCode::ServerIdentifier)?;
        is_of_one(server.into()).then(|| Answer {
            kind,
            xid: message.xid(),
            is_rapid: options.0.contains_key(&u8::from(OptionCode::RapidCommit)),
            lease: options.lease(message.yiaddr(), server),
        })
    }
}

/// Values of options by their code. An option in several parts is one value (RFC 3396).
struct Options(BTreeMap<u8, Vec<u8>>);

impl Options {
    fn of(message: &Borrowed<'_>, bytes: &[u8]) -> Options {
        let mut options = Options(BTreeMap::new());
        options.add(message.opts());
        let place = |place| DhcpOptionIterator::new(bytes.get(place).unwrap_or_default());
        let overload = match options.get(OptionCode::OptionOverload) {
            [overload] => *overload,
            _ => 0,
        };
        if overload & 1 != 0 {
            options.add(place(FILE));
        }
        if overload & 2 != 0 {
            options.add(place(SERVER_NAME));
        }
        options
    }

    fn add<'a>(&mut self, found: impl Iterator<Item = Raw<'a>>) {
        for option in found {
            let value = self.0.entry(option.code().into()).or_default();
            value.extend_from_slice(option.data());
        }
    }

    fn get(&self, code: impl Into<u8>) -> &[u8] {
        self.0
            .get(&code.into())
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    fn number(&self, code: OptionCode) -> Option<u32> {
        Some(u32::from_be_bytes(self.get(code).try_into().ok()?))
    }

    fn address(&self, code: OptionCode) -> Option<Ipv4Addr> {
        self.number(code).map(Ipv4Addr::from_bits)
    }

    /// Addresses that a host can have.
    fn addresses(&self, code: OptionCode) -> Vec<Ipv4Addr> {
        let chunks = self.get(code).as_chunks::<4>().0.iter();
        let addresses = chunks.map(|octets| Ipv4Addr::from(*octets));
        addresses
            .filter(|address| is_of_one((*address).into()))
            .collect()
    }

    /// Text without the zero bytes at its end that some servers send.
    fn text(&self, code: OptionCode) -> Option<String> {
        let text = str::from_utf8(self.get(code)).ok()?.trim_end_matches('\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    fn lease(&self, address: Ipv4Addr, server: Ipv4Addr) -> Lease {
        let routes = classless(self.get(OptionCode::ClasslessStaticRoute))
            .or_else(|| classless(self.get(OLD_CLASSLESS_ROUTES)));
        let old_routes = self
            .get(OptionCode::StaticRoutingTable)
            .as_chunks::<8>()
            .0
            .iter();
        let mtu = <[u8; 2]>::try_from(self.get(OptionCode::InterfaceMtu));
        Lease {
            mask: self.address(OptionCode::SubnetMask),
            routers: self.addresses(OptionCode::Router),
            routes,
            old_routes: old_routes.filter_map(classful).collect(),
            name_servers: self.addresses(OptionCode::DomainNameServer),
            time_servers: self.addresses(OptionCode::NtpServers),
            hostname: self.text(OptionCode::Hostname),
            domain: self.text(OptionCode::DomainName),
            search: domains(self.get(OptionCode::DomainSearch)),
            mtu: mtu.ok().map(u16::from_be_bytes),
            time: self.number(OptionCode::AddressLeaseTime),
            renew: self.number(OptionCode::Renewal),
            rebind: self.number(OptionCode::Rebinding),
            ..Lease::new(address, server)
        }
    }
}

/// Classless routes (RFC 3442); `None` if there is none or one is malformed.
fn classless(mut bytes: &[u8]) -> Option<Vec<(Prefix, Ipv4Addr)>> {
    let mut routes = Vec::new();
    while let Some((length, rest)) = bytes.split_first() {
        let (significant, rest) = rest.split_at_checked(usize::from(length.div_ceil(8)))?;
        let mut destination = [0; 4];
        destination
            .get_mut(..significant.len())?
            .copy_from_slice(significant);
        let (router, rest) = rest.split_first_chunk::<4>()?;
        let network = Prefix {
            address: Ipv4Addr::from(destination).into(),
            length: *length,
        };
        routes.push((network, Ipv4Addr::from(*router)));
        bytes = rest;
    }
    let is_whole = routes.iter().all(|(network, _)| network.length <= 32);
    (is_whole && !routes.is_empty()).then_some(routes)
}

/// A route to a network of class A, B or C, or to a host (RFC 2132, section 5.8). The destination 0.0.0.0 is illegal.
fn classful(bytes: &[u8; 8]) -> Option<(Prefix, Ipv4Addr)> {
    let [a, b, c, d, router @ ..] = *bytes;
    let address = Ipv4Addr::new(a, b, c, d);
    let router = Ipv4Addr::from(router);
    let length = match a {
        1..=127 => 8,
        128..=191 => 16,
        192..=223 => 24,
        _ => return None,
    };
    let network = Prefix {
        address: address.into(),
        length,
    };
    let network = if network.network() == network {
        network
    } else {
        Prefix::host(address.into())
    };
    is_of_one(router.into()).then_some((network, router))
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
