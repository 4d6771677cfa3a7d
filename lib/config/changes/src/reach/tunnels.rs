//! Changes of WireGuard tunnels that cut off peers.

use std::collections::{BTreeMap, BTreeSet};

use corten_values::{Cidr, WireguardKey, WireguardSecret};

use corten_config::Document;
use corten_config::kinds::WireguardConfig;

/// A WireGuard link, from either form.
struct Tunnel {
    private_key: WireguardSecret,
    listen_port: Option<u16>,
    peers: BTreeMap<WireguardKey, Peer>,
}

/// The preshared key and the allowed networks.
type Peer = (Option<WireguardSecret>, BTreeSet<Cidr>);

/// Peers that could use a tunnel and cannot any more.
pub(super) fn risks(old: &Document, new: &Document) -> Vec<String> {
    let after = tunnels_of(new);
    let mut risks = Vec::new();
    for (name, before) in tunnels_of(old) {
        let Some(after) = after.get(&name) else {
            risks.push(format!("the tunnel {name} is removed"));
            continue;
        };
        if after.private_key != before.private_key {
            risks.push(format!(
                "{name} gets another private key, which its peers do not know"
            ));
        }
        if after.listen_port != before.listen_port {
            risks.push(format!("{name} listens on another port"));
        }
        for (peer, (secret, networks)) in &before.peers {
            let Some((secret_after, networks_after)) = after.peers.get(peer) else {
                risks.push(format!("{name} loses its peer {peer}"));
                continue;
            };
            if secret != secret_after {
                let what = "another preshared key, which the peer does not know";
                risks.push(format!("{name} and its peer {peer} get {what}"));
            }
            for network in networks.difference(networks_after) {
                risks.push(format!(
                    "{name} no longer accepts {network} from its peer {peer}"
                ));
            }
        }
    }
    risks
}

fn peer_of(
    key: WireguardKey,
    secret: Option<WireguardSecret>,
    allowed: &[Cidr],
) -> (WireguardKey, Peer) {
    // A key of zeros means none.
    let secret = secret.filter(|secret| *secret != WireguardSecret::default());
    (key, (secret, allowed.iter().map(Cidr::network).collect()))
}

fn tunnels_of(document: &Document) -> BTreeMap<String, Tunnel> {
    let by_kind = document.all::<WireguardConfig>().map(|config| {
        let tunnel = Tunnel {
            private_key: config.private_key,
            listen_port: config.listen_port,
            peers: config
                .peers
                .iter()
                .map(|peer| peer_of(peer.public_key, peer.preshared_key, &peer.allowed_ips))
                .collect(),
        };
        (config.name.to_string(), tunnel)
    });
    let interfaces = document.machine.network.interfaces.iter();
    let old_form = interfaces.filter_map(|interface| {
        let config = interface.wireguard.as_ref()?;
        let tunnel = Tunnel {
            private_key: config.private_key,
            listen_port: config.listen_port,
            peers: config
                .peers
                .iter()
                .map(|peer| peer_of(peer.public_key, None, &peer.allowed_ips))
                .collect(),
        };
        Some((interface.interface.as_ref()?.to_string(), tunnel))
    });
    by_kind.chain(old_form).collect()
}
