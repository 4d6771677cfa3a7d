//! Tells the neighbours on a link that an address has moved to this node, by gratuitous ARP (RFC 5227, section 2.3).
//! The kernel itself sends unsolicited neighbour advertisements (RFC 4861, section 7.2.6).

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use corten_base::console;
use corten_sys::packet::{Capture, Instruction};
use etherparse::{ArpEthIpv4Packet, ArpOperation, EtherType};
use tokio::time::sleep;

/// Number of announcements: one may be lost.
const TIMES: u32 = 3;
/// Interval of announcements.
const INTERVAL: Duration = Duration::from_secs(2);
const BROADCAST: [u8; 6] = [0xff; 6];
/// BPF filter that takes no packet: the socket only sends.
const NOTHING: [Instruction; 1] = [Instruction {
    code: 0x06,
    jump_true: 0,
    jump_false: 0,
    operand: 0,
}];

/// Makes the kernel announce new IPv6 addresses of a link.
pub(super) fn prepare(link: &str) {
    // A kernel without IPv6 has no such file.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{link}/ndisc_notify"), "1");
}

/// Announces an address in the background. A link without a hardware address of Ethernet's length has no neighbours to
/// tell.
pub(super) fn by_arp(index: u32, mac: Option<[u8; 6]>, address: Ipv4Addr) {
    let Some(mac) = mac else { return };
    tokio::spawn(async move {
        let frame = announcement(mac, address);
        for _ in 0..TIMES {
            let sent = Capture::start(index, false, &NOTHING).and_then(|link| link.send(&frame));
            if let Err(error) = sent {
                console::warn(&format!(
                    "network: cannot announce the address {address} to the neighbours: {error}"
                ));
                return;
            }
            sleep(INTERVAL).await;
        }
    });
}

/// An ARP request with the address as sender and target.
fn announcement(mac: [u8; 6], address: Ipv4Addr) -> Vec<u8> {
    let packet = ArpEthIpv4Packet {
        operation: ArpOperation::REQUEST,
        sender_mac: mac,
        sender_ipv4: address.octets(),
        target_mac: [0; 6],
        target_ipv4: address.octets(),
    };
    let kind = EtherType::ARP.0.to_be_bytes();
    [&BROADCAST[..], &mac, &kind, &packet.to_bytes()].concat()
}
