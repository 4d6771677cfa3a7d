//! Groups addresses into peers.

use std::net::{IpAddr, Ipv6Addr};

/// All addresses of one client: an IPv4 address, or a /64 network of IPv6. A machine gets a whole /64 (RFC 6177) and
/// can use any of its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl Peer {
    /// The peer with this address.
    #[must_use]
    pub fn of(address: IpAddr) -> Peer {
        Peer(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = v6.to_bits() & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from_bits(network))
            }
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> Peer {
        Peer::of(text.parse().unwrap())
    }

    #[test]
    fn peer_key_is_an_ipv4_address_or_an_ipv6_network() {
        assert_eq!(peer("10.0.0.1"), peer("::ffff:10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("fd00:0:0:1::1"), peer("fd00:0:0:1:ffff::2"));
        assert_ne!(peer("fd00:0:0:1::1"), peer("fd00:0:0:2::1"));
    }
}
