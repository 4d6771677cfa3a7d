//! Promise: in mode try, the node itself reverts a config that cuts off its operator, whatever the
//! config contains.

use std::time::{Duration, Instant};

use tests::client::{Table, generate_config};
use tests::images;
use tests::node::{Node, SOON};

/// Long enough to see the node unreachable, even on a busy host.
const TRY: Duration = Duration::from_secs(90);

#[test]
#[ignore = "make test-vm"]
fn tried_config_is_reverted() {
    let boot = images::direct();
    let node = Node::start("config", |m| m.direct(boot));
    node.configure();
    // With this config the node belongs to another cluster.
    let other = node.vm.dir().join("other-cluster");
    generate_config(&other);
    let file = other.join("controlplane.yaml");
    let file = file.to_str().expect("UTF-8 path");
    let apply = ["apply-config", "-f", file];

    // A dry run changes nothing.
    let admin = node.admin();
    admin.call(&[&apply[..], &["--dry-run"]].concat()).unwrap();
    node.ask(&admin, &["version"], SOON);

    let start = Instant::now();
    let timeout = format!("{}s", TRY.as_secs());
    admin
        .call(&[&apply[..], &["--mode", "try", "--timeout", &timeout]].concat())
        .unwrap();
    node.until("the loss of the connection", TRY, || {
        match admin.call(&["version"]) {
            Err(refusal) if refusal.contains("certificate") => Ok(()),
            other => Err(format!("still answering: {other:?}")),
        }
    });
    node.ask(&admin, &["version"], TRY + SOON);
    assert!(
        start.elapsed() >= TRY,
        "the config was reverted before its timeout"
    );
}

/// Timeout of a call that gets no answer, well below [`TRY`].
const PATIENCE: Duration = Duration::from_secs(10);
/// An address in a network without any other machine.
const WRONG: &str = "192.0.2.77/24";

#[test]
#[ignore = "make test-vm"]
fn tried_unreachable_network_is_reverted() {
    let boot = images::direct();
    let node = Node::start("config-network", |m| m.direct(boot));
    node.configure();
    let admin = node.admin();
    let own = Table::parse(&admin.call(&["get", "addresses"]).unwrap());
    let rows = own.column("ADDRESS").into_iter().zip(own.column("LINK"));
    let (before, link) = rows
        .filter(|(address, _)| address.starts_with("10.0.2."))
        .map(|(address, link)| (address.to_owned(), link.to_owned()))
        .next()
        .expect("an address by DHCP");
    let patch = format!(
        "machine: {{network: {{interfaces: [{{interface: {link}, addresses: [{WRONG}]}}]}}}}\n"
    );
    let timeout = format!("{}s", TRY.as_secs());
    node.apply_patch_as(&admin, &patch, &["--mode", "try", "--timeout", &timeout]);
    let address = WRONG.split('/').next().expect("an address");
    node.vm
        .wait_console(&format!("network: address {address}"), SOON)
        .unwrap();
    let gone = before.split('/').next().expect("an address");
    node.vm
        .wait_console(&format!("network: address {gone} is gone"), SOON)
        .unwrap();
    // Packets are lost, so that a call without a timeout would wait until the node reverts.
    let refusal = admin.call_within(PATIENCE, &["version"]).unwrap_err();
    assert!(!refusal.contains("certificate"), "{refusal}");

    node.ask(&admin, &["version"], TRY + SOON);
    let console = node.vm.console().text();
    let told = "the trial of the config has ended";
    assert!(console.contains(told), "{console}");
    node.until("the old address alone", SOON, || {
        let text = admin.call(&["get", "addresses"])?;
        if text.contains(&before) && !text.contains(WRONG) {
            Ok(())
        } else {
            Err(text)
        }
    });
}
