//! A packet on one line: time, source, destination, content.

use std::net::{IpAddr, SocketAddr};

use corten_client::units;
use etherparse::{
    ArpOperation, ArpPacketSlice, IpNumber, LaxLinkExtSlice, LaxNetSlice, LaxSlicedPacket,
    LinkSlice, TcpSlice, TransportSlice,
};
use prost_types::Timestamp;

use super::packets::Packet;

/// Types of the first header (the LINKTYPE registry of tcpdump.org).
const ETHERNET: u32 = 1;
const RAW_IP: u32 = 101;

/// The packet's line. The packet may be truncated or hostile: unreadable parts are reported as
/// such.
pub(super) fn line(packet: &Packet) -> String {
    let moment = Timestamp {
        seconds: packet.seconds.into(),
        nanos: i32::try_from(packet.nanos).unwrap_or_default(),
    };
    let what = match packet.link_type {
        ETHERNET => LaxSlicedPacket::from_ethernet(&packet.bytes)
            .map_err(|_| "too short for Ethernet".to_owned()),
        RAW_IP => LaxSlicedPacket::from_ip(&packet.bytes).map_err(|_| "not IP".to_owned()),
        other => Err(format!("on a link of the unknown type {other}")),
    };
    let what = match &what {
        Ok(sliced) => told(sliced),
        Err(why) => why.clone(),
    };
    let length = packet.length;
    format!("{} {what}, {length} bytes\n", units::moment(moment))
}

fn told(packet: &LaxSlicedPacket<'_>) -> String {
    let tags: String = packet.link_exts.iter().map(tag).collect();
    let what = match &packet.net {
        None => frame(packet),
        Some(LaxNetSlice::Arp(arp)) => question(arp),
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            let ends = [
                header.source_addr().into(),
                header.destination_addr().into(),
            ];
            datagram(
                packet,
                ends,
                ip.payload_ip_number(),
                ip.is_payload_fragmented(),
            )
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            let ends = [
                header.source_addr().into(),
                header.destination_addr().into(),
            ];
            let payload = ip.payload();
            datagram(packet, ends, payload.ip_number, payload.fragmented)
        }
    };
    format!("{tags}{what}")
}

fn tag(extension: &LaxLinkExtSlice<'_>) -> String {
    match extension {
        LaxLinkExtSlice::Vlan(vlan) => format!("vlan {} ", vlan.vlan_identifier().value()),
        LaxLinkExtSlice::Macsec(_) => "MACsec ".to_owned(),
    }
}

/// A frame that is neither IP nor ARP.
fn frame(packet: &LaxSlicedPacket<'_>) -> String {
    let Some(LinkSlice::Ethernet2(ethernet)) = &packet.link else {
        return "not IP".to_owned();
    };
    let [from, to] = [ethernet.source(), ethernet.destination()].map(mac);
    let inner = packet.ether_payload();
    let kind = inner.map_or(ethernet.ether_type(), |inner| inner.ether_type);
    format!("{from} > {to} ethertype {:#06x}", kind.0)
}

fn mac(address: [u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

fn question(arp: &ArpPacketSlice<'_>) -> String {
    let Ok(arp) = arp.to_packet().try_eth_ipv4() else {
        return "ARP".to_owned();
    };
    let [from, to] = [arp.sender_ipv4_addr(), arp.target_ipv4_addr()];
    match arp.operation {
        ArpOperation::REQUEST => format!("ARP who has {to}, tell {from}"),
        ArpOperation::REPLY => format!("ARP {from} is at {}", mac(arp.sender_mac)),
        other => format!("ARP {from} > {to} operation {}", other.0),
    }
}

fn datagram(
    packet: &LaxSlicedPacket<'_>,
    [from, to]: [IpAddr; 2],
    protocol: IpNumber,
    fragment: bool,
) -> String {
    let ends = |ports: [u16; 2]| {
        let [source, destination] = ports;
        let [from, to] = [(from, source), (to, destination)].map(SocketAddr::from);
        format!("{from} > {to}")
    };
    match &packet.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            let ends = ends([tcp.source_port(), tcp.destination_port()]);
            format!("{ends} TCP {}", segment(tcp))
        }
        Some(TransportSlice::Udp(udp)) => {
            format!("{} UDP", ends([udp.source_port(), udp.destination_port()]))
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            let (kind, code) = (icmp.type_u8(), icmp.code_u8());
            format!("{from} > {to} ICMP type {kind} code {code}")
        }
        Some(TransportSlice::Icmpv6(icmp)) => {
            let (kind, code) = (icmp.type_u8(), icmp.code_u8());
            format!("{from} > {to} ICMPv6 type {kind} code {code}")
        }
        None => {
            let name = protocol.keyword_str().filter(|name| !name.is_empty());
            let name = name.map_or_else(|| format!("protocol {}", protocol.0), str::to_owned);
            let part = if fragment { " fragment" } else { "" };
            format!("{from} > {to} {name}{part}")
        }
    }
}

fn segment(tcp: &TcpSlice<'_>) -> String {
    let all = [
        (tcp.syn(), "SYN"),
        (tcp.fin(), "FIN"),
        (tcp.rst(), "RST"),
        (tcp.psh(), "PSH"),
        (tcp.ack(), "ACK"),
        (tcp.urg(), "URG"),
    ];
    let flags = all.iter().filter(|(set, _)| *set).map(|(_, name)| *name);
    let flags: Vec<&str> = flags.collect();
    let mut text = flags.join(",");
    text.push_str(&format!(" seq {}", tcp.sequence_number()));
    if tcp.ack() {
        text.push_str(&format!(" ack {}", tcp.acknowledgment_number()));
    }
    text.push_str(&format!(" win {}", tcp.window_size()));
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use etherparse::{ArpEthIpv4Packet, PacketBuilder, VlanId};
    use proptest::prelude::*;

    use super::*;

    const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

    fn packet(link_type: u32, bytes: Vec<u8>) -> Packet {
        Packet {
            seconds: 1_000_000_000,
            nanos: 123_456_000,
            link_type,
            length: 99,
            bytes,
        }
    }

    fn shown(link_type: u32, bytes: Vec<u8>) -> String {
        let line = line(&packet(link_type, bytes));
        let text = line.strip_prefix("2001-09-09T01:46:40.123456Z ").unwrap();
        text.strip_suffix(", 99 bytes\n").unwrap().to_owned()
    }

    macro_rules! bytes {
        ($builder:expr) => {{
            let mut bytes = Vec::new();
            $builder.write(&mut bytes, &[1, 2, 3]).unwrap();
            bytes
        }};
    }

    #[test]
    fn common_ip_packets_are_summarised() {
        let [from, to] = [[10, 0, 0, 1], [10, 0, 0, 2]];
        let ip = || PacketBuilder::ethernet2(A, B).ipv4(from, to, 64);
        let mut six = [0; 16];
        six[15] = 1;
        let raw = PacketBuilder::ipv6(six, six, 64).udp(546, 547);
        let vlan = PacketBuilder::ethernet2(A, B).single_vlan(VlanId::try_new(5).unwrap());
        for (link, bytes, expected) in [
            (
                ETHERNET,
                bytes!(ip().tcp(34567, 443, 7, 1000).syn().ack(9)),
                "10.0.0.1:34567 > 10.0.0.2:443 TCP SYN,ACK seq 7 ack 9 win 1000",
            ),
            (
                ETHERNET,
                bytes!(ip().tcp(34567, 443, 7, 1000)),
                "10.0.0.1:34567 > 10.0.0.2:443 TCP seq 7 win 1000",
            ),
            (
                ETHERNET,
                bytes!(ip().udp(53, 4000)),
                "10.0.0.1:53 > 10.0.0.2:4000 UDP",
            ),
            (
                ETHERNET,
                bytes!(ip().icmpv4_echo_request(1, 2)),
                "10.0.0.1 > 10.0.0.2 ICMP type 8 code 0",
            ),
            (RAW_IP, bytes!(raw), "[::1]:546 > [::1]:547 UDP"),
            (
                ETHERNET,
                bytes!(vlan.ipv4(from, to, 64).udp(1, 2)),
                "vlan 5 10.0.0.1:1 > 10.0.0.2:2 UDP",
            ),
        ] {
            assert_eq!(shown(link, bytes), expected);
        }
    }

    #[test]
    fn packets_other_than_ip_are_summarised() {
        let ask = |operation| {
            let arp = ArpEthIpv4Packet {
                operation,
                sender_mac: A,
                sender_ipv4: [10, 0, 0, 1],
                target_mac: [0; 6],
                target_ipv4: [10, 0, 0, 2],
            };
            let mut bytes = [&[0xff; 6], &A[..], &[8, 6]].concat();
            bytes.extend_from_slice(&arp.to_bytes());
            shown(ETHERNET, bytes)
        };
        assert_eq!(
            ask(ArpOperation::REQUEST),
            "ARP who has 10.0.0.2, tell 10.0.0.1"
        );
        assert_eq!(
            ask(ArpOperation::REPLY),
            "ARP 10.0.0.1 is at 02:00:00:00:00:01"
        );
        let lldp = [&B[..], &A, &[0x88, 0xcc, 1, 2]].concat();
        let expected = "02:00:00:00:00:01 > 02:00:00:00:00:02 ethertype 0x88cc";
        assert_eq!(shown(ETHERNET, lldp), expected);
        assert_eq!(shown(ETHERNET, vec![1, 2]), "too short for Ethernet");
        assert_eq!(shown(RAW_IP, vec![0xf0]), "not IP");
        assert!(shown(147, Vec::new()).contains("type 147"));
    }

    #[test]
    fn truncated_packet_is_summarised_as_far_as_it_goes() {
        let whole = bytes!(
            PacketBuilder::ethernet2(A, B)
                .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
                .tcp(1, 2, 3, 4)
        );
        let cut = whole[..14 + 20 + 10].to_vec();
        assert_eq!(shown(ETHERNET, cut), "10.0.0.1 > 10.0.0.2 TCP");
        let cut = whole[..14 + 10].to_vec();
        assert!(shown(ETHERNET, cut).ends_with("ethertype 0x0800"));
    }

    proptest! {
        #[test]
        fn hostile_packets_become_one_line_without_control_characters(
            link in prop_oneof![Just(ETHERNET), Just(RAW_IP), any::<u32>()],
            kind in prop_oneof![Just([8_u8, 0]), Just([0x86, 0xdd]), Just([8, 6]), any::<[u8; 2]>()],
            mut bytes in prop::collection::vec(any::<u8>(), 0..120),
            seconds in any::<u32>(),
        ) {
            if let Some(place) = bytes.get_mut(12..14) {
                place.copy_from_slice(&kind);
            }
            let text = line(&Packet { seconds, ..packet(link, bytes) });
            let inner = text.strip_suffix('\n').unwrap();
            prop_assert!(!inner.contains(char::is_control), "{inner:?}");
        }
    }
}
