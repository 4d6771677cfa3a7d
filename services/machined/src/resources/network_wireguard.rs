//! The WireGuard part of a link. What it shall be holds its keys, what it is shows none of them: only
//! administrators may read the first.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_config::values::{WireguardKey, WireguardSecret};
use serde::{Serialize, Serializer};

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

/// A tunnel as it shall be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wireguard {
    /// This end's key.
    #[serde(serialize_with = "base64")]
    pub private_key: WireguardSecret,
    /// UDP port; 0: one the kernel chooses.
    pub listen_port: u16,
    /// Mark of its packets; 0: none.
    pub firewall_mark: u32,
    /// The other ends.
    pub peers: Vec<WireguardPeer>,
}

/// The other end of a tunnel, as it shall be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WireguardPeer {
    /// Its key; no two peers of a tunnel have the same.
    #[serde(serialize_with = "shown")]
    pub public_key: WireguardKey,
    /// A key both know.
    #[serde(serialize_with = "base64_or_empty")]
    pub preshared_key: Option<WireguardSecret>,
    /// Where it is; absent: it calls first.
    #[serde(serialize_with = "or_empty")]
    pub endpoint: Option<SocketAddr>,
    /// How often it hears from us, in seconds; 0: when there is something to say.
    #[serde(rename = "persistentKeepaliveInterval", serialize_with = "seconds")]
    pub keepalive: u16,
    /// What is sent to it and taken from it; no network is two peers'.
    #[serde(rename = "allowedIPs")]
    pub allowed_ips: Vec<Prefix>,
}

/// A tunnel as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WireguardStatus {
    /// This end's key, as its peers know it.
    #[serde(serialize_with = "shown")]
    pub public_key: WireguardKey,
    /// UDP port.
    pub listen_port: u16,
    /// Mark of its packets; 0: none.
    pub firewall_mark: u32,
    /// The other ends.
    pub peers: Vec<WireguardPeerStatus>,
}

/// The other end of a tunnel, as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WireguardPeerStatus {
    /// Its key.
    #[serde(serialize_with = "shown")]
    pub public_key: WireguardKey,
    /// Where it called from last, or was said to be.
    #[serde(serialize_with = "or_empty")]
    pub endpoint: Option<SocketAddr>,
    /// How often it hears from us, in seconds; 0: when there is something to say.
    #[serde(rename = "persistentKeepaliveInterval", serialize_with = "seconds")]
    pub keepalive: u16,
    /// What is sent to it and taken from it.
    #[serde(rename = "allowedIPs")]
    pub allowed_ips: Vec<Prefix>,
}

/// Seconds of a keepalive interval; the config lets no other value in.
#[must_use]
pub fn keepalive(interval: Option<Duration>) -> u16 {
    let seconds = interval.map_or(0, |interval| interval.as_secs());
    u16::try_from(seconds).unwrap_or(u16::MAX)
}
