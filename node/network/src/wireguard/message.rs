//! Encodes changes of a tunnel and decodes its state, in generic netlink (`linux/wireguard.h`).

use corten_types::network_wireguard::WireguardPeer;
use corten_types::prefix::Prefix;
use corten_values::{WireguardKey, WireguardSecret};
use netlink_packet_wireguard::{
    WireguardAddressFamily, WireguardAllowedIp, WireguardAllowedIpAttr, WireguardAttribute,
    WireguardCmd, WireguardMessage, WireguardPeer as PeerMessage, WireguardPeerAttribute,
    WireguardPeerFlags,
};

use super::{Change, Found};

/// Limit of networks per message: they share one attribute with a 16-bit length, and one network takes up to 40 bytes.
const NETWORKS: usize = 500;

/// The request for all settings of a tunnel.
pub(super) fn question(link: &str) -> WireguardMessage {
    WireguardMessage {
        cmd: WireguardCmd::GetDevice,
        attributes: vec![WireguardAttribute::IfName(link.to_owned())],
    }
}

/// Messages of a change, in their order: first the tunnel's own settings, then a message per peer.
pub(super) fn messages(link: &str, change: &Change) -> Vec<WireguardMessage> {
    let message = |mut attributes: Vec<WireguardAttribute>| {
        attributes.insert(0, WireguardAttribute::IfName(link.to_owned()));
        WireguardMessage {
            cmd: WireguardCmd::SetDevice,
            attributes,
        }
    };
    let key = change.private_key.as_ref().map(|key| *key.expose());
    let own: Vec<WireguardAttribute> = [
        key.map(WireguardAttribute::PrivateKey),
        change.listen_port.map(WireguardAttribute::ListenPort),
        change.firewall_mark.map(WireguardAttribute::Fwmark),
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut messages = Vec::new();
    if !own.is_empty() {
        messages.push(message(own));
    }
    let removed = change.removed.iter().map(|key| {
        vec![
            WireguardPeerAttribute::PublicKey(key.0),
            WireguardPeerAttribute::Flags(WireguardPeerFlags::RemoveMe),
        ]
    });
    let peers = removed.chain(change.set.iter().flat_map(parts));
    messages.extend(
        peers.map(|peer| message(vec![WireguardAttribute::Peers(vec![PeerMessage(peer)])])),
    );
    messages
}

/// Splits a peer: the first part has its settings and as many networks as fit, the others have the remaining networks.
fn parts(peer: &WireguardPeer) -> Vec<Vec<WireguardPeerAttribute>> {
    let mut networks = peer.allowed_ips.chunks(NETWORKS);
    let mut first = vec![
        WireguardPeerAttribute::PublicKey(peer.public_key.0),
        WireguardPeerAttribute::Flags(WireguardPeerFlags::ReplaceAllowedIps),
        // All zeros means no key.
        WireguardPeerAttribute::PresharedKey(*peer.preshared_key.unwrap_or_default().expose()),
        WireguardPeerAttribute::PersistentKeepalive(peer.keepalive),
    ];
    first.extend(peer.endpoint.map(WireguardPeerAttribute::Endpoint));
    first.push(allowed(networks.next().unwrap_or_default()));
    let others = networks.map(|part| {
        vec![
            WireguardPeerAttribute::PublicKey(peer.public_key.0),
            allowed(part),
        ]
    });
    [first].into_iter().chain(others).collect()
}

fn allowed(networks: &[Prefix]) -> WireguardPeerAttribute {
    let one = |network: &Prefix| {
        let family = if network.address.is_ipv4() {
            WireguardAddressFamily::Ipv4
        } else {
            WireguardAddressFamily::Ipv6
        };
        WireguardAllowedIp(vec![
            WireguardAllowedIpAttr::Family(family),
            WireguardAllowedIpAttr::IpAddr(network.address),
            WireguardAllowedIpAttr::Cidr(network.length),
        ])
    };
    WireguardPeerAttribute::AllowedIps(networks.iter().map(one).collect())
}

/// Decodes a tunnel. The kernel may spread it over several messages, and split a peer across two of them.
pub(super) fn found(messages: impl IntoIterator<Item = WireguardMessage>) -> Found {
    let mut found = Found::default();
    for attribute in messages.into_iter().flat_map(|message| message.attributes) {
        let settings = &mut found.settings;
        match attribute {
            WireguardAttribute::PrivateKey(key) => {
                settings.private_key = WireguardSecret::new(key);
            }
            WireguardAttribute::PublicKey(key) => found.public_key = WireguardKey(key),
            WireguardAttribute::ListenPort(port) => settings.listen_port = port,
            WireguardAttribute::Fwmark(mark) => settings.firewall_mark = mark,
            WireguardAttribute::Peers(peers) => {
                for attributes in peers {
                    let new = peer(attributes);
                    match settings.peers.last_mut() {
                        Some(last) if last.public_key == new.public_key => {
                            last.allowed_ips.extend(new.allowed_ips);
                        }
                        _ => settings.peers.push(new),
                    }
                }
            }
            _ => {}
        }
    }
    found
}

fn peer(message: PeerMessage) -> WireguardPeer {
    let mut peer = WireguardPeer::default();
    for attribute in message.0 {
        match attribute {
            WireguardPeerAttribute::PublicKey(key) => peer.public_key = WireguardKey(key),
            WireguardPeerAttribute::PresharedKey(key) => {
                peer.preshared_key = (key != [0; 32]).then_some(WireguardSecret::new(key));
            }
            WireguardPeerAttribute::Endpoint(endpoint) => peer.endpoint = Some(endpoint),
            WireguardPeerAttribute::PersistentKeepalive(seconds) => peer.keepalive = seconds,
            WireguardPeerAttribute::AllowedIps(networks) => {
                peer.allowed_ips.extend(networks.iter().filter_map(network));
            }
            _ => {}
        }
    }
    peer
}

fn network(message: &WireguardAllowedIp) -> Option<Prefix> {
    let (mut address, mut length) = (None, None);
    for attribute in &message.0 {
        match attribute {
            WireguardAllowedIpAttr::IpAddr(found) => address = Some(*found),
            WireguardAllowedIpAttr::Cidr(found) => length = Some(*found),
            _ => {}
        }
    }
    Some(Prefix {
        address: address?,
        length: length?,
    })
}
