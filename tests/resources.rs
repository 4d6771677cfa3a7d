//! Promise: clients can read the state of a node as resources with the names they know.

use tests::client::Client;
use tests::disk::NodeDisk;
use tests::node::{Node, SOON};

/// Waits until a node's resources of a type contain all of these texts.
fn says(node: &Node, client: &Client, of: &[&str], told: &[&str]) {
    let arguments = [&["get"], of, &["-o", "yaml"]].concat();
    node.until(&format!("{told:?} in {of:?}"), SOON, || {
        let text = client.call(&arguments)?;
        match told.iter().find(|word| !text.contains(**word)) {
            Some(word) => Err(format!("{word}: {text}")),
            None => Ok(()),
        }
    });
}

#[test]
#[ignore = "make test-vm"]
fn resources_show_api_services_devices_and_trim_times() {
    let node = NodeDisk::new("resources", 4).start(|machine| machine);
    node.wait_maintenance();
    let nobody = node.insecure();
    let open = ["50000", "10.0.2.15"];
    says(&node, &nobody, &["maintenanceserviceconfigs"], &open);
    let anybody = ["skipVerifyingClientCert: true", "readonlyRoleMode: true"];
    says(&node, &nobody, &["apiserviceconfigs", "apid"], &anybody);
    node.configure();
    node.apply_patch("apiVersion: v1alpha1\nkind: FilesystemTrimConfig\ninterval: 168h\n");
    let admin = node.admin();
    let those_with_certificates = ["skipVerifyingClientCert: false"];
    says(
        &node,
        &admin,
        &["apiserviceconfigs", "apid"],
        &those_with_certificates,
    );
    says(&node, &admin, &["metaloads"], &["done: true"]);
    says(
        &node,
        &admin,
        &["discoveredvolumesstatuses"],
        &["ready: true"],
    );
    says(&node, &admin, &["blocksymlinks"], &["/dev/disk/by-"]);
    let turn = ["filesystem: xfs", "interval: 168h0m0s", "nextTrim: "];
    says(&node, &admin, &["volumetrimschedules", "EPHEMERAL"], &turn);
    let gone = admin.call(&["get", "maintenanceserviceconfigs"]);
    let gone = gone.unwrap_or_else(|error| panic!("{error}"));
    assert!(!gone.contains("50000"), "{gone}");
    // QEMU's card has a driver that reports its id, and an interface name.
    says(&node, &admin, &["links"], &["duplex: ", "vendorID: "]);
}
