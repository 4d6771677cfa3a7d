//! WireGuard tunnels.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use corten_values::{Cidr, LinkName, WireguardKey, WireguardSecret};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use super::Link;

section! {
    /// A WireGuard tunnel.
    pub struct WireguardConfig [check_config] {
        Acted "name" name: LinkName = "Name of the link", required;
        Acted "privateKey" private_key: WireguardSecret = "Private key of this end", required;
        Acted "listenPort" listen_port: Option<u16> = "UDP port; absent: chosen by the kernel";
        Acted "firewallMark" firewall_mark: Option<u32> = "Mark of its packets";
        Acted "peers" peers: Vec<WireguardPeer> = "Peers of the tunnel";
        .. link: Link = "Settings of every kind of link";
    }
}

section! {
    /// The remote end of a tunnel.
    pub struct WireguardPeer [check_peer] {
        Acted "publicKey" public_key: WireguardKey = "Public key of the peer", required;
        Acted "presharedKey" preshared_key: Option<WireguardSecret> = "Preshared key";
        Acted "endpoint" endpoint: Option<SocketAddr> = "Address and port of the peer; absent: the peer opens the connection";
        Acted "persistentKeepaliveInterval" persistent_keepalive_interval: Option<Duration> = "Interval of keepalive packets in whole seconds; absent: none";
        Acted "allowedIPs" allowed_ips: Vec<Cidr> = "Networks that are sent to the peer and accepted from it; the node adds no routes for them";
    }
}

fn check_config(config: &WireguardConfig, node: &Node, reader: &mut Reader<'_>) {
    let peers = config.peers.iter();
    let peers = peers.map(|peer| (peer.public_key, peer.allowed_ips.as_slice()));
    check_peers(peers, node, reader);
}

fn check_peer(peer: &WireguardPeer, node: &Node, reader: &mut Reader<'_>) {
    check_keepalive(peer.persistent_keepalive_interval, node, reader);
}

/// Reports two peers with the same key, and networks of two peers, of which only the last would get them.
pub(crate) fn check_peers<'a>(
    peers: impl Iterator<Item = (WireguardKey, &'a [Cidr])>,
    node: &Node,
    reader: &mut Reader<'_>,
) {
    let (mut keys, mut networks) = (BTreeSet::new(), BTreeSet::new());
    let (mut has_one_key_twice, mut shared) = (false, None);
    for (key, allowed) in peers {
        has_one_key_twice |= !keys.insert(key);
        let own: BTreeSet<Cidr> = allowed.iter().map(Cidr::network).collect();
        for network in own {
            if !networks.insert(network) {
                shared = Some(network);
            }
        }
    }
    if has_one_key_twice {
        reader.wrong_in(node, "peers", "has one publicKey twice");
    }
    if let Some(network) = shared {
        let what = format!("has {network} in allowedIPs of two peers; only one can have it");
        reader.wrong_in(node, "peers", &what);
    }
}

/// The kernel counts seconds in 16 bits (`linux/wireguard.h`).
pub(crate) fn check_keepalive(interval: Option<Duration>, node: &Node, reader: &mut Reader<'_>) {
    let good = |interval: Duration| {
        interval.subsec_nanos() == 0 && interval.as_secs() <= u64::from(u16::MAX)
    };
    if interval.is_some_and(|interval| !good(interval)) {
        let what = "must be whole seconds, at most 65535s";
        reader.wrong_in(node, "persistentKeepaliveInterval", what);
    }
}
