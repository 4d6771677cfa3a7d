//! Ethernet frames of a DHCPv4 client, for as long as its link has no address: messages and ARP probes (RFC 5227).

use std::net::Ipv4Addr;

use corten_sys::packet::Instruction;
use dhcproto::v4::{CLIENT_PORT, SERVER_PORT};
use etherparse::{
    ArpEthIpv4Packet, ArpOperation, ArpPacketSlice, EtherType, IpNumber, Ipv4HeaderSlice,
    PacketBuilder, UdpHeader,
};

/// Length limit of a frame in bytes: Ethernet's, without jumbo frames.
pub(super) const LONGEST: usize = 1514;
const BROADCAST: [u8; 6] = [0xff; 6];
const HEADER: usize = 14;
/// Hop limit of a message; relays send it on as one of their own.
const HOPS: u8 = 64;
/// Word of a BPF program that holds whether a packet has a VLAN tag (linux/filter.h, `SKF_AD_VLAN_TAG_PRESENT`). Tagged
/// packets are for another link.
const TAGGED: u32 = 0xffff_f030;

const fn instruction(code: u16, jump_true: u8, jump_false: u8, operand: u32) -> Instruction {
    Instruction {
        code,
        jump_true,
        jump_false,
        operand,
    }
}

/// BPF filter for unfragmented IPv4 UDP packets to the DHCP client port (packet(7), linux/filter.h).
pub(super) const ANSWERS: [Instruction; 13] = [
    instruction(0x20, 0, 0, TAGGED),
    instruction(0x15, 0, 10, 0),
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

/// BPF filter for ARP packets.
pub(super) const CLAIMS: [Instruction; 6] = [
    instruction(0x20, 0, 0, TAGGED),
    instruction(0x15, 0, 3, 0),
    instruction(0x28, 0, 0, 12),
    instruction(0x15, 0, 1, 0x0806),
    instruction(0x06, 0, 0, u32::MAX),
    instruction(0x06, 0, 0, 0),
];

/// The frame that broadcasts a message.
pub(super) fn broadcast(mac: [u8; 6], source: Ipv4Addr, message: &[u8]) -> Option<Vec<u8>> {
    let everybody = Ipv4Addr::BROADCAST.octets();
    let headers = PacketBuilder::ethernet2(mac, BROADCAST)
        .ipv4(source.octets(), everybody, HOPS)
        .udp(CLIENT_PORT, SERVER_PORT);
    let mut frame = Vec::with_capacity(headers.size(message.len()));
    headers.write(&mut frame, message).ok()?;
    Some(frame)
}

/// The frame that asks whether a host has this address (RFC 5227, section 2.1.1).
pub(super) fn probe(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let packet = ArpEthIpv4Packet {
        operation: ArpOperation::REQUEST,
        sender_mac: mac,
        sender_ipv4: [0; 4],
        target_mac: [0; 6],
        target_ipv4: address.octets(),
    };
    let kind = EtherType::ARP.0.to_be_bytes();
    [&BROADCAST[..], &mac, &kind, &packet.to_bytes()].concat()
}

/// The content behind the Ethernet header, if it is of this type.
fn content(frame: &[u8], wanted: EtherType) -> Option<&[u8]> {
    let (header, content) = frame.split_at_checked(HEADER)?;
    let kind = header.last_chunk()?;
    (u16::from_be_bytes(*kind) == wanted.0).then_some(content)
}

/// The message in a frame for the DHCP client port. `None` if the frame is none, is cut off, or has a wrong checksum.
pub(super) fn message(frame: &[u8], has_checksum: bool) -> Option<&[u8]> {
    let packet = content(frame, EtherType::IPV4)?;
    let header = Ipv4HeaderSlice::from_slice(packet).ok()?;
    let is_whole = header.protocol() == IpNumber::UDP
        && !header.is_fragmenting_payload()
        && header.to_header().calc_header_checksum() == header.header_checksum();
    let datagram = packet.get(header.slice().len()..header.total_len().into())?;
    let (udp, rest) = UdpHeader::from_slice(datagram).ok()?;
    let length = usize::from(udp.length).checked_sub(UdpHeader::LEN)?;
    let message = rest.get(..length)?;
    // Zero stands for no checksum (RFC 768).
    let is_right = udp.checksum == 0
        || !has_checksum
        || udp.calc_checksum_ipv4_raw(header.source(), header.destination(), message)
            == Ok(udp.checksum);
    (is_whole && is_right && udp.destination_port == CLIENT_PORT).then_some(message)
}

/// The hardware address of another host that has or probes this address, if the frame shows one (RFC 5227, section
/// 2.1.1).
pub(super) fn claim(frame: &[u8], own: [u8; 6], address: Ipv4Addr) -> Option<[u8; 6]> {
    let packet = ArpPacketSlice::from_slice(content(frame, EtherType::ARP)?).ok()?;
    let packet = packet.to_packet().try_eth_ipv4().ok()?;
    let probes = packet.operation == ArpOperation::REQUEST
        && packet.sender_ipv4_addr().is_unspecified()
        && packet.target_ipv4_addr() == address;
    let claims = probes || packet.sender_ipv4_addr() == address;
    (claims && packet.sender_mac != own).then_some(packet.sender_mac)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);

    fn answer(content: &[u8]) -> Vec<u8> {
        let headers = PacketBuilder::ethernet2(OTHER, MAC)
            .ipv4(SERVER.octets(), OWN.octets(), 64)
            .udp(67, 68);
        let mut frame = Vec::new();
        headers.write(&mut frame, content).unwrap();
        frame
    }

    #[test]
    fn message_is_read_only_from_a_whole_packet_to_the_client() {
        let frame = answer(b"abc");
        assert_eq!(message(&frame, true), Some(&b"abc"[..]));
        // Short packets are padded on the wire.
        let padded = [&frame[..], &[0; 15]].concat();
        assert_eq!(message(&padded, true), Some(&b"abc"[..]));
        for end in 0..frame.len() {
            assert_eq!(message(&frame[..end], true), None, "{end}");
        }
        // No byte behind the hardware addresses can change unnoticed.
        for at in 12..frame.len() {
            let mut broken = frame.clone();
            broken[at] ^= 0x21;
            assert_eq!(message(&broken, true), None, "{at}");
        }
    }

    #[test]
    fn absent_checksum_is_accepted() {
        let mut frame = answer(b"abc");
        frame[40] ^= 0xff;
        assert_eq!(message(&frame, true), None);
        assert_eq!(message(&frame, false), Some(&b"abc"[..]));
        frame[40..42].copy_from_slice(&[0, 0]);
        assert_eq!(message(&frame, true), Some(&b"abc"[..]));
    }

    #[test]
    fn broadcast_reaches_every_server() {
        let frame = broadcast(MAC, Ipv4Addr::UNSPECIFIED, b"abc").unwrap();
        assert_eq!(
            frame[..14],
            [255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0, 1, 8, 0]
        );
        assert_eq!(frame[26..34], [0, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(frame[34..38], [0, 68, 0, 67]);
        assert_eq!(&frame[42..], b"abc");
        assert_eq!(message(&frame, true), None);
    }

    #[test]
    fn only_other_hosts_with_the_address_claim_it() {
        let mut frame = probe(MAC, OWN);
        assert_eq!(frame[12..22], [8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
        assert_eq!(
            (&frame[28..32], &frame[38..42]),
            (&[0; 4][..], &OWN.octets()[..])
        );
        assert_eq!(claim(&frame, MAC, OWN), None);
        assert_eq!(claim(&frame, OTHER, OWN), Some(MAC));
        assert_eq!(claim(&frame, OTHER, SERVER), None);
        // The host with the address asks for or answers another one.
        frame[28..32].copy_from_slice(&OWN.octets());
        frame[38..42].copy_from_slice(&SERVER.octets());
        for operation in [1, 2] {
            frame[21] = operation;
            assert_eq!(claim(&frame, OTHER, OWN), Some(MAC));
            assert_eq!(claim(&frame, OTHER, SERVER), None);
        }
        for end in 0..frame.len() {
            assert_eq!(claim(&frame[..end], OTHER, OWN), None, "{end}");
        }
    }

    proptest! {
        #[test]
        fn hostile_frames_hold_no_message(bytes in vec(any::<u8>(), 0..100), kind in 0_u8..2) {
            let mut frame = bytes;
            if frame.len() > 13 {
                frame[12..14].copy_from_slice(&[8, kind * 6]);
            }
            prop_assert_eq!(message(&frame, true), None);
            claim(&frame, MAC, OWN);
        }
    }
}
