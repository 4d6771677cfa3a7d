//! WireGuard's keys: 32 bytes each, base64 in documents, as wg(8) prints them.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_yaml::read::{Reader, Value, scalar};
use corten_yaml::table::Shape;
use corten_yaml::tree::Node;

const WHAT: &str = "base64 of a key of 32 bytes";

/// A public key, shown as base64.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WireguardKey(pub [u8; 32]);

/// A private or preshared key. `Debug` does not show it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct WireguardSecret([u8; 32]);

impl WireguardSecret {
    /// Wraps a key.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> WireguardSecret {
        WireguardSecret(bytes)
    }

    /// The key itself, for its one user.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

fn key(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

impl fmt::Display for WireguardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for WireguardKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for WireguardSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<secret>")
    }
}

impl Value for WireguardKey {
    const SHAPE: Shape = Shape::Text(WHAT);
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, WHAT, |text| key(text).map(WireguardKey))
    }
}

impl Value for WireguardSecret {
    const SHAPE: Shape = Shape::Secret;
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, WHAT, |text| key(text).map(WireguardSecret))
    }
}
