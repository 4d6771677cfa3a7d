//! Tests tunnels without a kernel.

use std::net::SocketAddr;

use netlink_packet_core::{Emitable as _, ParseableParametrized as _};
use netlink_packet_generic::GenlHeader;
use netlink_packet_wireguard::WireguardMessage;

use super::*;

/// A key that repeats one byte.
pub fn key(byte: u8) -> WireguardKey {
    WireguardKey([byte; 32])
}

fn secret(byte: u8) -> WireguardSecret {
    WireguardSecret::new([byte; 32])
}

fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix {
        address: address.parse().unwrap(),
        length: length.parse().unwrap(),
    }
}

pub fn peer(byte: u8, endpoint: &str, allowed: &[&str]) -> WireguardPeer {
    WireguardPeer {
        public_key: key(byte),
        preshared_key: None,
        endpoint: endpoint.parse().ok(),
        keepalive: 25,
        allowed_ips: allowed.iter().map(|text| prefix(text)).collect(),
    }
}

pub fn tunnel(peers: &[WireguardPeer]) -> Wireguard {
    Wireguard {
        private_key: secret(1),
        listen_port: 51820,
        firewall_mark: 0x40,
        peers: peers.to_vec(),
    }
}

/// Applies a change as the kernel does.
pub fn take(change: &Change, found: &mut Found) {
    let Found {
        settings,
        public_key,
    } = found;
    if let Some(private) = &change.private_key {
        settings.private_key = clamped(private);
    }
    settings.listen_port = match change.listen_port {
        Some(0) => 40000,
        port => port.unwrap_or(settings.listen_port),
    };
    settings.firewall_mark = change.firewall_mark.unwrap_or(settings.firewall_mark);
    let stays = |peer: &WireguardPeer| !change.removed.contains(&peer.public_key);
    settings.peers.retain(stays);
    let passed_over = |peer: &&WireguardPeer| peer.public_key != *public_key;
    for peer in change.set.iter().filter(passed_over) {
        let mut there = settings.peers.iter();
        let old = there.position(|old| old.public_key == peer.public_key);
        let old = old.map(|at| settings.peers.remove(at));
        settings.peers.push(WireguardPeer {
            endpoint: peer.endpoint.or(old.and_then(|old| old.endpoint)),
            ..peer.clone()
        });
    }
}

/// Moves from one config to the next, and asserts that no further change remains.
fn follow(had: Option<&Wireguard>, wanted: &Wireguard, found: &mut Found) -> Option<Change> {
    let first = change(had, wanted, Some(found));
    if let Some(first) = &first {
        take(first, found);
    }
    assert_eq!(change(Some(wanted), wanted, Some(found)), None);
    first
}

const HERE: &str = "192.0.2.1:51820";
const THERE: &str = "[2001:db8::7]:51820";

#[test]
fn new_wireguard_link_gets_every_setting() {
    let wanted = tunnel(&[peer(2, HERE, &["10.8.0.0/16"]), peer(3, "", &[])]);
    let all = change(None, &wanted, None).unwrap();
    assert_eq!(all.private_key, Some(secret(1)));
    assert_eq!(
        (all.listen_port, all.firewall_mark),
        (Some(51820), Some(0x40))
    );
    assert_eq!((all.set.len(), all.removed.len()), (2, 0));
    let mut found = Found::default();
    follow(None, &wanted, &mut found);
    assert_eq!(found.settings.peers, wanted.peers);
}

#[test]
fn node_does_not_add_itself_as_a_peer() {
    let wanted = tunnel(&[peer(2, HERE, &[]), peer(3, HERE, &[])]);
    let mut found = Found {
        public_key: key(3),
        ..Found::default()
    };
    follow(None, &wanted, &mut found);
    assert_eq!(found.settings.peers, [peer(2, HERE, &[])]);
}

#[test]
fn changed_peers_are_updated_and_others_left_unchanged() {
    let before = tunnel(&[
        peer(2, HERE, &["10.8.0.0/16"]),
        peer(3, HERE, &["10.9.0.0/16"]),
        peer(4, HERE, &[]),
    ]);
    let mut found = Found::default();
    follow(None, &before, &mut found);
    // Equal networks: their order and their host bits do not matter.
    let mut changed = peer(3, HERE, &["fd00::/64", "10.9.0.0/16"]);
    changed.preshared_key = Some(secret(9));
    let after = tunnel(&[
        peer(2, HERE, &["10.8.3.4/16"]),
        changed.clone(),
        peer(5, "", &["10.10.0.0/16"]),
    ]);
    let step = follow(Some(&before), &after, &mut found).unwrap();
    let expected = Change {
        removed: vec![key(4)],
        set: vec![
            WireguardPeer {
                endpoint: None,
                ..changed
            },
            peer(5, "", &["10.10.0.0/16"]),
        ],
        ..Change::default()
    };
    assert_eq!(step, expected);
    // A removed preshared key is cleared.
    let without = tunnel(&[peer(3, HERE, &["10.9.0.0/16"])]);
    follow(Some(&after), &without, &mut found);
    assert_eq!(found.settings.peers, without.peers);
}

#[test]
fn roamed_peer_endpoint_is_kept_until_the_config_changes_it() {
    let before = tunnel(&[peer(2, HERE, &[])]);
    let mut found = Found::default();
    follow(None, &before, &mut found);
    let elsewhere: SocketAddr = "198.51.100.1:7".parse().unwrap();
    found.settings.peers[0].endpoint = Some(elsewhere);
    let more = tunnel(&[peer(2, HERE, &["10.8.0.0/16"]), peer(3, HERE, &[])]);
    follow(Some(&before), &more, &mut found);
    let endpoint = |found: &Found| {
        let mut peers = found.settings.peers.iter();
        peers
            .find(|peer| peer.public_key == key(2))
            .unwrap()
            .endpoint
    };
    assert_eq!(endpoint(&found), Some(elsewhere));
    let moved = tunnel(&[peer(2, THERE, &["10.8.0.0/16"]), peer(3, HERE, &[])]);
    follow(Some(&more), &moved, &mut found);
    assert_eq!(endpoint(&found), THERE.parse().ok());
}

#[test]
fn key_port_and_mark_are_updated_and_port_0_accepts_any_port() {
    let before = tunnel(&[]);
    let mut found = Found::default();
    follow(None, &before, &mut found);
    let after = Wireguard {
        private_key: secret(7),
        listen_port: 0,
        firewall_mark: 0,
        peers: Vec::new(),
    };
    let step = follow(Some(&before), &after, &mut found).unwrap();
    assert_eq!(step.private_key, Some(secret(7)));
    assert_eq!((step.listen_port, step.firewall_mark), (Some(0), Some(0)));
    // The kernel sets some bits of a key.
    assert_ne!(found.settings.private_key, secret(7));
}

/// Parses hexadecimal with spaces, which are for readability.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn emitted(message: &WireguardMessage) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

/// Lengths, types and values as in `linux/wireguard.h` and `linux/netlink.h`, on a little-endian machine.
#[test]
fn wireguard_message_has_the_layout_of_the_kernel() {
    const NAME: &str = "08000200 77673000";
    let mut with_all = peer(2, HERE, &["10.8.0.0/16", "fd00::/64"]);
    with_all.preshared_key = Some(secret(3));
    let change = Change {
        private_key: Some(secret(1)),
        listen_port: Some(51820),
        firewall_mark: Some(0x40),
        removed: vec![key(4)],
        set: vec![with_all],
    };
    let found: Vec<_> = message::messages("wg0", &change)
        .iter()
        .map(emitted)
        .collect();
    let [ones, twos, threes, fours] = [1, 2, 3, 4].map(|byte| format!("{byte:02x}").repeat(32));
    let own = format!("{NAME} 24000300 {ones} 06000600 6cca0000 08000700 40000000");
    let removed = format!("{NAME} 34000880 30000080 24000100 {fours} 08000300 01000000");
    let set = format!(
        "{NAME} bc000880 b8000080
         24000100 {twos} 08000300 02000000 24000200 {threes} 06000500 19000000
         14000400 0200ca6c c0000201 00000000 00000000
         48000980
         1c000080 06000100 02000000 08000200 0a080000 05000300 10000000
         28000080 06000100 0a000000 14000200 fd000000 00000000 00000000 00000000 05000300 40000000"
    );
    assert_eq!(found, [own, removed, set].map(|text| bytes(&text)));
    assert_eq!(emitted(&message::question("wg0")), bytes(NAME));
}

#[test]
fn allowed_networks_are_split_over_several_messages() {
    let mut big = peer(2, HERE, &[]);
    let network = |number: u32| prefix(&format!("{}/32", std::net::Ipv4Addr::from(number)));
    big.allowed_ips = (1..=1100).map(network).collect();
    let wanted = tunnel(&[big]);
    let all = change(None, &wanted, None).unwrap();
    let messages = message::messages("wg0", &all);
    assert_eq!(messages.len(), 4);
    for message in &messages {
        assert!(emitted(message).len() < usize::from(u16::MAX));
    }
    // Decoded as an answer of the kernel, the parts are one peer.
    assert_eq!(message::found(messages).settings, wanted);
}

#[test]
fn kernel_status_is_read_and_secrets_stay_hidden() {
    let [ones, twos, fives, none] = [1, 2, 5, 0].map(|byte| format!("{byte:02x}").repeat(32));
    // Index, name, keys, port and mark; a peer with its last handshake, byte counters and protocol version.
    let told = format!(
        "08000100 07000000 08000200 77673000 24000300 {ones} 24000400 {fives}
         06000600 6cca0000 08000700 40000000
         80000880 7c000080
         24000100 {twos} 24000200 {none} 06000500 19000000
         14000600 01000000 00000000 00000000 00000000
         0c000700 01000000 00000000 08000a00 01000000"
    );
    let header = GenlHeader { cmd: 0, version: 1 };
    let message = WireguardMessage::parse_with_param(&bytes(&told), header).unwrap();
    let found = message::found([message]);
    assert_eq!(found.settings, tunnel(&[peer(2, "", &[])]));
    assert_eq!(found.public_key, key(5));
    // The status is public, so it contains no keys.
    let status = format!(
        "{:?} {}",
        found.status(),
        serde_json::to_string(&found.status()).unwrap()
    );
    assert!(
        status.contains("BQUFBQ") && !status.contains("AQEBAQ"),
        "{status}"
    );
    assert!(!format!("{found:?}").contains("1, 1, 1"), "{found:?}");
}
