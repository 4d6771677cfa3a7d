//! Promise: a machine in a cloud takes its config, names and network from the platform, and shows what it is to it.
//!
//! Each test boots a machine with the platform's kernel parameter. A server of the test has the address of the metadata
//! service; its answers are in tests/support/clouds.rs.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use qemu::Machine;
use serde_json::{Deserializer, Value};
use tempfile::TempDir;
use tests::clouds::{
    AWS, AZURE, AZURE_DISC, CONFIG_DRIVE, Cloud, DIGITAL_OCEAN, GCP, GOAL, HCLOUD, HEALTH,
    METADATA, NOCLOUD, OPENSTACK, VMWARE, WIRE_SERVER,
};
use tests::disk::cd;
use tests::metadata::{NETWORK, Script};
use tests::node::{BOOT, Node, SOON};

fn start(
    cloud: &Cloud,
    name: &str,
    directory: &TempDir,
    shape: impl FnOnce(Machine) -> Machine,
) -> Node {
    let parameters = format!(" corten.platform={}", cloud.platform);
    Node::with_parameters(name, directory.path(), &parameters, shape)
}

/// Starts a machine whose platform answers at the usual address, and checks it.
fn boots(cloud: &Cloud) {
    let directory = tempfile::tempdir().unwrap();
    let server = cloud.service(directory.path(), 0);
    let name = format!("platform-{}", cloud.platform);
    let node = start(cloud, &name, &directory, |machine| {
        server.at(METADATA, machine)
    });
    is_seen(cloud, &node);
}

/// Starts a machine with a CD of the platform, and checks it.
fn boots_with_disc(cloud: &Cloud, name: &str, label: &str) {
    let directory = tempfile::tempdir().unwrap();
    let documents = cloud.documents(directory.path());
    let files = documents.iter().map(|(name, text)| (*name, text.as_str()));
    let iso = cd(directory.path(), label, &files.collect::<Vec<_>>());
    let node = start(cloud, name, &directory, |machine| {
        machine.subnet(NETWORK).cdrom(iso)
    });
    is_seen(cloud, &node);
}

/// Waits until the node has its config, and shows what the platform says.
fn is_seen(cloud: &Cloud, node: &Node) {
    let admin = node.admin();
    node.ask(&admin, &["version"], BOOT);
    let metadata = ["get", "platformmetadata", "-o", "json"];
    node.until("the platform's metadata", SOON, || {
        let text = admin.call(&metadata)?;
        let mut documents = Deserializer::from_str(&text).into_iter::<Value>();
        let document = documents.next().and_then(Result::ok).ok_or(&text)?;
        let spec = document.get("spec").ok_or(&text)?;
        let is_shown = |(field, expected): &(&str, &str)| match spec.get(field) {
            Some(Value::String(value)) => value == expected,
            Some(value) => format!("{value}") == **expected,
            None => false,
        };
        let is_whole = is_shown(&("platform", cloud.platform));
        let is_whole = is_whole && cloud.metadata.iter().all(is_shown);
        is_whole.then_some(()).ok_or(text)
    });
    for (kind, expected) in cloud.shown {
        node.until(&format!("{expected} in {kind}"), SOON, || {
            let text = admin.call(&["get", kind, "-o", "yaml"])?;
            text.contains(expected).then_some(()).ok_or(text)
        });
    }
}

#[test]
#[ignore = "make test-vm"]
fn aws_answers_after_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let server = AWS.service(directory.path(), 1);
    let node = start(&AWS, "platform-aws", &directory, |machine| {
        server.at(METADATA, machine)
    });
    is_seen(&AWS, &node);
    let console = node.vm.console().text();
    let told =
        "waiting for the platform aws: http://169.254.169.254/latest/api/token: the answer is 503";
    assert!(console.contains(told), "{console}");
}

#[test]
#[ignore = "make test-vm"]
fn azure_gets_a_report_of_the_machine() {
    let directory = tempfile::tempdir().unwrap();
    let server = AZURE.service(directory.path(), 0);
    let (request, goal) = GOAL;
    let wire = Script::new().answer(request, goal).answer(HEALTH, "");
    let wire = wire.serve();
    let node = start(&AZURE, "platform-azure", &directory, |machine| {
        wire.at(WIRE_SERVER, server.at(METADATA, machine))
    });
    is_seen(&AZURE, &node);
    node.until("a report of the machine", SOON, || {
        let asked = wire.asked();
        let is_told = asked.iter().any(|request| request == HEALTH);
        is_told.then_some(()).ok_or(format!("{asked:?}"))
    });
}

#[test]
#[ignore = "make test-vm"]
fn azure_without_metadata_service_has_a_disc() {
    boots_with_disc(&AZURE_DISC, "platform-azure-disc", "rd_rdfe_stable");
}

#[test]
#[ignore = "make test-vm"]
fn gcp_gives_config_identity_and_mtu() {
    boots(&GCP);
}

#[test]
#[ignore = "make test-vm"]
fn openstack_answers_by_its_metadata_service() {
    boots(&OPENSTACK);
}

#[test]
#[ignore = "make test-vm"]
fn openstack_config_drive_needs_no_metadata_service() {
    boots_with_disc(&CONFIG_DRIVE, "platform-config-drive", "config-2");
}

#[test]
#[ignore = "make test-vm"]
fn nocloud_server_of_the_serial_number_identifies_the_machine() {
    let directory = tempfile::tempdir().unwrap();
    let server = NOCLOUD.service(directory.path(), 0);
    let serial = "ds=nocloud-net;s=http://169.254.169.254/seed/";
    let node = start(&NOCLOUD, "platform-nocloud", &directory, |machine| {
        server.at(METADATA, machine).serial_number(serial)
    });
    is_seen(&NOCLOUD, &node);
}

#[test]
#[ignore = "make test-vm"]
fn vmware_ovf_environment_is_read_from_a_disc() {
    boots_with_disc(&VMWARE, "platform-vmware", "OVF ENV");
}

#[test]
#[ignore = "make test-vm"]
fn hcloud_gives_config_identity_and_ipv6_network() {
    boots(&HCLOUD);
}

#[test]
#[ignore = "make test-vm"]
fn digital_ocean_gives_config_identity_and_static_addresses() {
    boots(&DIGITAL_OCEAN);
}
