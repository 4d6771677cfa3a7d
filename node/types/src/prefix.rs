//! An IP address with its prefix length.

use std::fmt;
use std::net::IpAddr;

use serde::{Serialize, Serializer};

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address; bits beyond the prefix may be set.
    pub address: IpAddr,
    /// Prefix length: at most 32 for IPv4, 128 for IPv6.
    pub length: u8,
}

impl Prefix {
    /// Parses an address with a prefix length, such as `10.0.2.15/24`; `None` for any other text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Prefix> {
        let (address, length) = text.split_once('/')?;
        Some(Prefix {
            address: address.parse().ok()?,
            length: length.parse().ok()?,
        })
    }

    /// The prefix of all addresses in the family of `like`.
    #[must_use]
    pub fn everywhere(like: IpAddr) -> Prefix {
        let address = match like {
            IpAddr::V4(_) => IpAddr::from([0; 4]),
            IpAddr::V6(_) => IpAddr::from([0; 16]),
        };
        Prefix { address, length: 0 }
    }

    /// The prefix of this address alone.
    #[must_use]
    pub fn host(address: IpAddr) -> Prefix {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Prefix { address, length }
    }

    /// The network, with all bits beyond the prefix cleared.
    #[must_use]
    pub fn network(self) -> Prefix {
        let address = match self.address {
            IpAddr::V4(v4) => {
                let host = 32_u32.saturating_sub(self.length.into());
                let mask = u32::MAX.checked_shl(host).unwrap_or(0);
                IpAddr::from((v4.to_bits() & mask).to_be_bytes())
            }
            IpAddr::V6(v6) => {
                let host = 128_u32.saturating_sub(self.length.into());
                let mask = u128::MAX.checked_shl(host).unwrap_or(0);
                IpAddr::from((v6.to_bits() & mask).to_be_bytes())
            }
        };
        Prefix { address, ..self }
    }

    /// Whether this network contains an address.
    #[must_use]
    pub fn contains(self, other: IpAddr) -> bool {
        let other = Prefix {
            address: other,
            ..self
        };
        self.network() == other.network()
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

impl Serialize for Prefix {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
