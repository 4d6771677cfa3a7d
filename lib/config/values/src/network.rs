//! Addresses and names of networks.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use corten_yaml::read::{Reader, Value, scalar};
use corten_yaml::table::Shape;
use corten_yaml::tree::Node;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::names::is_host_name;
use crate::text::texts;

texts! {
    /// A network or an address, possibly excluded.
    SubnetMatch = "a network such as 10.0.0.0/8 or an address; with ! in front it is left out",
        |text| {
            let text = text.strip_prefix('!').unwrap_or(text);
            Cidr::parse(text).is_some() || text.parse::<IpAddr>().is_ok()
        };
}

/// Description of a [`Cidr`].
const CIDR: &str = "an address and prefix such as 10.0.0.1/24";

/// An address with the length of its network's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cidr {
    /// Address; bits after the prefix may be set.
    pub address: IpAddr,
    /// Prefix length, at most 32 for IPv4 and 128 for IPv6.
    pub prefix: u8,
}

impl Cidr {
    /// Parses `10.0.0.1/24` or `fd00::1/64`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Cidr> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let digits = prefix.bytes().all(|b| b.is_ascii_digit());
        let prefix: u8 = prefix.parse().ok().filter(|_| digits)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= most).then_some(Cidr { address, prefix })
    }

    /// The network itself, without bits after the prefix.
    #[must_use]
    pub fn network(&self) -> Cidr {
        let address = match self.address {
            IpAddr::V4(address) => {
                let host = 32_u32.saturating_sub(self.prefix.into());
                let mask = u32::MAX.checked_shl(host).unwrap_or(0);
                Ipv4Addr::from_bits(address.to_bits() & mask).into()
            }
            IpAddr::V6(address) => {
                let host = 128_u32.saturating_sub(self.prefix.into());
                let mask = u128::MAX.checked_shl(host).unwrap_or(0);
                Ipv6Addr::from_bits(address.to_bits() & mask).into()
            }
        };
        Cidr { address, ..*self }
    }

    /// Whether the network contains an address.
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        let other = Cidr {
            address: other,
            ..*self
        };
        self.network() == other.network()
    }

    /// Whether this is the network of all addresses.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.prefix == 0
    }
}

impl Default for Cidr {
    fn default() -> Cidr {
        Cidr {
            address: Ipv6Addr::UNSPECIFIED.into(),
            prefix: 128,
        }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cidr, D::Error> {
        let text = String::deserialize(deserializer)?;
        Cidr::parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not {CIDR}")))
    }
}

impl Value for Cidr {
    const SHAPE: Shape = Shape::Text(CIDR);
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, CIDR, Cidr::parse)
    }
}

/// A hardware address, 6 bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mac(pub [u8; 6]);

impl Value for Mac {
    const SHAPE: Shape = Shape::Text("a hardware address such as 02:00:00:00:00:01");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let what = "a hardware address such as 02:00:00:00:00:01";
        scalar(node, reader, what, |text| {
            let parts: Option<Vec<u8>> = text
                .split([':', '-'])
                .map(|part| {
                    let hex = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
                    u8::from_str_radix(part, 16).ok().filter(|_| hex)
                })
                .collect();
            parts?.try_into().ok().map(Mac)
        })
    }
}

/// `host:port`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// Host name, or address without brackets.
    pub host: String,
    /// Port; never 0.
    pub port: u16,
}

impl Value for Endpoint {
    const SHAPE: Shape = Shape::Text("host:port");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "host:port", |text| {
            let (host, port) = text.rsplit_once(':')?;
            let port = port.parse().ok().filter(|port| *port != 0)?;
            let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
            let good = match bare {
                Some(address) => address.parse::<Ipv6Addr>().is_ok(),
                None => is_host_name(host),
            };
            let host = bare.unwrap_or(host).to_owned();
            good.then_some(Endpoint { host, port })
        })
    }
}

/// A port or a range `first-last`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ports {
    /// Lowest port.
    pub first: u16,
    /// Highest port; not below `first`.
    pub last: u16,
}

impl Ports {
    /// Whether the range contains a port.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

impl Value for Ports {
    const SHAPE: Shape = Shape::Text("a port or a range such as 8000-8010");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(
            node,
            reader,
            "a port or a range such as 8000-8010",
            |text| {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let ports = Ports {
                    first: first.parse().ok()?,
                    last: last.parse().ok()?,
                };
                (ports.first <= ports.last).then_some(ports)
            },
        )
    }
}
