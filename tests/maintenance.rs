//! Promise: a node without a config waits for one, accepts it once from any client, and from then
//! on serves only its owner.

use tests::client::{Client, Table, generate_config};
use tests::images;
use tests::node::{Node, SOON};

#[test]
#[ignore = "make test-vm"]
fn config_applied_over_the_api_sets_the_owner() {
    let boot = images::direct();
    let node = Node::start("maintenance", |m| m.direct(boot));
    node.wait_maintenance();
    // The console shows the boot's progress, its duration, and the address of the API.
    for part in [
        "boot 1/",
        "boot took ",
        " s since the kernel started",
        " at 10.0.2.",
        "API on port 50000",
    ] {
        let seen = node.vm.wait_console(part, SOON);
        seen.unwrap_or_else(|error| panic!("{error}"));
    }

    // Calls that need a config are refused with an error, not ignored.
    let refused = node
        .insecure()
        .call(&["reboot", "--wait=false"])
        .unwrap_err();
    assert!(refused.to_lowercase().contains("permission"), "{refused}");
    // An invalid config is refused and changes nothing.
    let nonsense = node.vm.dir().join("nonsense.yaml");
    std::fs::write(&nonsense, "version: v1alpha1\nmachine: {type: teapot}\n").unwrap();
    let refused = node
        .insecure()
        .call(&["apply-config", "-f", nonsense.to_str().unwrap()]);
    assert!(refused.is_err(), "{refused:?}");
    node.ask(&node.insecure(), &["version"], SOON);

    node.configure();
    // Pods reach a Service of their own node through this module, which nothing else requests.
    node.until("the filter of bridges", SOON, || {
        let modules = node.admin().call(&["read", "/proc/modules"])?;
        let is_there = modules.contains("br_netfilter ");
        is_there.then_some(()).ok_or(modules)
    });
    let memory = node.ask(&node.admin(), &["memory"], SOON);
    let table = Table::parse(&memory);
    assert_eq!(
        table.headers,
        [
            "NODE",
            "TOTAL",
            "USED",
            "FREE",
            "SHARED",
            "BUFFERS",
            "CACHE",
            "AVAILABLE"
        ]
    );
    let total: u64 = table.column("TOTAL")[0].parse().unwrap();
    assert!(
        (300..512).contains(&total),
        "{total} MiB of 512 reported:\n{memory}"
    );

    // From now on the node refuses strangers and the owners of other clusters.
    let stranger = node.insecure().call(&["version"]);
    assert!(
        stranger.is_err(),
        "a client without a certificate got {stranger:?}"
    );
    let other = node.vm.dir().join("other-cluster");
    generate_config(&other);
    let other = Client::with_config(node.vm.api(), &other.join("cortenconfig"));
    let outsider = other.call(&["version"]);
    assert!(
        outsider.is_err(),
        "another cluster's owner got {outsider:?}"
    );
    node.ask(&node.admin(), &["version"], SOON);
}
