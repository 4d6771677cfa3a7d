//! Promise: a node that runs loads the extensions its config names, from a volume or a registry's image, and lets them
//! go; one that is not what its digest says costs nothing.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use corten_extension::archive::testing::{Image, PLAIN, file, tar};
use qemu::{Arch, Disk, DiskMode};
use serde_json::json;
use tests::client::Table;
use tests::disk::NodeDisk;
use tests::images;
use tests::node::{BOOT, Node, SOON};

/// From a reboot's reset to the next.
const ORDERLY: Duration = Duration::from_secs(120);
/// A registry that nobody can reach: what is named after it is on the node.
const REGISTRY: &str = "registry.example.org/team/tool:v1";
const LABEL: &str = "EXTRA";

/// A program of the node, with files of the extension: it needs no C library of its own.
const SERVICE: &str = "\
name: hello
container:
  entrypoint: /usr/bin/registryd
  args: [serve, --root, /data, --listen, '127.0.0.1:4000']
  mounts: [{source: /usr/bin, destination: /usr/bin, type: bind, options: [bind, ro]}]
restart: always
";

fn architecture() -> &'static str {
    match images::arch() {
        Arch::Arm64 => "arm64",
        _ => "amd64",
    }
}

/// Writes the archive of an extension which has a file of its name; answers its digest.
fn archive(path: &Path, name: &str, image_name: Option<&str>) -> String {
    let manifest = format!("version: v1alpha1\nmetadata: {{name: {name}, version: v1.2.3}}\n");
    let own = format!("rootfs/usr/local/share/{name}");
    let mut members = vec![file("manifest.yaml", &manifest), file(&own, name)];
    if name == "hello" {
        members.push(file("rootfs/usr/local/etc/containers/hello.yaml", SERVICE));
        members.push(file("rootfs/usr/local/lib/containers/hello/data/x", ""));
    }
    let mut image = Image::default();
    let digest = image.add(architecture(), &[(PLAIN, tar(&members))]);
    if let Some(image_name) = image_name {
        let names = json!({"io.containerd.image.name": image_name});
        let shown = image
            .manifests
            .first_mut()
            .and_then(|it| it.as_object_mut());
        shown.unwrap().insert("annotations".to_owned(), names);
    }
    fs::write(path, image.archive()).unwrap();
    digest
}

/// A volume with these files in its root.
fn volume(path: &Path, files: &[&Path]) {
    let volume = fs::File::create(path).unwrap();
    volume.set_len(64 << 20).unwrap();
    let run = |command: &mut Command| {
        let status = command.status().unwrap();
        assert!(status.success(), "{command:?}: {status}");
    };
    run(Command::new("/sbin/mkfs.vfat")
        .args(["-n", LABEL])
        .arg(path));
    let mut copy = Command::new("mcopy");
    run(copy.arg("-i").arg(path).args(files).arg("::"));
}

fn apply(node: &Node, images: &[String]) {
    let images: Vec<_> = images.iter().map(|image| json!({"image": image})).collect();
    let patch = json!({"machine": {"install": {"extensions": images}}});
    node.apply_patch(&patch.to_string());
}

/// Waits until the node lists exactly these.
fn until_listed(node: &Node, names: &[&str], deadline: Duration) {
    let admin = node.admin();
    node.until(&format!("the extensions {names:?}"), deadline, || {
        let text = admin.call(&["get", "extensions"])?;
        let table = Table::parse(&text);
        match table.rows.is_empty() {
            true if names.is_empty() => Ok(()),
            false if table.column("NAME") == names => Ok(()),
            _ => Err(text),
        }
    });
}

fn until_it_serves(node: &Node) {
    let admin = node.admin();
    node.until("the extension's service", SOON, || {
        let text = admin.call(&["netstat", "-l", "-t"])?;
        text.contains("127.0.0.1:4000").then_some(()).ok_or(text)
    });
}

#[test]
#[ignore = "make test-vm"]
fn extensions_of_the_config_are_loaded_and_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let hello = archive(&at("hello.tar"), "hello", None);
    let changed = archive(&at("changed.tar"), "changed", None);
    let other = archive(&at("changed.tar"), "other", None);
    assert_ne!(changed, other);
    let tool = archive(&at("tool.tar"), "tool", Some(REGISTRY));
    volume(&at("volume"), &[&at("hello.tar"), &at("changed.tar")]);
    let on_volume = |file: &str, digest: &str| format!("oci-archive://{LABEL}/{file}@{digest}");

    let disk = NodeDisk::new("extensions", 4);
    let beside = Disk::raw(at("volume")).mode(DiskMode::Snapshot);
    let node = disk.start(|machine| machine.disk(beside));
    node.configure();
    let hello = on_volume("hello.tar", &hello);
    apply(&node, &[on_volume("changed.tar", &changed), hello.clone()]);
    until_listed(&node, &["hello"], SOON);
    until_it_serves(&node);
    let read = |name: &str| {
        node.admin()
            .call(&["read", &format!("/usr/local/share/{name}")])
    };
    assert_eq!(read("hello").as_deref(), Ok("hello"));
    let said = node.ask(&node.admin(), &["logs", "machined"], SOON);
    assert!(
        said.contains("changed.tar") && said.contains("is not loaded"),
        "{said}"
    );

    let archive = at("tool.tar").display().to_string();
    let import = ["image", "import", "--namespace", "system", &archive];
    node.ask(&node.admin(), &import, SOON);
    let tool = format!("{REGISTRY}@{tool}");
    apply(&node, &[hello.clone(), tool.clone()]);
    until_listed(&node, &["hello", "tool"], SOON);
    assert_eq!(read("tool").as_deref(), Ok("tool"));

    node.expect_reset(ORDERLY, || {
        // The connection may end before the answer.
        let _maybe_answered = node.admin().call(&["reboot", "--wait=false"]);
    });
    until_listed(&node, &["hello", "tool"], BOOT);
    until_it_serves(&node);

    apply(&node, &[tool]);
    until_listed(&node, &["tool"], SOON);
    node.until("the end of its service", SOON, || {
        let text = node.admin().call(&["service"])?;
        if text.contains("ext-hello") {
            Err(text)
        } else {
            Ok(())
        }
    });
    read("hello").unwrap_err();
    assert_eq!(read("tool").as_deref(), Ok("tool"));
    apply(&node, &[]);
    until_listed(&node, &[], SOON);
    read("tool").unwrap_err();
}
