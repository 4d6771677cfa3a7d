//! Conversion of a WireGuard tunnel from either form of the machine config.

use corten_config::kinds::{WireguardConfig, WireguardPeer as Peer};
use corten_config::v1alpha1::{LegacyWireguard, LegacyWireguardPeer};
use corten_values::Cidr;

use crate::network_wireguard::{Wireguard, WireguardPeer, keepalive};
use crate::prefix::Prefix;

impl From<&WireguardConfig> for Wireguard {
    fn from(config: &WireguardConfig) -> Wireguard {
        Wireguard {
            private_key: config.private_key,
            listen_port: config.listen_port.unwrap_or(0),
            firewall_mark: config.firewall_mark.unwrap_or(0),
            peers: config.peers.iter().map(WireguardPeer::from).collect(),
        }
    }
}

impl From<&Peer> for WireguardPeer {
    fn from(peer: &Peer) -> WireguardPeer {
        WireguardPeer {
            public_key: peer.public_key,
            preshared_key: peer.preshared_key,
            endpoint: peer.endpoint,
            keepalive: keepalive(peer.persistent_keepalive_interval),
            allowed_ips: allowed(&peer.allowed_ips),
        }
    }
}

impl From<&LegacyWireguard> for Wireguard {
    fn from(config: &LegacyWireguard) -> Wireguard {
        Wireguard {
            private_key: config.private_key,
            listen_port: config.listen_port.unwrap_or(0),
            firewall_mark: config.firewall_mark.unwrap_or(0),
            peers: config.peers.iter().map(WireguardPeer::from).collect(),
        }
    }
}

impl From<&LegacyWireguardPeer> for WireguardPeer {
    fn from(peer: &LegacyWireguardPeer) -> WireguardPeer {
        WireguardPeer {
            public_key: peer.public_key,
            preshared_key: None,
            endpoint: peer.endpoint,
            keepalive: keepalive(peer.persistent_keepalive_interval),
            allowed_ips: allowed(&peer.allowed_ips),
        }
    }
}

fn allowed(networks: &[Cidr]) -> Vec<Prefix> {
    let networks = networks.iter();
    let networks = networks.map(|network| Prefix {
        address: network.address,
        length: network.prefix,
    });
    networks.map(Prefix::network).collect()
}
