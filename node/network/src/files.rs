//! The name files of the C library: `/etc/{hostname,hosts,resolv.conf}` are symbolic links to these in `/run/names`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

/// More than this many name servers are ignored by every resolver (resolv.conf(5), MAXNS).
const MAX_SERVERS: usize = 3;

/// Names of the files.
pub const NAMES: [&str; 3] = ["hostname", "hosts", "resolv.conf"];

/// Address of the node's name while the node has no other. Others cannot use it.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 1, 1));

/// Contents of the files, in the order of [`NAMES`]. `address` is the node's own.
#[must_use]
pub fn contents(
    hostname: &str,
    address: Option<IpAddr>,
    static_hosts: &BTreeMap<String, Vec<IpAddr>>,
    dns: &[IpAddr],
    search: &[String],
) -> [String; 3] {
    [
        format!("{hostname}\n"),
        hosts(hostname, address, static_hosts),
        resolv_conf(dns, search),
    ]
}

/// A fully qualified name is also known by its first label.
fn hosts(
    hostname: &str,
    address: Option<IpAddr>,
    others: &BTreeMap<String, Vec<IpAddr>>,
) -> String {
    let short = hostname.split('.').next().unwrap_or_default();
    // Some networks give this name to each machine. What listens at it must not become reachable.
    let address = address.filter(|_| !short.eq_ignore_ascii_case("localhost"));
    let address = address.unwrap_or(NO_ADDRESS);
    let names = if short == hostname {
        hostname.to_owned()
    } else {
        format!("{hostname} {short}")
    };
    let mut text = format!(
        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n{address} {names}\n"
    );
    for (name, addresses) in others {
        for address in addresses {
            let _ = writeln!(text, "{address} {name}");
        }
    }
    text
}

fn resolv_conf(dns: &[IpAddr], search: &[String]) -> String {
    let mut text = String::new();
    for server in dns.iter().take(MAX_SERVERS) {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !search.is_empty() {
        let _ = writeln!(text, "search {}", search.join(" "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_files_have_the_expected_contents() {
        let dns: Vec<IpAddr> = (1..=5).map(|last| IpAddr::from([10, 0, 0, last])).collect();
        let [hostname, hosts, resolv_conf] = contents(
            "node1.example.com",
            None,
            &BTreeMap::from([("db".to_owned(), vec![IpAddr::from([10, 9, 9, 9])])]),
            &dns,
            &["example.com".to_owned()],
        );
        assert_eq!(hostname, "node1.example.com\n");
        assert!(hosts.ends_with("127.0.1.1 node1.example.com node1\n10.9.9.9 db\n"));
        assert_eq!(
            resolv_conf,
            "nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.3\nsearch example.com\n"
        );
    }
    #[test]
    fn node_name_has_the_address_by_which_others_reach_the_node() {
        for (address, line) in [
            ("10.0.0.5", "\n10.0.0.5 n1.test n1\n"),
            ("fd00::5", "\nfd00::5 n1.test n1\n"),
        ] {
            let address = address.parse().ok();
            let [_, hosts, _] = contents("n1.test", address, &BTreeMap::new(), &[], &[]);
            assert!(
                hosts.ends_with(line) && !hosts.contains("127.0.1.1"),
                "{hosts}"
            );
            let [_, hosts, _] = contents("localhost", address, &BTreeMap::new(), &[], &[]);
            assert!(hosts.ends_with("\n127.0.1.1 localhost\n"), "{hosts}");
        }
    }
}
