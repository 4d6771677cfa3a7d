use corten_pki::{Algorithm, Ca};

use super::*;

#[tokio::test]
async fn bootstrap_goes_on_only_where_no_member_can_run() {
    let directory = tempfile::tempdir().unwrap();
    let secrets = directory.path();
    none_answers(secrets, &[]).await.unwrap();
    // Without its certificates, this node sees no member.
    let others = [IpAddr::from([127, 0, 0, 77])];
    let why = none_answers(secrets, &others).await.unwrap_err();
    assert!(why.starts_with("cannot tell whether"), "{why}");
    let now = SystemTime::now();
    let ca = Ca::generate(Algorithm::EcdsaP256, "etcd", "", now).unwrap();
    let facts = Facts {
        nodename: "a".to_owned(),
        hostname: "a".to_owned(),
        fqdn: "a".to_owned(),
        addresses: Vec::new(),
        reachable: Vec::new(),
    };
    let own = Certificates::issue(&ca, &facts, now).unwrap();
    for (name, text) in [
        ("ca.crt", &ca.pem().crt),
        ("admin.crt", &own.admin.crt),
        ("admin.key", &own.admin.key),
    ] {
        fs::write(secrets.join(name), text).unwrap();
    }
    // Nothing listens at this address of the loopback network.
    none_answers(secrets, &others).await.unwrap();
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn at(listen: &[&str]) -> Addresses {
    Addresses {
        advertised: ips(&["10.0.0.1"]),
        listen_peer: ips(listen),
        listen_client: ips(&[&["127.0.0.1"], listen].concat()),
    }
}

fn subnets() -> Vec<String> {
    vec!["10.0.0.0/8".to_owned()]
}

fn started(listen: &[&str]) -> Started {
    Started {
        start: Start::Resume,
        name: "a".to_owned(),
        subnets: subnets(),
        addresses: at(listen),
    }
}

#[test]
fn member_that_listens_at_all_addresses_stays_when_its_node_moves() {
    let old = started(&["0.0.0.0"]);
    let elsewhere = Addresses {
        advertised: ips(&["10.0.0.9"]),
        ..at(&["0.0.0.0"])
    };
    let moved = old.moved(subnets(), &elsewhere, &ips(&["10.0.0.9"]));
    assert_eq!((moved.addresses, moved.start), (old.addresses, old.start));
}

#[test]
fn member_stays_when_a_link_loses_and_gets_back_its_carrier() {
    let both = ["10.0.0.1", "10.0.1.1"];
    // The address stays on its link, but no longer counts as one at which others reach the node.
    let moved = started(&both).moved(subnets(), &at(&both[..1]), &ips(&both));
    assert_eq!(moved.addresses, at(&both));
    let moved = moved.moved(subnets(), &at(&both), &ips(&both));
    assert_eq!(moved.addresses, at(&both));
    // The same with a link that has no carrier at the start.
    let moved = started(&both[..1]).moved(subnets(), &at(&both), &ips(&both));
    assert_eq!(moved.addresses, at(&both[..1]));
}

#[test]
fn member_moves_when_the_node_has_lost_an_address_at_which_it_listens() {
    let old = started(&["10.0.0.1", "10.0.1.1"]);
    let new = at(&["10.0.0.9"]);
    let moved = old.moved(subnets(), &new, &ips(&["10.0.0.9"]));
    assert_eq!(moved.addresses, new);
    // It goes on to listen at the address of a link without carrier.
    let moved = old.moved(subnets(), &new, &ips(&["10.0.0.9", "10.0.1.1"]));
    assert_eq!(moved.addresses, at(&["10.0.0.9", "10.0.1.1"]));
}

#[test]
fn member_moves_when_the_config_selects_other_listen_addresses() {
    let all = ips(&["10.0.0.1", "10.0.1.1"]);
    let moved = started(&["10.0.0.1"]).moved(Vec::new(), &at(&["0.0.0.0"]), &all);
    assert_eq!(moved.addresses, at(&["0.0.0.0"]));
    // Other subnets with the same addresses are no other ones.
    let same = Addresses {
        advertised: ips(&["10.0.1.1"]),
        ..at(&["0.0.0.0"])
    };
    let again = moved.moved(subnets(), &same, &[]);
    assert_eq!(again.addresses, moved.addresses);
}

#[test]
fn only_a_member_that_is_to_join_is_planned_anew_under_another_name() {
    let joins = Started {
        start: Start::Join(Vec::new()),
        ..started(&["10.0.0.1"])
    };
    assert!(has_other_name(Some(&joins), "b"));
    assert!(!has_other_name(Some(&joins), "a"));
    assert!(!has_other_name(Some(&started(&["10.0.0.1"])), "b"));
    assert!(!has_other_name(None, "b"));
}

#[tokio::test]
async fn restoration_is_interrupted_by_another_config_or_an_order() {
    let config = || corten_base::sample::config("", "");
    let (configs, config_seen) = watch::channel(Some(config()));
    let (orders, orders_seen) = watch::channel(None);
    let mut etcd = Etcd {
        config: config_seen,
        orders: orders_seen,
        volumes: watch::channel(Progress::Settled).1,
        supervisor: None,
    };
    let own = config();
    let soon = Duration::from_millis(50);
    configs.send(Some(config())).unwrap();
    let waits = timeout(soon, etcd.changed(&own)).await;
    assert!(waits.is_err(), "the config is the same");
    orders.send(Some(Order::Begin(Begin::Empty))).unwrap();
    etcd.changed(&own).await;
    // The controller still sees the order.
    assert!(etcd.orders.has_changed().unwrap());
    etcd.orders.borrow_and_update();
    configs.send(None).unwrap();
    etcd.changed(&own).await;
    assert!(etcd.config.has_changed().unwrap());
    drop((configs, orders));
    etcd.config.borrow_and_update();
    timeout(soon, etcd.changed(&own)).await.unwrap();
}
