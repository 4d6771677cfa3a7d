//! Promise: a config that cuts its operator off in mode try is taken back by
//! the node itself.

use std::time::{Duration, Instant};

use tests::client::generate_config;
use tests::images;
use tests::node::{Node, SOON};

/// Long enough to see the node unreachable, even on a busy host.
const TRY: Duration = Duration::from_secs(90);

#[test]
#[ignore = "make test-vm"]
fn a_tried_config_is_taken_back() {
    let boot = images::direct();
    let node = Node::start("config", |m| m.direct(boot));
    node.configure();
    // With it the node is another cluster's, and its owner nobody.
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
    node.until("the operator cut off", TRY, || {
        match admin.call(&["version"]) {
            Err(refusal) if refusal.contains("certificate") => Ok(()),
            other => Err(format!("still answering: {other:?}")),
        }
    });
    node.ask(&admin, &["version"], TRY + SOON);
    assert!(start.elapsed() >= TRY, "it came back before its time");
}
