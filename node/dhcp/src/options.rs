//! Checks values that servers send in options of either protocol version.

use std::net::{IpAddr, Ipv4Addr};

use corten_values::is_host_name;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::proto::serialize::binary::{BinDecodable as _, BinDecoder};

/// Whether an address can belong to one host (RFC 1122, section 3.2.1.3; RFC 4291, section 2.4). A lease with any other
/// address is a mistake.
pub(crate) fn is_of_one(address: IpAddr) -> bool {
    let is_broadcast = address == IpAddr::from(Ipv4Addr::BROADCAST);
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_broadcast)
}

/// Domains of a search option, up to the first invalid one. Names may be compressed (RFC 1035, section 4.1.4).
pub(crate) fn domains(bytes: &[u8]) -> Vec<String> {
    let mut decoder = BinDecoder::new(bytes);
    let mut domains = Vec::new();
    while !decoder.is_empty()
        && let Ok(name) = Name::read(&mut decoder)
    {
        let name = name.to_ascii();
        domains.push(name.trim_end_matches('.').to_owned());
    }
    domains.retain(|name| is_host_name(name));
    domains
}

#[cfg(test)]
mod tests {
    use corten_corpus::hostile;
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    #[test]
    fn search_domains_may_be_compressed_and_hostile_ones_are_dropped() {
        let example = b"\x07example\x03com\x00";
        let second = [example.as_slice(), b"\x04node\xc0\x00"].concat();
        assert_eq!(domains(&second), ["example.com", "node.example.com"]);
        let endless = b"\x01a\xc0\x00";
        assert!(domains(endless).is_empty() && domains(b"\xc0").is_empty());
        let hostile = [b"\x03a\nb\x00".as_slice(), b"\x00", example, b"\x3f"].concat();
        assert_eq!(domains(&hostile), ["example.com"]);
    }

    proptest! {
        #[test]
        fn hostile_options_give_valid_names(bytes in hostile("dhcpv4")) {
            prop_assert!(domains(&bytes).iter().all(|name| is_host_name(name)));
            let options = bytes.get(236..).unwrap_or_default();
            prop_assert!(domains(options).iter().all(|name| is_host_name(name)));
        }
    }
}
