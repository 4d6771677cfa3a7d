//! WireGuard tunnels: this module computes changes, `message.rs` encodes them, `kernel.rs` (impure) performs them.
//!
//! Owns the node's tunnels: it removes peers that are not in the config. Never sends an unchanged setting to the
//! kernel, so a change to one peer does not reset the sessions of others.

mod kernel;
mod message;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet};

use corten_values::{WireguardKey, WireguardSecret};

pub use kernel::{found, perform};

use corten_types::network_wireguard::{
    Wireguard, WireguardPeer, WireguardPeerStatus, WireguardStatus,
};
use corten_types::prefix::Prefix;

/// Link kind in rtnetlink.
pub const KIND: &str = "wireguard";

/// A tunnel in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Settings of the tunnel.
    pub settings: Wireguard,
    /// Public key of this end.
    pub public_key: WireguardKey,
}

impl Found {
    /// The status without the secrets.
    #[must_use]
    pub fn status(&self) -> WireguardStatus {
        let peer = |peer: &WireguardPeer| WireguardPeerStatus {
            public_key: peer.public_key,
            endpoint: peer.endpoint,
            keepalive: peer.keepalive,
            allowed_ips: peer.allowed_ips.clone(),
        };
        WireguardStatus {
            public_key: self.public_key,
            listen_port: self.settings.listen_port,
            firewall_mark: self.settings.firewall_mark,
            peers: self.settings.peers.iter().map(peer).collect(),
        }
    }
}

/// A change of a tunnel; absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    private_key: Option<WireguardSecret>,
    listen_port: Option<u16>,
    firewall_mark: Option<u32>,
    /// Peers to remove.
    removed: Vec<WireguardKey>,
    /// Peers to add or change; without an endpoint the kernel keeps the one it knows.
    set: Vec<WireguardPeer>,
}

/// The change from the found tunnel to the wanted one. `had` is the last applied config.
#[must_use]
pub fn change(
    had: Option<&Wireguard>,
    wanted: &Wireguard,
    found: Option<&Found>,
) -> Option<Change> {
    let nothing = Wireguard::default();
    let own = found.map(|found| found.public_key);
    let found = found.map_or(&nothing, |found| &found.settings);
    let differs = clamped(&wanted.private_key) != clamped(&found.private_key);
    let had_port = had.map_or(0, |had| had.listen_port);
    // Without a port in the config any port is fine, except one that the former config asked for.
    let port_is_good = match wanted.listen_port {
        0 => had_port == 0 || had_port != found.listen_port,
        port => port == found.listen_port,
    };
    let mark = wanted.firewall_mark;
    let (before, there) = (had.map(by_key).unwrap_or_default(), by_key(found));
    let mut kept = by_key(wanted);
    // Every node of a mesh may have the same list of peers; the kernel silently skips the node's own entry.
    kept.retain(|key, _| differs || Some(*key) != own);
    let set = kept.iter().filter_map(|(key, peer)| {
        peer_change(before.get(key).copied(), peer, there.get(key).copied())
    });
    let change = Change {
        private_key: differs.then_some(wanted.private_key),
        listen_port: (!port_is_good).then_some(wanted.listen_port),
        firewall_mark: (mark != found.firewall_mark).then_some(mark),
        removed: there
            .keys()
            .copied()
            .filter(|key| !kept.contains_key(key))
            .collect(),
        set: set.collect(),
    };
    (change != Change::default()).then_some(change)
}

fn by_key(tunnel: &Wireguard) -> BTreeMap<WireguardKey, &WireguardPeer> {
    let peers = tunnel.peers.iter();
    peers.map(|peer| (peer.public_key, peer)).collect()
}

/// The peer to set; `None` if it already is as wanted.
fn peer_change(
    had: Option<&WireguardPeer>,
    wanted: &WireguardPeer,
    found: Option<&WireguardPeer>,
) -> Option<WireguardPeer> {
    let Some(found) = found else {
        return Some(wanted.clone());
    };
    // A peer may have roamed to another endpoint; only a new endpoint in the config overrides that one.
    let is_news = had.is_none_or(|had| had.endpoint != wanted.endpoint);
    let endpoint = wanted.endpoint.filter(|endpoint| match found.endpoint {
        Some(found) => is_news && found != *endpoint,
        None => true,
    });
    // All zeros means no key.
    let preshared = |peer: &WireguardPeer| peer.preshared_key.unwrap_or_default();
    let is_good = endpoint.is_none()
        && preshared(wanted) == preshared(found)
        && wanted.keepalive == found.keepalive
        && networks(&wanted.allowed_ips) == networks(&found.allowed_ips);
    (!is_good).then(|| WireguardPeer {
        endpoint,
        ..wanted.clone()
    })
}

fn networks(allowed: &[Prefix]) -> BTreeSet<Prefix> {
    allowed.iter().map(|prefix| prefix.network()).collect()
}

/// The private key as the kernel stores it: some bits of a Curve25519 key are fixed (RFC 7748, section 5). A key of
/// zeros means no key.
fn clamped(key: &WireguardSecret) -> WireguardSecret {
    let mut bytes = *key.expose();
    if bytes != [0; 32] {
        let [first, .., last] = &mut bytes;
        *first &= 248;
        *last = (*last & 127) | 64;
    }
    WireguardSecret::new(bytes)
}
