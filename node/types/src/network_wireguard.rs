//! WireGuard settings and state of a link. The settings contain private keys, so only administrators may read them. The
//! state contains none.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_api::talos::resource::definitions::network as wire;
use corten_values::{WireguardKey, WireguardSecret};
use serde::{Serialize, Serializer};

use super::message::net_prefix;
use super::prefix::Prefix;

fn base64<S: Serializer>(key: &WireguardSecret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(key.expose()))
}

fn base64_or_empty<S: Serializer>(
    key: &Option<WireguardSecret>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match key {
        Some(key) => base64(key, serializer),
        None => serializer.serialize_str(""),
    }
}

fn shown<S: Serializer>(key: &WireguardKey, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(key)
}

fn or_empty<S: Serializer>(value: &Option<SocketAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_str(""),
    }
}

fn seconds<S: Serializer>(value: &u16, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value}s"))
}

/// Desired settings of a tunnel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wireguard {
    /// Private key of this end.
    #[serde(serialize_with = "base64")]
    pub private_key: WireguardSecret,
    /// UDP port; 0 lets the kernel choose.
    pub listen_port: u16,
    /// Firewall mark of its packets; 0 for none.
    pub firewall_mark: u32,
    /// Peers of the tunnel.
    pub peers: Vec<WireguardPeer>,
}

impl Wireguard {
    /// The message, including the keys.
    pub(super) fn message(&self) -> wire::WireguardSpec {
        let secret = |key: &WireguardSecret| STANDARD.encode(key.expose());
        let peer = |peer: &WireguardPeer| wire::WireguardPeer {
            public_key: peer.public_key.to_string(),
            preshared_key: peer.preshared_key.as_ref().map(secret).unwrap_or_default(),
            endpoint: endpoint(peer.endpoint),
            persistent_keepalive_interval: Some(interval(peer.keepalive)),
            allowed_i_ps: peer.allowed_ips.iter().copied().map(net_prefix).collect(),
        };
        wire::WireguardSpec {
            private_key: secret(&self.private_key),
            public_key: String::new(),
            listen_port: self.listen_port.into(),
            firewall_mark: self.firewall_mark.into(),
            peers: self.peers.iter().map(peer).collect(),
        }
    }
}

/// Desired settings of a peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WireguardPeer {
    /// Public key of the peer, unique among the peers of a tunnel.
    #[serde(serialize_with = "shown")]
    pub public_key: WireguardKey,
    /// Preshared key.
    #[serde(serialize_with = "base64_or_empty")]
    pub preshared_key: Option<WireguardSecret>,
    /// Endpoint of the peer; absent if the peer connects first.
    #[serde(serialize_with = "or_empty")]
    pub endpoint: Option<SocketAddr>,
    /// Keepalive interval in seconds; 0 disables keepalive packets.
    #[serde(rename = "persistentKeepaliveInterval", serialize_with = "seconds")]
    pub keepalive: u16,
    /// Networks routed to the peer and accepted from it; no two peers share one.
    #[serde(rename = "allowedIPs")]
    pub allowed_ips: Vec<Prefix>,
}

/// Actual state of a tunnel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WireguardStatus {
    /// Public key of this end.
    #[serde(serialize_with = "shown")]
    pub public_key: WireguardKey,
    /// UDP port.
    pub listen_port: u16,
    /// Firewall mark of its packets; 0 for none.
    pub firewall_mark: u32,
    /// Peers of the tunnel.
    pub peers: Vec<WireguardPeerStatus>,
}

impl WireguardStatus {
    pub(super) fn message(&self) -> wire::WireguardSpec {
        let peer = |peer: &WireguardPeerStatus| wire::WireguardPeer {
            public_key: peer.public_key.to_string(),
            preshared_key: String::new(),
            endpoint: endpoint(peer.endpoint),
            persistent_keepalive_interval: Some(interval(peer.keepalive)),
            allowed_i_ps: peer.allowed_ips.iter().copied().map(net_prefix).collect(),
        };
        wire::WireguardSpec {
            private_key: String::new(),
            public_key: self.public_key.to_string(),
            listen_port: self.listen_port.into(),
            firewall_mark: self.firewall_mark.into(),
            peers: self.peers.iter().map(peer).collect(),
        }
    }
}

fn endpoint(address: Option<SocketAddr>) -> String {
    address
        .map(|address| address.to_string())
        .unwrap_or_default()
}

fn interval(seconds: u16) -> prost_types::Duration {
    prost_types::Duration {
        seconds: seconds.into(),
        nanos: 0,
    }
}

/// Actual state of a peer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WireguardPeerStatus {
    /// Public key of the peer.
    #[serde(serialize_with = "shown")]
    pub public_key: WireguardKey,
    /// Address of its last packet, or the configured endpoint before the first one.
    #[serde(serialize_with = "or_empty")]
    pub endpoint: Option<SocketAddr>,
    /// Keepalive interval in seconds; 0 if keepalive packets are disabled.
    #[serde(rename = "persistentKeepaliveInterval", serialize_with = "seconds")]
    pub keepalive: u16,
    /// Networks routed to the peer and accepted from it.
    #[serde(rename = "allowedIPs")]
    pub allowed_ips: Vec<Prefix>,
}

/// Keepalive interval in seconds; the config admits no value above `u16::MAX`.
#[must_use]
pub fn keepalive(interval: Option<Duration>) -> u16 {
    let seconds = interval.map_or(0, |interval| interval.as_secs());
    u16::try_from(seconds).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wireguard_status_has_its_peers_and_no_private_keys() {
        let tunnel = WireguardStatus {
            public_key: WireguardKey([1; 32]),
            listen_port: 51820,
            firewall_mark: u32::MAX,
            peers: vec![WireguardPeerStatus {
                public_key: WireguardKey([2; 32]),
                endpoint: Some("192.0.2.1:51820".parse().unwrap()),
                keepalive: 25,
                allowed_ips: vec![Prefix::host("10.8.0.1".parse().unwrap())],
            }],
        };
        let message = tunnel.message();
        assert_eq!(
            message.public_key,
            "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
        );
        assert_eq!(
            (message.listen_port, message.firewall_mark),
            (51820, 0xffff_ffff)
        );
        let peer = &message.peers[0];
        assert_eq!(peer.endpoint, "192.0.2.1:51820");
        assert_eq!(peer.persistent_keepalive_interval.unwrap().seconds, 25);
        assert_eq!(
            (
                &*peer.allowed_i_ps[0].ip,
                peer.allowed_i_ps[0].prefix_length
            ),
            (&[10, 8, 0, 1][..], 32)
        );
        assert!(message.private_key.is_empty() && peer.preshared_key.is_empty());
    }
}
