//! Promise: only its keys on its own machine open an encrypted volume.

use tests::disk::NodeDisk;
use tests::node::{BOOT, Node, ORDERLY, SOON};

/// Both volumes with the machine's own key, EPHEMERAL also with a passphrase.
const ENCRYPTED: &str = "\
machine:
  systemDiskEncryption:
    state:
      provider: luks2
      keys: [{slot: 0, nodeID: {}}]
    ephemeral:
      provider: luks2
      keys: [{slot: 0, nodeID: {}}, {slot: 1, static: {passphrase: correct horse}}]
";
/// A config without any key that opens the volumes.
const STRANGE: &str = "\
machine:
  systemDiskEncryption:
    state:
      provider: luks2
      keys: [{slot: 0, static: {passphrase: mine}}]
";
/// The first bytes of a LUKS2 volume and of an XFS.
const LUKS: &[u8] = b"LUKS\xba\xbe\0\x02";
const XFS: &[u8] = b"XFSB";
const UUID: &str = "4c4c4544-0050-3510-8033-b4c04f4d3732";
const OTHER_UUID: &str = "5c5c4544-0050-3510-8033-b4c04f4d3732";

/// Size in GB of EPHEMERAL; fails unless both volumes are encrypted and mounted.
fn encrypted(node: &Node) -> f64 {
    let (device, _) = node.mount("/system/state");
    assert_eq!(device, "/dev/mapper/luks2-STATE");
    let (device, size) = node.mount("/var");
    assert_eq!(device, "/dev/mapper/luks2-EPHEMERAL");
    // udevd probes the disks later than the node does.
    node.until("two LUKS partitions", SOON, || {
        let found = node.admin().call(&["get", "discoveredvolumes"])?;
        let luks = |row: &&str| row.split_whitespace().any(|word| word == "luks");
        match found.lines().filter(luks).count() {
            2 => Ok(()),
            _ => Err(found),
        }
    });
    size
}

#[test]
#[ignore = "make test-vm"]
fn volumes_are_encrypted_and_reopened() {
    let disk = NodeDisk::new("encrypted", 4);
    let node = disk.start(|machine| machine.uuid(UUID));
    node.configure();
    // The node does not use an unencrypted volume when the config requires encryption, and does not
    // wipe it silently.
    let config = node.configs().join("controlplane.yaml");
    let file = node.configs().join("encrypted.yaml");
    std::fs::write(&file, ENCRYPTED).expect("a file for the patch");
    let [config, patch] = [config.display().to_string(), format!("@{}", file.display())];
    let apply = ["apply-config", "-f", &config, "-p", &patch];
    let refused = node.admin().call(&apply).unwrap_err();
    assert!(refused.contains("`migration: wipe`"), "{refused}");
    let migrating = ENCRYPTED.replace("provider: luks2", "provider: luks2\n      migration: wipe");
    node.apply_patch(&migrating);
    node.expect_reset(ORDERLY, || {
        // The connection may end before the answer.
        let _maybe_answered = node.admin().call(&["reboot", "--wait=false"]);
    });
    // The config was lost with STATE.
    node.ask(&node.admin(), &["version"], BOOT);
    encrypted(&node);
    node.expect_reset(ORDERLY, || {
        let labels = ["--system-labels-to-wipe", "STATE,EPHEMERAL"];
        let reset = ["reset", "--graceful=false", "--reboot", "--wait=false"];
        let asked = node.admin().call(&[&reset[..], &labels].concat());
        asked.unwrap_or_else(|error| panic!("{error}"));
    });
    // META records the encryption of STATE. EPHEMERAL needs the config, after which the node
    // reboots.
    node.wait_maintenance();
    node.expect_reset(ORDERLY, || {
        node.apply_patch_as(&node.insecure(), ENCRYPTED, &[]);
    });
    node.ask(&node.admin(), &["version"], BOOT);
    let before = encrypted(&node);
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    drop(node);
    let starts = disk.starts();
    let with = |magic| {
        starts
            .iter()
            .filter(|start| start.starts_with(magic))
            .count()
    };
    assert_eq!((with(LUKS), with(XFS)), (2, 0));

    disk.grow(6);
    let node = disk.start(|machine| machine.uuid(UUID));
    // The node knows its owner without a new config.
    node.ask(&node.admin(), &["version"], BOOT);
    node.until("EPHEMERAL grown", SOON, || {
        let after = encrypted(&node);
        if (before + 1.5..6.0).contains(&after) {
            Ok(())
        } else {
            Err(format!("{before} -> {after} GB"))
        }
    });
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    drop(node);

    // On another machine the node is locked, and reports the reason.
    let node = disk.start(|machine| machine.uuid(OTHER_UUID));
    node.ask(&node.owner(), &["version"], BOOT);
    let why = "nodeID is not the key of slot 0";
    let console = node.vm.console().text();
    assert!(
        console.contains("this node is locked") && console.contains(why),
        "the console does not say: {why}"
    );
    let refused = node.insecure().call(&["version"]).unwrap_err();
    assert!(refused.contains("certificate"), "{refused}");
    // A config of the owner removes no key.
    node.apply_patch_as(&node.owner(), STRANGE, &[]);
    let kept = node.vm.wait_console(
        "the encryption settings of the volumes stay as they are",
        SOON,
    );
    kept.unwrap_or_else(|error| panic!("{error}"));
    node.ask(&node.admin(), &["shutdown", "--wait=false"], SOON);
    node.wait_off(ORDERLY);
    drop(node);
    let node = disk.start(|machine| machine.uuid(UUID));
    let get = ["get", "laststop", "last", "-o", "yaml"];
    let last = node.ask(&node.admin(), &get, BOOT);
    let words: Vec<&str> = last.split_whitespace().collect();
    assert!(words.join(" ").contains(why), "{last}");
    encrypted(&node);
}
