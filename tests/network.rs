//! Promise: the network matches the kernel parameters and the config.

use tests::client::Table;
use tests::images;
use tests::node::{Node, SOON};

/// The address that QEMU forwards the API to, with another prefix than from QEMU's DHCP.
const STATIC: &str = "ip=10.0.2.15::10.0.2.2:255.255.255.128:iron-7::none:10.0.2.3";

/// A bond of two links with a VLAN on it, a bridge of a third, and a tunnel.
const LINKS: &str = "\
apiVersion: v1alpha1
kind: DummyLinkConfig
name: one
---
apiVersion: v1alpha1
kind: DummyLinkConfig
name: two
---
apiVersion: v1alpha1
kind: DummyLinkConfig
name: three
---
apiVersion: v1alpha1
kind: BondConfig
name: bond7
links: [one, two]
bondMode: active-backup
miimon: 100
# Of another mode: the kernel would refuse the bond for it.
lacpRate: fast
mtu: 1400
addresses:
  - address: 172.20.1.7/24
routes:
  - destination: 172.21.0.0/16
    gateway: 172.20.1.1
---
apiVersion: v1alpha1
kind: VLANConfig
name: bond7.42
vlanID: 42
parent: bond7
addresses:
  - address: 172.20.42.7/24
---
apiVersion: v1alpha1
kind: BridgeConfig
name: yard
links: [three]
stp:
  enabled: true
addresses:
  - address: fd07::7/64
---
apiVersion: v1alpha1
kind: WireguardConfig
name: wg7
privateKey: AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=
listenPort: 51820
peers:
  - publicKey: AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=
    allowedIPs: [172.22.0.2/32]
  - publicKey: BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ=
    allowedIPs: [172.22.0.4/32]
addresses:
  - address: 172.22.0.1/24
";
/// The tunnel's private key, which the API must not reveal.
const PRIVATE: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
/// The tunnel's removed peer and its replacement.
const GOES: &str = "\
  - publicKey: BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQ=
    allowedIPs: [172.22.0.4/32]
";
const COMES: &str = "\
  - publicKey: AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=
    presharedKey: CQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQk=
    endpoint: '[fd07::9]:51821'
    persistentKeepaliveInterval: 25s
    allowedIPs: [172.22.0.3/32, 'fd22::/64']
";

/// Waits until the table of `kind` has a row with all these cells.
fn has_row(node: &Node, kind: &str, cells: &[&str]) {
    let admin = node.admin();
    node.until(&format!("{cells:?} in {kind}"), SOON, || {
        let text = admin.call(&["get", kind])?;
        let has = |row: &Vec<String>| cells.iter().all(|cell| row.iter().any(|one| one == cell));
        if Table::parse(&text).rows.iter().any(has) {
            Ok(())
        } else {
            Err(text)
        }
    });
}

#[test]
#[ignore = "make test-vm"]
fn ip_kernel_parameter_replaces_dhcp() {
    let mut boot = images::direct();
    boot.append = format!("{} {STATIC}", boot.append);
    let node = Node::start("static-ip", |m| m.direct(boot));
    node.configure();
    has_row(&node, "addresses", &["10.0.2.15/25"]);
    has_row(&node, "routes", &["10.0.2.2"]);
    has_row(&node, "resolvers", &[r#"["10.0.2.3"]"#]);
    has_row(&node, "hostname", &["iron-7"]);
}

#[test]
#[ignore = "make test-vm"]
fn bond_vlan_and_bridge_are_created_and_removed_with_the_config() {
    let boot = images::direct();
    let node = Node::start("links", |m| m.direct(boot));
    node.configure();
    node.apply_patch(LINKS);
    has_row(&node, "addresses", &["bond7", "172.20.1.7/24"]);
    has_row(&node, "addresses", &["bond7.42", "172.20.42.7/24"]);
    has_row(&node, "addresses", &["yard", "fd07::7/64"]);
    has_row(&node, "routes", &["172.21.0.0/16", "172.20.1.1"]);
    has_row(&node, "links", &["bond7", "bond", "up"]);
    let bond = node.ask(
        &node.admin(),
        &["get", "links", "bond7", "-o", "yaml"],
        SOON,
    );
    for told in ["mtu: 1400", "mode: active-backup", "miimon: 100"] {
        assert!(bond.contains(told), "{told}: {bond}");
    }
    for (link, told) in [("bond7.42", "vlanID: 42"), ("yard", "enabled: true")] {
        let text = node.ask(&node.admin(), &["get", "links", link, "-o", "yaml"], SOON);
        assert!(text.contains(told), "{told}: {text}");
    }
    has_row(&node, "addresses", &["wg7", "172.22.0.1/24"]);
    let tunnel = node.ask(&node.admin(), &["get", "links", "wg7", "-o", "yaml"], SOON);
    for told in ["listenPort: 51820", "publicKey: AgICAg", "172.22.0.2/32"] {
        assert!(tunnel.contains(told), "{told}: {tunnel}");
    }
    assert!(
        LINKS.contains(PRIVATE) && !tunnel.contains(PRIVATE),
        "{tunnel}"
    );
    node.apply_patch(&LINKS.replace(GOES, COMES));
    let admin = node.admin();
    node.until("one peer gone and another there", SOON, || {
        let tunnel = admin.call(&["get", "links", "wg7", "-o", "yaml"])?;
        let told = [
            "publicKey: AgICAg",
            "AwMDAw",
            "[fd07::9]:51821",
            "25s",
            "fd22::/64",
        ];
        if told.iter().all(|told| tunnel.contains(told)) && !tunnel.contains("BAQEBA") {
            Ok(())
        } else {
            Err(tunnel)
        }
    });
    has_row(&node, "addresses", &["wg7", "172.22.0.1/24"]);
    // With the previous config the links disappear; the network of the API stays.
    node.apply_patch("machine: {}\n");
    let admin = node.admin();
    node.until("the links gone", SOON, || {
        let text = admin.call(&["get", "links"])?;
        let table = Table::parse(&text);
        let links = table.column("ID");
        let old = ["bond7", "bond7.42", "yard", "one", "two", "three", "wg7"];
        if old.iter().any(|name| links.contains(name)) {
            Err(text)
        } else {
            Ok(())
        }
    });
}
