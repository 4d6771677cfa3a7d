//! Promise: the config customises containerd within its limits. A device has the driver that the
//! config names, or its own if that driver does not work.

use tests::disk::NodeDisk;
use tests::node::{BOOT, Node, SOON};

/// Address of containerd's metrics, set by the config.
const METRICS: &str = "127.0.0.1:11234";

fn until_listening(node: &Node, wanted: bool) {
    node.until("containerd's metrics", BOOT, || {
        let text = node.admin().call(&["netstat", "-l", "-t"])?;
        (text.contains(METRICS) == wanted).then_some(()).ok_or(text)
    });
}

#[test]
#[ignore = "make test-vm"]
fn containerd_restarts_when_config_parts_are_added_and_removed() {
    let disk = NodeDisk::new("containerd", 4);
    let node = disk.start(|machine| machine);
    node.configure();
    node.until_running("containerd");
    until_listening(&node, false);
    // Both forms of the config; the older form uses the key of an older version.
    let part = format!("[metrics]\\naddress = \\\"{METRICS}\\\"");
    node.apply_patch(&format!(
        "machine:\n  files:\n  - {{path: /etc/cri/conf.d/20-customization.part, content: \"{part}\"}}\n\
         ---\napiVersion: v1alpha1\nkind: CRICustomizationConfig\nname: pause\ncontent: |\n  \
         [plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = \"registry.example.org/pause:1\"\n\
         ---\napiVersion: v1alpha1\nkind: CRIBaseRuntimeSpecConfig\noverrides: {{process: {{oomScoreAdj: 7}}}}\n"
    ));
    until_listening(&node, true);
    node.until_running("containerd");
    let read = |path: &str| node.ask(&node.admin(), &["read", path], SOON);
    let spec = read("/etc/cri/conf.d/base-spec.json");
    assert!(spec.contains("\"oomScoreAdj\": 7"), "{spec}");
    let named = read("/run/containerd/conf.d/10-base-spec.toml");
    assert!(named.contains("/etc/cri/conf.d/base-spec.json"), "{named}");
    // containerd reads the specification when its CRI plugin starts.
    let log = node.ask(&node.admin(), &["logs", "containerd"], SOON);
    assert!(!log.contains("failed to load base OCI spec"), "{log}");
    let shown = node.ask(&node.admin(), &["get", "customizationconfigs"], SOON);
    assert!(
        shown.contains("pause") && shown.contains("customization"),
        "{shown}"
    );
    node.apply_patch("machine: {}\n");
    until_listening(&node, false);
    node.until_running("containerd");
    let spec = read("/etc/cri/conf.d/base-spec.json");
    assert!(!spec.contains("oomScoreAdj"), "{spec}");
}

/// The address of the device with this id, from `get pcidevices -o yaml`.
fn address(shown: &str, number: &str) -> Option<String> {
    let mut address = None;
    for line in shown.lines() {
        if let Some(id) = line.trim().strip_prefix("id: ") {
            address = Some(id.trim_matches(['"', '\'']).to_owned());
        }
        if line.contains(number) {
            return address;
        }
    }
    None
}

#[test]
#[ignore = "make test-vm"]
fn device_keeps_its_driver_if_the_rebind_fails_or_the_node_depends_on_it() {
    // Intel 6300ESB; virtio block devices, transitional and modern.
    const WATCHDOG: &str = "0x25ab";
    const DISKS: [&str; 2] = ["0x1042", "0x1001"];
    let disk = NodeDisk::new("rebind", 4);
    let node = disk.start(|machine| machine.watchdog());
    node.configure();
    let devices = node.until("the devices", SOON, || {
        let shown = node.admin().call(&["get", "pcidevices", "-o", "yaml"])?;
        let watchdog = address(&shown, WATCHDOG);
        let disk = DISKS.iter().find_map(|number| address(&shown, number));
        watchdog.zip(disk).ok_or(shown)
    });
    let (watchdog, disk) = devices;
    let rebind = |address: &str, driver: &str| {
        format!(
            "---\napiVersion: v1alpha1\nkind: PCIDriverRebindConfig\nname: '{address}'\ntargetDriver: {driver}\n"
        )
    };
    let until_told = |address: &str, words: &[&str]| {
        node.until("the status of the rebind", SOON, || {
            let status = ["get", "pcidriverrebindstatus", address, "-o", "yaml"];
            let shown = node.admin().call(&status)?;
            let is_told = words.iter().all(|word| shown.contains(word));
            is_told.then_some(()).ok_or(shown)
        });
    };
    let both = rebind(&watchdog, "vfio-pci") + &rebind(&disk, "ahci");
    node.apply_patch(&format!("machine: {{}}\n{both}"));
    until_told(&watchdog, &["there is no driver vfio-pci", "i6300ESB"]);
    until_told(&disk, &["the mount at", "driver: virtio-pci"]);
    // This driver probes the device but does not support it.
    let other = rebind(&watchdog, "virtio-pci");
    node.apply_patch(&format!("machine: {{}}\n{other}"));
    until_told(
        &watchdog,
        &["the driver virtio-pci does not accept it", "i6300ESB"],
    );
    node.apply_patch("machine: {}\n");
    node.until("the removal of the rebind", SOON, || {
        let shown = node.admin().call(&["get", "pcidriverrebindstatus"])?;
        (!shown.contains(&watchdog)).then_some(()).ok_or(shown)
    });
}
