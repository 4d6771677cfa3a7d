//! DHCPv6 messages (RFC 8415, section 8).
//!
//! They are parsed here because of two faults of dhcproto 0.15. It panics on options that are too short when overflow
//! checks are on, and it drops a status code that it cannot parse.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use crate::options::{domains, is_of_one};

/// Message types (RFC 8415, section 7.3).
pub(super) const SOLICIT: u8 = 1;
pub(super) const ADVERTISE: u8 = 2;
pub(super) const REQUEST: u8 = 3;
pub(super) const RENEW: u8 = 5;
pub(super) const REBIND: u8 = 6;
pub(super) const REPLY: u8 = 7;

/// Option codes (RFC 8415, section 21; RFC 3646; RFC 5908).
const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const IA_ADDRESS: u16 = 5;
const OPTION_REQUEST: u16 = 6;
const ELAPSED_TIME: u16 = 8;
const STATUS: u16 = 13;
const NAME_SERVERS: u16 = 23;
const SEARCH_DOMAINS: u16 = 24;
const TIME_SERVERS: u16 = 56;
/// Time servers within their option: by address and by name (RFC 5908, section 4).
const TIME_SERVER_ADDRESS: u16 = 1;
const TIME_SERVER_NAME: u16 = 3;
/// Options to request: name servers, search domains and time servers.
const WANTED: [u8; 6] = [0, 23, 0, 24, 0, 56];
/// Length limit of a DUID in bytes (RFC 8415, section 11.1).
const LONGEST_DUID: usize = 130;

/// Identity of the client and its link for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    pub duid: Vec<u8>,
    pub iaid: u32,
}

/// A client's message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question<'a> {
    pub kind: u8,
    /// Transaction id, which matches answers to the message.
    pub id: [u8; 3],
    /// DUID of the server that the message is for.
    pub server: Option<&'a [u8]>,
    /// Address to request.
    pub address: Option<Ipv6Addr>,
    /// Time since the first message of the exchange.
    pub since: Duration,
}

impl Question<'_> {
    pub fn bytes(&self, identity: &Identity) -> Vec<u8> {
        let mut message = vec![self.kind];
        message.extend(self.id);
        option(&mut message, CLIENT_ID, &identity.duid);
        if let Some(server) = self.server {
            option(&mut message, SERVER_ID, server);
        }
        let hundredths = u16::try_from(self.since.as_millis() / 10).unwrap_or(u16::MAX);
        option(&mut message, ELAPSED_TIME, &hundredths.to_be_bytes());
        option(&mut message, OPTION_REQUEST, &WANTED);
        // T1 and T2 are the server's choice.
        let mut binding = [&identity.iaid.to_be_bytes()[..], &[0; 8]].concat();
        if let Some(address) = self.address {
            let address = [&address.octets()[..], &[0; 8]].concat();
            option(&mut binding, IA_ADDRESS, &address);
        }
        option(&mut message, IA_NA, &binding);
        message
    }
}

/// A lease; times in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lease {
    pub address: Ipv6Addr,
    /// DUID of the server.
    pub server: Vec<u8>,
    /// T1 and T2; 0 leaves the choice to the client.
    pub renew: u32,
    pub rebind: u32,
    pub preferred: u32,
    pub valid: u32,
    pub name_servers: Vec<Ipv6Addr>,
    pub search: Vec<String>,
    /// Addresses and names.
    pub time_servers: Vec<String>,
}

/// A server's message to this client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub kind: u8,
    pub id: [u8; 3],
    /// DUID of the server.
    pub server: Vec<u8>,
    /// The offered or assigned lease; `None` if the server gives no usable address.
    pub lease: Option<Lease>,
    /// Addresses that the client must not use any more: their lifetime is zero (RFC 8415, section 18.2.10.1).
    pub withdrawn: Vec<Ipv6Addr>,
}

impl Answer {
    /// Parses a server's message; `None` if it is malformed or for another client.
    pub fn read(message: &[u8], identity: &Identity) -> Option<Answer> {
        let ([kind, id @ ..], rest) = message.split_first_chunk::<4>()?;
        let server = value(rest, SERVER_ID)?;
        let is_ours = [ADVERTISE, REPLY].contains(kind)
            && value(rest, CLIENT_ID) == Some(&identity.duid)
            && (1..=LONGEST_DUID).contains(&server.len());
        if !is_ours {
            return None;
        }
        let mut answer = Answer {
            kind: *kind,
            id: *id,
            server: server.to_owned(),
            lease: None,
            withdrawn: Vec::new(),
        };
        if succeeded(rest) {
            let bindings = options(rest).filter(|(code, _)| *code == IA_NA);
            for (_, binding) in bindings {
                answer.take(binding, identity.iaid);
            }
            if let Some(lease) = &mut answer.lease {
                lease.describe(rest);
            }
        }
        Some(answer)
    }

    /// Reads an IA_NA option (RFC 8415, section 21.4). The first usable address counts.
    fn take(&mut self, mut bytes: &[u8], own: u32) {
        let [Some(iaid), Some(renew), Some(rebind)] = [(); 3].map(|()| number(&mut bytes)) else {
            return;
        };
        let is_whole = iaid == own && (rebind == 0 || renew <= rebind) && succeeded(bytes);
        let found = options(bytes).filter(|(code, _)| *code == IA_ADDRESS && is_whole);
        for (address, preferred, valid) in found.filter_map(|(_, bytes)| address(bytes)) {
            if valid == 0 {
                self.withdrawn.push(address);
            } else if self.lease.is_none() && (1..=valid).contains(&preferred) {
                self.lease = Some(Lease {
                    address,
                    server: self.server.clone(),
                    renew,
                    rebind,
                    preferred,
                    valid,
                    name_servers: Vec::new(),
                    search: Vec::new(),
                    time_servers: Vec::new(),
                });
            }
        }
    }
}

impl Lease {
    /// Reads the settings beside the address.
    fn describe(&mut self, message: &[u8]) {
        let servers = value(message, NAME_SERVERS).unwrap_or_default();
        self.name_servers = addresses(servers).collect();
        self.search = domains(value(message, SEARCH_DOMAINS).unwrap_or_default());
        for (code, server) in options(value(message, TIME_SERVERS).unwrap_or_default()) {
            match code {
                TIME_SERVER_ADDRESS => {
                    self.time_servers
                        .extend(addresses(server).map(|server| server.to_string()));
                }
                TIME_SERVER_NAME => self.time_servers.extend(domains(server)),
                _ => {}
            }
        }
    }
}

/// Addresses that a host can have.
fn addresses(bytes: &[u8]) -> impl Iterator<Item = Ipv6Addr> {
    let chunks = bytes.as_chunks::<16>().0.iter();
    let addresses = chunks.map(|octets| Ipv6Addr::from(*octets));
    addresses.filter(|address| is_of_one(IpAddr::from(*address)))
}

/// An IA Address option: address, preferred and valid lifetime. `None` if no host can have the address (RFC 8415,
/// section 21.6).
fn address(bytes: &[u8]) -> Option<(Ipv6Addr, u32, u32)> {
    let (octets, mut rest) = bytes.split_first_chunk::<16>()?;
    let address = Ipv6Addr::from(*octets);
    let (preferred, valid) = (number(&mut rest)?, number(&mut rest)?);
    let is_usable = is_of_one(address.into()) && succeeded(rest);
    is_usable.then_some((address, preferred, valid))
}

/// Whether the status code, if any, is success (RFC 8415, section 21.13).
fn succeeded(within: &[u8]) -> bool {
    value(within, STATUS).is_none_or(|status| status.starts_with(&[0, 0]))
}

fn value(within: &[u8], code: u16) -> Option<&[u8]> {
    let mut all = options(within);
    all.find_map(|(found, value)| (found == code).then_some(value))
}

/// Option codes and values, up to the first truncated option (RFC 8415, section 21.1).
fn options(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (code, rest) = bytes.split_first_chunk::<2>()?;
        let (length, rest) = rest.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
        bytes = rest;
        Some((u16::from_be_bytes(*code), value))
    })
}

fn option(message: &mut Vec<u8>, code: u16, value: &[u8]) {
    // Unreachable in practice: every value here is far shorter.
    let Ok(length) = u16::try_from(value.len()) else {
        return;
    };
    message.extend(code.to_be_bytes());
    message.extend(length.to_be_bytes());
    message.extend(value);
}

fn number(bytes: &mut &[u8]) -> Option<u32> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_be_bytes(*number))
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
