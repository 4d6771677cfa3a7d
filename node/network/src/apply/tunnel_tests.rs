//! Tests tunnels among the links.

use corten_types::network_wireguard::WireguardPeer;

use super::tests::{Fake, LAYER, all, apply_to, prefix};
use super::*;
use crate::layers::Specs;
use crate::wireguard::Found as FoundTunnel;
use crate::wireguard::tests::{peer, tunnel};

const PEERS: &str = "set the keys and peers of wg0";

pub(super) fn with_tunnel(peers: &[WireguardPeer]) -> Units {
    let mut specs = Specs::default();
    let link = specs.link(LAYER, "wg0");
    (link.logical, link.kind, link.link_type) = (true, wireguard::KIND, "nohdr");
    link.wireguard = Some(tunnel(peers));
    specs.address(LAYER, "wg0", prefix("10.8.0.1/24"), 0);
    all(&specs)
}

#[tokio::test]
async fn peer_changes_do_not_recreate_the_wireguard_link() {
    let (fake, mut memory) = (Fake::default(), Memory::default());
    let one = with_tunnel(&[peer(2, "", &["10.8.0.2/32"])]);
    assert!(apply_to(&fake, &mut memory, &one).await.is_empty());
    let expected = [
        "create the wireguard wg0",
        PEERS,
        "set wg0 up",
        "add the address 10.8.0.1/24 to wg0",
    ];
    assert_eq!(fake.taken(), expected);
    let other = with_tunnel(&[peer(3, "", &["10.8.0.2/32"])]);
    assert!(apply_to(&fake, &mut memory, &other).await.is_empty());
    assert_eq!(fake.taken(), [PEERS]);
    // Another program removes the peers.
    let lose = |fake: &Fake| {
        let mut found = fake.found.lock().unwrap();
        let tunnel = &mut found.links.get_mut("wg0").unwrap().wireguard;
        tunnel.as_mut().unwrap().settings.peers.clear();
    };
    lose(&fake);
    assert!(apply_to(&fake, &mut memory, &other).await.is_empty());
    assert_eq!(fake.taken(), [PEERS]);
    // A refused change is reported without any key, and the former tunnel stays.
    let before = fake.look().await.unwrap();
    fake.refuse(&["peers"]);
    let complaints = apply_to(&fake, &mut memory, &one).await;
    let told = format!("cannot {PEERS}: refused; the previous settings are restored");
    assert_eq!(complaints, [told]);
    assert_eq!(fake.look().await.unwrap(), before);
    apply_to(&fake, &mut memory, &Units::new()).await;
    assert!(fake.look().await.unwrap().links.is_empty());
}

#[tokio::test]
async fn wireguard_link_takes_its_port_once_it_is_free() {
    let (fake, mut memory) = (Fake::with(&["wg9"]), Memory::default());
    let other_takes = |port: u16| {
        let mut found = fake.found.lock().unwrap();
        let tunnel = &mut found.links.get_mut("wg9").unwrap().wireguard;
        let settings = &mut tunnel.get_or_insert_with(FoundTunnel::default).settings;
        settings.listen_port = port;
    };
    other_takes(51820);
    let wanted = with_tunnel(&[peer(2, "", &["10.8.0.2/32"])]);
    fake.refuse(&["peers"]);
    let complaints = apply_to(&fake, &mut memory, &wanted).await;
    assert_eq!(complaints, [format!("cannot {PEERS}: refused")]);
    fake.refuse(&[]);
    fake.taken();
    // While nothing changes, the kernel would refuse again.
    apply_to(&fake, &mut memory, &wanted).await;
    assert_eq!(fake.taken(), [""; 0]);
    other_takes(51821);
    assert!(apply_to(&fake, &mut memory, &wanted).await.is_empty());
    assert_eq!(fake.taken()[0], PEERS);
}
