//! Recognizes names and addresses of this node.

use std::net::{IpAddr, UdpSocket};

/// Whether `target` (a host name or an address, as a client writes it) is this node. `reached` is the local address of
/// the caller's connection. `authority` is the host that the caller used. Behind a port forwarding only the caller
/// knows that name, and there it means this node.
pub(crate) fn is_this_node(target: &str, reached: IpAddr, authority: Option<&str>) -> bool {
    let target = unbracketed(target);
    if let Ok(address) = bare(target).parse::<IpAddr>() {
        let address = address.to_canonical();
        if address == reached.to_canonical() || address.is_loopback() || is_assigned(address) {
            return true;
        }
    } else if is_hostname(target) {
        return true;
    }
    authority
        .map(host)
        .is_some_and(|host| host.eq_ignore_ascii_case(target))
}

/// Whether an interface of this node has the address: the kernel binds no socket to the address of another host.
fn is_assigned(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    let is_of_no_host = address.is_unspecified() || address.is_multicast() || is_broadcast;
    !is_of_no_host && UdpSocket::bind((address, 0)).is_ok()
}

/// A target without the brackets of an IPv6 address.
pub(crate) fn unbracketed(target: &str) -> &str {
    target
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(target)
}

/// A target as certificates name it: without brackets and IPv6 zone.
pub(crate) fn bare(target: &str) -> &str {
    let target = unbracketed(target);
    match target.split_once('%') {
        Some((address, zone)) if is_zone(zone) => address,
        _ => target,
    }
}

/// Whether the text can be the name of a network interface.
fn is_zone(text: &str) -> bool {
    let usual = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    (1..16).contains(&text.len()) && text.chars().all(usual)
}

/// The host of `host:port`, `[v6]:port` or `host`.
fn host(authority: &str) -> &str {
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    match authority.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') && port.chars().all(|c| c.is_ascii_digit()) => {
            host
        }
        _ => authority,
    }
}

fn is_hostname(name: &str) -> bool {
    nix::unistd::gethostname().is_ok_and(|own| {
        let own = own.to_string_lossy().to_ascii_lowercase();
        let name = name.to_ascii_lowercase();
        let short = own.split('.').next().unwrap_or_default();
        !name.is_empty() && (name == own || name == short)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REACHED: &str = "10.0.2.15";

    fn own(target: &str, authority: &str) -> bool {
        is_this_node(target, REACHED.parse().unwrap(), Some(authority))
    }

    #[test]
    fn own_address_loopback_and_called_name_mean_this_node() {
        assert!(own("10.0.2.15", "x:1"));
        assert!(own("127.0.0.1", "x:1"));
        assert!(own("::1", "x:1"));
        assert!(own("node.example", "Node.example:50001"));
        assert!(own("fd00::5", "[fd00::5]:50000"));
        assert!(is_this_node(
            "10.0.2.15",
            "::ffff:10.0.2.15".parse().unwrap(),
            None
        ));
    }

    #[test]
    fn other_hosts_are_not_this_node() {
        assert!(!own("192.0.2.7", "node.example:50000"));
        assert!(!own("other.example", "node.example:50000"));
        assert!(!own("", "node.example:50000"));
    }

    #[test]
    fn addresses_of_interfaces_are_assigned_and_no_others() {
        for (address, is_own) in [
            ("127.0.0.2", true),
            ("192.0.2.7", false),
            ("2001:db8::7", false),
            ("0.0.0.0", false),
            ("::", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(is_assigned(address.parse().unwrap()), is_own, "{address}");
        }
    }

    #[test]
    fn host_is_parsed_from_an_authority() {
        assert_eq!(host("a:1"), "a");
        assert_eq!(host("a"), "a");
        assert_eq!(host("[::1]:50"), "::1");
        assert_eq!(host("::1"), "::1");
    }
}
