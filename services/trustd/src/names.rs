//! Filters the names of a certificate request: no name of a control plane node, and no address of another network.

use std::collections::BTreeSet;
use std::net::IpAddr;

/// The names of the control plane, and this node's networks.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// In the form of [`plain`].
    reserved: BTreeSet<String>,
    networks: Vec<(IpAddr, u8)>,
}

/// Reason why a name is left out of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The name belongs to a control plane node or to the cluster's endpoint.
    ControlPlane,
    /// The address is neither the peer's nor within a network of this node.
    Elsewhere,
}

impl Why {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Why::ControlPlane => "names of the control plane",
            Why::Elsewhere => "addresses that are neither the peer's nor in a network of this node",
        }
    }
}

impl Names {
    /// Parses machined's file: one `control-plane NAME` or `network ADDRESS/PREFIX` per line. `own` are further names
    /// of this node.
    ///
    /// # Errors
    /// The invalid line.
    pub(crate) fn parse(text: &str, own: &[String]) -> Result<Names, String> {
        let mut names = Names::default();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("control-plane", name)) if !name.trim().is_empty() => names.reserve(name),
                Some(("network", network)) => {
                    let network = parse_network(network);
                    names.networks.push(
                        network.ok_or_else(|| format!("the line {line:?} has no valid network"))?,
                    );
                }
                _ => return Err(format!("the line {line:?} has an unknown keyword")),
            }
        }
        own.iter().for_each(|name| names.reserve(name));
        Ok(names)
    }

    /// Reserves a name. Loopback names are exempt: every node has them, and they reach no other machine.
    fn reserve(&mut self, name: &str) {
        if !is_loopback(name) {
            self.reserved.insert(plain(name));
        }
    }

    /// Reason why a name in the request of `peer` is not signed; `None` if it is signed.
    pub(crate) fn left_out(&self, name: &str, peer: IpAddr) -> Option<Why> {
        let plain = plain(name);
        if self.reserved.contains(&plain) {
            return Some(Why::ControlPlane);
        }
        let address: IpAddr = plain.parse().ok()?;
        let known = address.is_loopback()
            || address == peer.to_canonical()
            || self
                .networks
                .iter()
                .any(|(network, prefix)| is_in(address, *network, *prefix));
        (!known).then_some(Why::Elsewhere)
    }
}

/// Normalizes a name. Other TLS clients treat an IPv4 address and its IPv6 form as equal.
fn plain(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => name.trim_end_matches('.').to_ascii_lowercase(),
    }
}

fn is_loopback(name: &str) -> bool {
    name.parse::<IpAddr>()
        .map_or(name == "localhost", |address| address.is_loopback())
}

fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let prefix: u8 = prefix.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    // A network of all addresses would allow every address.
    (1..=most)
        .contains(&prefix)
        .then(|| (address.to_canonical(), prefix))
}

fn is_in(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    let (differ, size) = match (address, network) {
        (IpAddr::V4(one), IpAddr::V4(other)) => {
            (u128::from(one.to_bits() ^ other.to_bits()), 32_u32)
        }
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits(), 128),
        _ => return false,
    };
    let host = size.saturating_sub(prefix.into());
    differ.checked_shr(host).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "control-plane 10.0.0.2\ncontrol-plane CP.example.com\nnetwork 10.0.0.1/24\n\
        network fd00:1::1/64\n";

    fn left_out(name: &str, peer: &str) -> Option<Why> {
        let own = ["localhost", "127.0.0.1", "cp-1", "10.0.0.1"].map(str::to_owned);
        let names = Names::parse(FILE, &own).unwrap();
        names.left_out(name, peer.parse().unwrap())
    }

    #[test]
    fn control_plane_names_are_left_out_in_every_spelling() {
        for name in [
            "10.0.0.1",
            "10.0.0.2",
            "::ffff:10.0.0.2",
            "cp-1",
            "CP-1.",
            "cp.example.com",
        ] {
            assert_eq!(
                left_out(name, "10.0.0.7"),
                Some(Why::ControlPlane),
                "{name}"
            );
            // Not even for a peer with that address: another node may get the address later.
            assert_eq!(
                left_out(name, "10.0.0.2"),
                Some(Why::ControlPlane),
                "{name}"
            );
        }
    }

    #[test]
    fn address_must_be_that_of_the_peer_or_in_an_own_network() {
        for (name, peer) in [
            ("10.0.0.7", "10.0.0.8"),
            ("fd00:1::9", "10.0.0.8"),
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7", "::ffff:192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("127.0.0.1", "192.0.2.7"),
            ("::1", "192.0.2.7"),
            ("localhost", "192.0.2.7"),
            ("worker-1", "192.0.2.7"),
        ] {
            assert_eq!(left_out(name, peer), None, "{name} of {peer}");
        }
        for (name, peer) in [
            ("10.0.1.7", "10.0.0.8"),
            ("fd00:2::9", "10.0.0.8"),
            ("192.0.2.8", "192.0.2.7"),
            ("::a00:7", "10.0.0.8"),
        ] {
            assert_eq!(
                left_out(name, peer),
                Some(Why::Elsewhere),
                "{name} of {peer}"
            );
        }
    }

    #[test]
    fn hostile_lists_are_refused() {
        for text in [
            "10.0.0.1",
            "control-plane ",
            "network 10.0.0.0",
            "network 10.0.0.0/33",
            "network 10.0.0.0/0",
            "network ::/129",
            "network x/8",
            "other 1",
            "\n",
        ] {
            Names::parse(text, &[]).unwrap_err();
        }
        Names::parse("", &[]).unwrap();
    }
}
