//! Obtains a DHCPv6 lease: Solicit, Advertise, Request, Reply (RFC 8415, sections 18.2.1 and 18.2.2). mozim takes over
//! once there is a lease.
//!
//! mozim makes up a new IAID for each exchange and requests no address, so a node would get another address after each
//! boot.
//!
//! The messages are parsed here because of two faults of dhcproto 0.15. It panics on options that are too short when
//! overflow checks are on, and it drops a status code that it cannot parse.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use mozim::{DhcpV6Duid, DhcpV6IaType, DhcpV6Lease};
use tokio::io;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep, timeout};

use super::dhcp::Asking;
use super::lease;

/// Ports and the multicast group of all servers (RFC 8415, sections 7.1 and 7.2).
const CLIENT_PORT: u16 = 546;
const SERVER_PORT: u16 = 547;
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

/// Message types (RFC 8415, section 7.3).
const SOLICIT: u8 = 1;
const ADVERTISE: u8 = 2;
const REQUEST: u8 = 3;
const REPLY: u8 = 7;

/// Option codes (RFC 8415, section 21).
const CLIENT_ID: u16 = 1;
const SERVER_ID: u16 = 2;
const IA_NA: u16 = 3;
const IA_ADDRESS: u16 = 5;
const OPTION_REQUEST: u16 = 6;
const ELAPSED_TIME: u16 = 8;
const STATUS: u16 = 13;
/// Options to request: name servers, search domains (RFC 3646) and time servers (RFC 5908).
const WANTED: [u8; 6] = [0, 23, 0, 24, 0, 56];
/// Length limit of a DUID in bytes (RFC 8415, section 11.1).
const LONGEST_DUID: usize = 130;

/// Limit of the random delay before the first message, so that machines which start together spread their requests. The
/// RFC's limit of one second is long for a node that boots.
const MOST_DELAY_MS: u32 = 200;
/// Timeout of the first message; it doubles with each retransmission (RFC 8415, section 7.6).
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Requests to the server that made an offer, within 15 s; then all servers are solicited again.
const REQUESTS: u32 = 4;
/// Size limit of one packet in bytes.
const LONGEST_MESSAGE: usize = 1500;

/// An address that a server offers or assigns; times in seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offer {
    /// DUID of the server.
    server: Vec<u8>,
    address: Ipv6Addr,
    /// T2, the time to rebind; 0 leaves the choice to the client.
    rebind: u32,
    preferred: u32,
    valid: u32,
}

/// A Solicit or Request message, retransmitted until it is answered.
struct Question<'a> {
    kind: u8,
    /// Transaction id, which matches answers to the message.
    id: [u8; 3],
    duid: &'a [u8],
    iaid: u32,
    /// DUID of the server that made an offer.
    server: Option<&'a [u8]>,
    /// Address to request.
    address: Option<Ipv6Addr>,
}

/// Solicits a lease on a link until a server gives one. `former` is the address the link had before; the server is
/// asked to assign it again.
///
/// The returned lease is due for renewal after one second: mozim learns the other options only from a reply that it
/// parses itself.
///
/// # Errors
/// No socket can be bound to `source`.
pub async fn obtain(
    asking: &Asking,
    source: Ipv6Addr,
    former: Option<Ipv6Addr>,
) -> io::Result<DhcpV6Lease> {
    let socket = UdpSocket::bind(SocketAddrV6::new(source, CLIENT_PORT, 0, asking.index)).await?;
    let servers = SocketAddrV6::new(SERVERS, SERVER_PORT, 0, asking.index);
    let delay = random().checked_rem(MOST_DELAY_MS).unwrap_or_default();
    sleep(Duration::from_millis(delay.into())).await;
    loop {
        let mut question = Question {
            kind: SOLICIT,
            id: new_id(),
            duid: &asking.duid,
            iaid: asking.iaid,
            server: None,
            address: former,
        };
        let Some(offer) = question.answered(&socket, servers, u32::MAX).await? else {
            continue;
        };
        question.kind = REQUEST;
        question.id = new_id();
        question.server = Some(&offer.server);
        question.address = Some(offer.address);
        if let Some(given) = question.answered(&socket, servers, REQUESTS).await? {
            return Ok(given.lease(asking));
        }
    }
}

impl Question<'_> {
    /// Sends the message up to `times` times, with exponential back-off, until a usable answer arrives.
    async fn answered(
        &self,
        socket: &UdpSocket,
        servers: SocketAddrV6,
        times: u32,
    ) -> io::Result<Option<Offer>> {
        let began = Instant::now();
        let mut wait = FIRST_WAIT;
        for _ in 0..times {
            // A failed send counts as a lost packet: the link may be gone for a moment.
            let _ = socket
                .send_to(&self.message(began.elapsed()), servers)
                .await;
            // The timeout varies by 10 % either way.
            let patience = wait * (900 + random() % 200) / 1000;
            match timeout(patience, self.answer(socket)).await {
                Ok(answer) => return answer.map(Some),
                Err(_) => wait = (wait * 2).min(LONGEST_WAIT),
            }
        }
        Ok(None)
    }

    /// Returns the first usable answer and ignores all other packets.
    async fn answer(&self, socket: &UdpSocket) -> io::Result<Offer> {
        let mut buffer = vec![0; LONGEST_MESSAGE];
        loop {
            let (length, _) = socket.recv_from(&mut buffer).await?;
            if let Some(offer) = self.read(buffer.get(..length).unwrap_or_default()) {
                return Ok(offer);
            }
        }
    }

    fn message(&self, since: Duration) -> Vec<u8> {
        let mut message = vec![self.kind];
        message.extend(self.id);
        option(&mut message, CLIENT_ID, self.duid);
        if let Some(server) = self.server {
            option(&mut message, SERVER_ID, server);
        }
        let hundredths = u16::try_from(since.as_millis() / 10).unwrap_or(u16::MAX);
        option(&mut message, ELAPSED_TIME, &hundredths.to_be_bytes());
        option(&mut message, OPTION_REQUEST, &WANTED);
        // T1 and T2 are the server's choice.
        let mut binding = [&self.iaid.to_be_bytes()[..], &[0; 8]].concat();
        if let Some(address) = self.address {
            let address = [&address.octets()[..], &[0; 8]].concat();
            option(&mut binding, IA_ADDRESS, &address);
        }
        option(&mut message, IA_NA, &binding);
        message
    }

    /// Parses an answer to this message; `None` when it belongs to another exchange or assigns nothing.
    fn read(&self, message: &[u8]) -> Option<Offer> {
        let kind = if self.kind == SOLICIT {
            ADVERTISE
        } else {
            REPLY
        };
        let ([found, id @ ..], rest) = message.split_first_chunk::<4>()?;
        if *found != kind || *id != self.id {
            return None;
        }
        let server = value(rest, SERVER_ID)?;
        let is_answer = value(rest, CLIENT_ID) == Some(self.duid)
            && (1..=LONGEST_DUID).contains(&server.len())
            && self.server.is_none_or(|asked| asked == server)
            && succeeded(rest);
        if !is_answer {
            return None;
        }
        let mut bindings = options(rest).filter(|(code, _)| *code == IA_NA);
        let (rebind, (address, preferred, valid)) =
            bindings.find_map(|(_, binding)| self.binding(binding))?;
        Some(Offer {
            server: server.to_owned(),
            address,
            rebind,
            preferred,
            valid,
        })
    }

    /// T2 and the first usable address of an IA_NA option (RFC 8415, section 21.4).
    fn binding(&self, mut bytes: &[u8]) -> Option<(u32, (Ipv6Addr, u32, u32))> {
        let iaid = number(&mut bytes)?;
        let (renew, rebind) = (number(&mut bytes)?, number(&mut bytes)?);
        let is_whole = iaid == self.iaid && (rebind == 0 || renew <= rebind) && succeeded(bytes);
        let mut addresses = options(bytes).filter(|(code, _)| *code == IA_ADDRESS && is_whole);
        Some((rebind, addresses.find_map(|(_, bytes)| address(bytes))?))
    }
}

impl Offer {
    fn lease(self, asking: &Asking) -> DhcpV6Lease {
        let rebind = match self.rebind {
            0 => self.preferred / 4 * 3,
            rebind => rebind,
        };
        let mut lease = DhcpV6Lease::default();
        lease.t1_sec = 1;
        lease.t2_sec = rebind.clamp(1, self.valid.max(1));
        lease.preferred_time_sec = self.preferred;
        lease.valid_time_sec = self.valid;
        lease.iaid = asking.iaid;
        lease.ia_type = Some(DhcpV6IaType::NonTemporaryAddresses);
        lease.address = self.address;
        lease.cli_duid = DhcpV6Duid::Raw(asking.duid.clone());
        lease.srv_duid = DhcpV6Duid::Raw(self.server);
        lease
    }
}

/// An IA Address option: address, preferred and valid lifetime. `None` if no host can have the address, or if it has
/// expired (RFC 8415, section 21.6).
fn address(bytes: &[u8]) -> Option<(Ipv6Addr, u32, u32)> {
    let (octets, mut rest) = bytes.split_first_chunk::<16>()?;
    let address = Ipv6Addr::from(*octets);
    let (preferred, valid) = (number(&mut rest)?, number(&mut rest)?);
    let is_usable =
        lease::is_of_one(address.into()) && (1..=valid).contains(&preferred) && succeeded(rest);
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

fn new_id() -> [u8; 3] {
    let [_, id @ ..] = random().to_be_bytes();
    id
}

/// Falls back to zeros when the kernel has no entropy.
fn random() -> u32 {
    let mut bytes = [0; 4];
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    u32::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::slice;

    use corten_corpus::{hostile, sample};
    use proptest::prelude::*;

    use super::*;

    /// DUIDs of the client and the server in the samples.
    static DUID: [u8; 10] = [0, 3, 0, 1, 2, 0, 0, 0, 0, 1];
    static SERVER: [u8; 14] = [0, 1, 0, 1, 0x2f, 0, 0, 0, 2, 0, 0, 0, 0, 9];

    fn question(kind: u8) -> Question<'static> {
        Question {
            kind,
            id: [0x11, 0x22, 0x33],
            duid: &DUID,
            iaid: 1,
            server: (kind == REQUEST).then_some(&SERVER[..]),
            address: Some("fd00::50".parse().unwrap()),
        }
    }

    #[test]
    fn solicit_names_machine_link_and_address() {
        let message = question(REQUEST).message(Duration::from_secs(2));
        assert_eq!(message[..4], [REQUEST, 0x11, 0x22, 0x33]);
        assert_eq!(value(&message[4..], CLIENT_ID), Some(&DUID[..]));
        assert_eq!(value(&message[4..], SERVER_ID), Some(&SERVER[..]));
        assert_eq!(value(&message[4..], ELAPSED_TIME), Some(&[0, 200][..]));
        assert_eq!(value(&message[4..], OPTION_REQUEST), Some(&WANTED[..]));
        let binding = value(&message[4..], IA_NA).unwrap();
        assert_eq!(binding[..12], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let address = value(&binding[12..], IA_ADDRESS).unwrap();
        assert_eq!(address[..2], [0xfd, 0]);
        assert_eq!((address[15], address.len()), (0x50, 24));
        let anything = Question {
            address: None,
            ..question(SOLICIT)
        };
        let message = anything.message(Duration::from_secs(3600));
        assert_eq!(value(&message[4..], SERVER_ID), None);
        assert_eq!(value(&message[4..], ELAPSED_TIME), Some(&[255, 255][..]));
        assert_eq!(value(&message[4..], IA_NA).map(<[u8]>::len), Some(12));
    }

    #[test]
    fn only_a_matching_answer_is_accepted() {
        let offer = Offer {
            server: SERVER.to_vec(),
            address: "fd00::50".parse().unwrap(),
            rebind: 2880,
            preferred: 3600,
            valid: 7200,
        };
        let (advertise, reply) = (sample("dhcpv6", "advertise"), sample("dhcpv6", "reply"));
        assert_eq!(question(SOLICIT).read(&advertise), Some(offer.clone()));
        assert_eq!(question(REQUEST).read(&reply), Some(offer));
        assert_eq!(question(SOLICIT).read(&reply), None);
        assert_eq!(question(REQUEST).read(&advertise), None);
        let other = |change: fn(&mut Question<'static>)| {
            let mut question = question(REQUEST);
            change(&mut question);
            question.read(&reply)
        };
        assert_eq!(other(|question| question.id = [0; 3]), None);
        assert_eq!(other(|question| question.iaid = 2), None);
        assert_eq!(other(|question| question.duid = &SERVER), None);
        assert_eq!(other(|question| question.server = Some(&DUID)), None);
    }

    /// A reply whose IA_NA holds the `inner` options.
    fn reply(
        renew: u32,
        rebind: u32,
        inner: &[(u16, Vec<u8>)],
        outer: &[(u16, Vec<u8>)],
    ) -> Vec<u8> {
        let mut message = vec![REPLY, 0x11, 0x22, 0x33];
        option(&mut message, CLIENT_ID, &DUID);
        option(&mut message, SERVER_ID, &SERVER);
        let mut binding: Vec<u8> = [1, renew, rebind]
            .into_iter()
            .flat_map(u32::to_be_bytes)
            .collect();
        for (code, value) in inner {
            option(&mut binding, *code, value);
        }
        option(&mut message, IA_NA, &binding);
        for (code, value) in outer {
            option(&mut message, *code, value);
        }
        message
    }

    fn given(address: &str, preferred: u32, valid: u32) -> (u16, Vec<u8>) {
        let address: Ipv6Addr = address.parse().unwrap();
        let times = [preferred, valid].into_iter().flat_map(u32::to_be_bytes);
        let value = address.octets().into_iter().chain(times).collect();
        (IA_ADDRESS, value)
    }

    #[test]
    fn answer_without_a_usable_address_is_ignored() {
        let good = given("fd00::50", 60, 120);
        let one = slice::from_ref(&good);
        let no_addresses = (STATUS, vec![0, 2]);
        let read = |message: &[u8]| question(REQUEST).read(message).map(|offer| offer.address);
        let address = Some("fd00::50".parse().unwrap());
        assert_eq!(read(&reply(1, 2, one, &[])), address);
        let useless = [
            given("::", 60, 120),
            given("ff02::1", 60, 120),
            good.clone(),
        ];
        assert_eq!(read(&reply(0, 0, &useless, &[])), address);
        for message in [
            reply(1, 2, &[], &[]),
            reply(2, 1, one, &[]),
            reply(1, 2, &[given("fd00::50", 0, 0)], &[]),
            reply(1, 2, &[given("fd00::50", 121, 120)], &[]),
            reply(1, 2, &[good.clone(), no_addresses.clone()], &[]),
            reply(1, 2, one, &[no_addresses]),
            reply(1, 2, one, &[(STATUS, vec![0])]),
        ] {
            assert_eq!(read(&message), None, "{message:?}");
        }
    }

    proptest! {
        #[test]
        fn hostile_answers_give_a_valid_lease_or_none(bytes in hostile("dhcpv6")) {
            for question in [question(SOLICIT), question(REQUEST)] {
                let Some(offer) = question.read(&bytes) else { continue };
                prop_assert!((1..=LONGEST_DUID).contains(&offer.server.len()));
                prop_assert!((1..=offer.valid).contains(&offer.preferred));
                let asking = Asking { duid: DUID.to_vec(), iaid: 1, ..Asking::default() };
                let lease = offer.lease(&asking);
                prop_assert!(lease::is_of_one(lease.address.into()));
                prop_assert!((lease.t1_sec..=lease.valid_time_sec).contains(&lease.t2_sec));
            }
        }
    }
}
