//! Promise: a node without a config fetches one from the sources that its kernel parameters name,
//! before it accepts one from any client.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tests::client::generate_config;
use tests::disk::cd;
use tests::metadata::Script;
use tests::node::{BOOT, Node, SOON};

/// This host's address for the guest.
const HOST: &str = "10.0.2.2";
/// The guest's hardware address, QEMU's first one.
const MAC: &str = "52:54:00:12:34:56";

/// A config, compressed and encoded as a kernel parameter.
fn packed(config: &str) -> String {
    let mut zstd = Command::new("zstd")
        .args(["-q", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    zstd.stdin
        .take()
        .unwrap()
        .write_all(config.as_bytes())
        .unwrap();
    STANDARD.encode(zstd.wait_with_output().unwrap().stdout)
}

fn start(name: &str, configs: &Path, parameters: &str, cd: Option<&Path>) -> Node {
    Node::with_parameters(name, configs, parameters, |machine| match cd {
        Some(iso) => machine.cdrom(iso),
        None => machine,
    })
}

fn read(directory: &Path, name: &str) -> String {
    std::fs::read_to_string(directory.join(name)).unwrap()
}

#[test]
#[ignore = "make test-vm"]
fn config_comes_from_a_server_with_a_patch_in_the_parameters() {
    let directory = tempfile::tempdir().unwrap();
    generate_config(directory.path());
    let config = std::fs::read(directory.path().join("controlplane.yaml")).unwrap();
    let server = Script::new()
        .answer(&format!("GET /{MAC}"), config)
        .failing(1)
        .serve();
    let port = server.port();
    let inline = packed("machine: {network: {hostname: inline}}\n");
    let parameters =
        format!(" corten.config=http://{HOST}:{port}/${{mac}} corten.config.inline={inline}");
    let node = start("acquire-url", directory.path(), &parameters, None);
    node.ask(&node.admin(), &["version"], BOOT);
    let name = node.ask(&node.admin(), &["get", "hostname"], SOON);
    assert!(name.contains("inline"), "{name}");
    assert_eq!(
        server.asked(),
        [format!("GET /{MAC}"), format!("GET /{MAC}")]
    );
}

#[test]
#[ignore = "make test-vm"]
fn config_behind_an_authorization_server_comes_with_the_token_of_the_device_flow() {
    let directory = tempfile::tempdir().unwrap();
    generate_config(directory.path());
    let device = json!({
        "device_code": "device",
        "user_code": "WDJB-MJHT",
        "verification_uri": "https://id.example/device",
        "interval": 1,
        "expires_in": 600,
    });
    let token = json!({"access_token": "T0KEN", "token_type": "Bearer"});
    let server = Script::new()
        .answer("POST /device/code", device.to_string())
        .answer("POST /token", token.to_string())
        .answer("GET /c", read(directory.path(), "controlplane.yaml"))
        .needs("Authorization", "Bearer T0KEN")
        .serve();
    let port = server.port();
    let parameters = format!(
        " corten.config=http://{HOST}:{port}/c corten.config.oauth.client_id=node \
         corten.config.oauth.client_secret=S3CRET"
    );
    let node = start("acquire-oauth", directory.path(), &parameters, None);
    node.ask(&node.admin(), &["version"], BOOT);
    let console = node.vm.console().text();
    let shown = "visit https://id.example/device and enter the code WDJB-MJHT";
    assert!(console.contains(shown), "{console}");
    let log = node.ask(&node.admin(), &["dmesg"], SOON);
    assert!(log.contains("client_secret=******"), "{log}");
    for secret in ["S3CRET", "T0KEN"] {
        assert!(!log.contains(secret), "{log}");
    }
    let expected = ["POST /device/code", "POST /token", "GET /c"];
    assert_eq!(server.asked(), expected);
}

#[test]
#[ignore = "make test-vm"]
fn config_comes_from_a_volume() {
    let directory = tempfile::tempdir().unwrap();
    generate_config(directory.path());
    let config = read(directory.path(), "controlplane.yaml");
    let iso = cd(directory.path(), "metal-iso", &[("config.yaml", &config)]);
    let parameters = " corten.config=metal-iso";
    let node = start("acquire-volume", directory.path(), parameters, Some(&iso));
    node.ask(&node.admin(), &["version"], BOOT);
}

#[test]
#[ignore = "make test-vm"]
fn config_comes_from_a_volume_that_appears_late() {
    let directory = tempfile::tempdir().unwrap();
    generate_config(directory.path());
    let config = read(directory.path(), "controlplane.yaml");
    let iso = cd(directory.path(), "metal-iso", &[("config.yaml", &config)]);
    let parameters = " corten.config=metal-iso";
    let node = Node::with_parameters("acquire-late", directory.path(), parameters, |machine| {
        machine.sockets(1)
    });
    node.vm.wait_console("looking again in 1 s", BOOT).unwrap();
    let file = json!({"driver": "file", "filename": iso, "read-only": true});
    let disk = json!({"driver": "raw", "node-name": "late", "read-only": true, "file": file});
    let qmp = node.vm.qmp();
    qmp.execute("blockdev-add", &disk).unwrap();
    let device =
        json!({"driver": "virtio-blk-pci", "id": "late", "bus": "socket1", "drive": "late"});
    qmp.device_add(&device).unwrap();
    node.ask(&node.admin(), &["version"], SOON);
}

/// The address that QEMU forwards the API to, with another prefix than from QEMU's DHCP.
const NETWORK: &str = "\
version: 2
ethernets:
  uplink:
    match: {name: 'e*'}
    addresses: [10.0.2.15/25]
    gateway4: 10.0.2.2
    nameservers: {addresses: [10.0.2.3]}
";

#[test]
#[ignore = "make test-vm"]
fn network_and_host_name_come_from_a_nocloud_seed() {
    let directory = tempfile::tempdir().unwrap();
    generate_config(directory.path());
    let files = [
        ("user-data", read(directory.path(), "controlplane.yaml")),
        ("network-config", NETWORK.to_owned()),
        (
            "meta-data",
            "instance-id: i-1\nlocal-hostname: seeded-7.example.com\n".to_owned(),
        ),
    ];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let iso = cd(directory.path(), "cidata", &files);
    let parameters = " corten.platform=nocloud";
    let node = start("acquire-seed", directory.path(), parameters, Some(&iso));
    node.ask(&node.admin(), &["version"], BOOT);
    let admin = node.admin();
    for (kind, expected) in [
        ("addresses", "10.0.2.15/25"),
        ("routes", "10.0.2.2"),
        ("resolvers", "10.0.2.3"),
        ("hostname", "seeded-7"),
    ] {
        node.until(&format!("{expected} in {kind}"), SOON, || {
            let text = admin.call(&["get", kind])?;
            if text.contains(expected) && !text.contains("10.0.2.15/24") {
                Ok(())
            } else {
                Err(text)
            }
        });
    }
}

#[test]
#[ignore = "make test-vm"]
fn config_comes_from_the_parameters_without_a_volume() {
    let directory = tempfile::tempdir().unwrap();
    generate_config(directory.path());
    let whole = read(directory.path(), "controlplane.yaml");
    // The command line has room for a minimal config only. The first occurrence of each field is
    // the machine's.
    let field = |name: &str| {
        let mut lines = whole.lines().map(str::trim_start);
        let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        found
            .unwrap_or_else(|| panic!("no {name} in\n{whole}"))
            .to_owned()
    };
    let config = format!(
        "version: v1alpha1\nmachine: {{type: controlplane, token: {}, ca: {{crt: {}, key: {}}}, \
         certSANs: [127.0.0.1]}}\ncluster: {{controlPlane: {{endpoint: 'https://127.0.0.1:6443'}}}}\n",
        field("token"),
        field("crt"),
        field("key"),
    );
    let parameters = format!(
        " corten.platform=nocloud corten.config.inline={}",
        packed(&config)
    );
    let node = start("acquire-alone", directory.path(), &parameters, None);
    node.ask(&node.admin(), &["version"], BOOT);
    let console = node.vm.console().text();
    for told in [
        "there is no user-data on volume cidata or CIDATA yet; looking again in 1 s",
        "the config in the kernel's parameters must be complete",
    ] {
        assert!(console.contains(told), "{told}: {console}");
    }
}
