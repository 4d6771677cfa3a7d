//! Listens for a server's refusal to renew a lease (DHCPNAK: RFC 2131, section 4.3.2).
//!
//! The server broadcasts it. A socket bound to the client's address does not receive it, and a firewall may drop it, so
//! this module captures frames on the link.

use std::io;
use std::net::Ipv4Addr;

use corten_sys::packet::{Capture, Instruction};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Header lengths in bytes.
const ETHERNET: usize = 14;
const UDP: usize = 8;
/// Offsets of the client's hardware address and of the options in a message (RFC 2131, section 2).
const HARDWARE_ADDRESS: usize = 28;
const OPTIONS: usize = 236;
/// Magic cookie in front of the options (RFC 2131, section 3).
const COOKIE: [u8; 4] = [99, 130, 83, 99];
/// Op code of a server's message.
const REPLY: u8 = 2;
/// Option codes and values (RFC 2132).
const PAD: u8 = 0;
const KIND: u8 = 53;
const SERVER: u8 = 54;
const END: u8 = 255;
const NO: [u8; 1] = [6];
/// Buffer size in bytes: the longest Ethernet frame without jumbo frames.
const LONGEST: usize = 1514;

const fn instruction(code: u16, jump_true: u8, jump_false: u8, operand: u32) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false,
        operand,
    }
}

/// BPF filter for unfragmented IPv4 UDP packets to the DHCP client port (packet(7), linux/filter.h).
const FILTER: [Instruction; 11] = [
    instruction(0x28, 0, 0, 12),
    instruction(0x15, 0, 8, 0x0800),
    instruction(0x30, 0, 0, 23),
    instruction(0x15, 0, 6, 17),
    instruction(0x28, 0, 0, 20),
    instruction(0x45, 4, 0, 0x3fff),
    instruction(0xb1, 0, 0, 14),
    instruction(0x48, 0, 0, 16),
    instruction(0x15, 0, 1, 68),
    instruction(0x06, 0, 0, u32::MAX),
    instruction(0x06, 0, 0, 0),
];

/// Returns when `server` refuses the client with this hardware address, on the link of this index.
///
/// # Errors
/// CAP_NET_RAW is missing, or the link is down or gone.
#[expect(
    deprecated,
    reason = "its successor is unsafe; a capture keeps its descriptor as long as it lives"
)]
pub async fn heard(index: u32, mac: &[u8], server: Ipv4Addr) -> io::Result<()> {
    let capture = Capture::start(index, false, &FILTER)?;
    let socket = AsyncFd::with_interest(capture, Interest::READABLE)?;
    let mut frame = vec![0; LONGEST];
    loop {
        let mut ready = socket.readable().await?;
        match socket.get_ref().next(&mut frame, false)? {
            Some(packet) => {
                let frame = frame.get(..packet.captured).unwrap_or_default();
                if is_no(frame, mac, server).unwrap_or(false) {
                    return Ok(());
                }
            }
            None => ready.clear_ready(),
        }
    }
}

/// Whether a frame is the refusal; `None` if it is malformed.
fn is_no(frame: &[u8], mac: &[u8], server: Ipv4Addr) -> Option<bool> {
    let words = frame.get(ETHERNET)? & 0xf;
    let message = frame.get(ETHERNET + usize::from(words) * 4 + UDP..)?;
    let is_to_us = *message.first()? == REPLY && message.get(HARDWARE_ADDRESS..)?.starts_with(mac);
    let mut options = message.get(OPTIONS..)?.strip_prefix(&COOKIE)?;
    let (mut kind, mut from): (&[u8], &[u8]) = (&[], &[]);
    loop {
        match options {
            [] | [END, ..] => break,
            [PAD, rest @ ..] => options = rest,
            [code, length, rest @ ..] => {
                let (value, rest) = rest.split_at_checked(usize::from(*length))?;
                match *code {
                    KIND => kind = value,
                    SERVER => from = value,
                    _ => {}
                }
                options = rest;
            }
            [_] => return None,
        }
    }
    Some(is_to_us && kind == NO && from == server.octets())
}

#[cfg(test)]
mod tests {
    use corten_corpus::{hostile, samples};
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn frame(options: &[u8]) -> Vec<u8> {
        let mut message = vec![0; OPTIONS];
        message[0] = REPLY;
        message[HARDWARE_ADDRESS..HARDWARE_ADDRESS + 6].copy_from_slice(&MAC);
        // An IPv4 header of five 32-bit words.
        let mut headers = vec![0; ETHERNET + 20 + UDP];
        headers[ETHERNET] = 0x45;
        [&*headers, &*message, &COOKIE, options].concat()
    }

    #[test]
    fn only_a_nak_of_the_own_server_to_this_client_is_accepted() {
        let no = frame(&[0, 54, 4, 10, 0, 0, 1, 53, 1, 6, 255, 53]);
        assert_eq!(is_no(&no, &MAC, SERVER_ADDRESS), Some(true));
        let other = Ipv4Addr::new(10, 0, 0, 2);
        assert_eq!(is_no(&no, &MAC, other), Some(false));
        let other = [2, 0, 0, 0, 0, 2];
        assert_eq!(is_no(&no, &other, SERVER_ADDRESS), Some(false));
        let yes = frame(&[53, 1, 5, 54, 4, 10, 0, 0, 1, 255]);
        assert_eq!(is_no(&yes, &MAC, SERVER_ADDRESS), Some(false));
        let nobodys = frame(&[53, 1, 6, 255]);
        assert_eq!(is_no(&nobodys, &MAC, SERVER_ADDRESS), Some(false));
    }

    /// A server's message with Ethernet, IPv4 and UDP headers.
    fn framed(message: &[u8]) -> Vec<u8> {
        let mut headers = vec![0; ETHERNET + 20 + UDP];
        headers[ETHERNET] = 0x45;
        [&*headers, message].concat()
    }

    #[test]
    fn only_the_nak_sample_is_a_nak() {
        for sample in samples("dhcpv4") {
            let found = is_no(&framed(&sample.bytes), &MAC, SERVER_ADDRESS);
            assert_eq!(found, Some(sample.name == "nak"), "{}", sample.name);
        }
    }

    proptest! {
        #[test]
        fn hostile_messages_are_a_nak_only_in_the_defined_form(message in hostile("dhcpv4"), cut in 0_usize..60) {
            let frame = framed(&message);
            let found = is_no(&frame, &MAC, SERVER_ADDRESS);
            // Only our address and only this message type match.
            if found == Some(true) {
                prop_assert!(message[HARDWARE_ADDRESS..].starts_with(&MAC));
                prop_assert!(message.windows(3).any(|option| option == [KIND, 1, 6]));
            }
            is_no(frame.get(cut..).unwrap_or_default(), &MAC, SERVER_ADDRESS);
        }
    }

    #[test]
    fn hostile_frames_are_no_nak() {
        let no = frame(&[54, 4, 10, 0, 0, 1, 53, 1, 6]);
        for end in 0..no.len() {
            assert_ne!(is_no(&no[..end], &MAC, SERVER_ADDRESS), Some(true), "{end}");
        }
        for at in 0..no.len() {
            let mut broken = no.clone();
            broken[at] = 0xff;
            is_no(&broken, &MAC, SERVER_ADDRESS);
        }
        assert_eq!(is_no(&frame(&[53, 200, 6]), &MAC, SERVER_ADDRESS), None);
        assert_eq!(is_no(&frame(&[53]), &MAC, SERVER_ADDRESS), None);
    }
}
