//! Promise: every disk format holds the content of the raw disk, and every archive matches its own
//! description. Checked with standard tools where they exist.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::fs;
use std::path::Path;
use std::process::Command;

use corten_image::inspect;
use mkimage::output::Output;
use serde_json::Value;
use tests::{images, ovf, vhd};

/// Runs a host tool; returns its output.
fn tool(program: &str, arguments: &[&str], dir: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program} {}: {}{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Fails unless the image has the content of the raw disk.
fn holds_the_raw_disk(format: &str, image: &Path) {
    let raw = images::image(".raw");
    let arguments = [
        "compare",
        "-f",
        "raw",
        "-F",
        format,
        text(&raw),
        text(image),
    ];
    tool("qemu-img", &arguments, Path::new("/"));
}

#[test]
#[ignore = "make test-vm"]
fn every_format_of_the_architecture_can_be_inspected() {
    let arch = images::builder_arch();
    for output in Output::of(arch) {
        let found = inspect::inspect(&images::image(output.suffix())).unwrap();
        assert_eq!(found.format, output.name());
        assert_eq!(found.arch(), Some(arch), "{output}");
        let [image] = found.images.as_slice() else {
            panic!("{output}: {found}");
        };
        let mut files = image.initramfs.iter();
        assert!(
            files.any(|file| file.path == "/rootfs.squashfs"),
            "{output}"
        );
    }
}

#[test]
#[ignore = "make test-vm"]
fn every_virtual_disk_holds_the_raw_disk() {
    for (ending, format) in [(".qcow2", "qcow2"), (".vhd", "vpc"), (".vmdk", "vmdk")] {
        let image = images::image(ending);
        holds_the_raw_disk(format, &image);
        if format != "vpc" {
            // qemu-img cannot check a VHD.
            let arguments = ["check", "-f", format, text(&image)];
            tool("qemu-img", &arguments, Path::new("/"));
        }
    }
    let raw = fs::metadata(images::image(".raw")).unwrap().len();
    assert_eq!(vhd::check(&images::image(".vhd")), Ok(raw));
}

#[test]
#[ignore = "make test-vm"]
fn partition_tables_of_disk_and_cd_are_free_of_errors() {
    for ending in [".raw", ".iso"] {
        let image = images::image(ending);
        let told = tool("/sbin/sfdisk", &["--verify", text(&image)], Path::new("/"));
        assert!(told.contains("No errors detected"), "{told}");
    }
}

#[test]
#[ignore = "make test-vm"]
fn the_ova_holds_the_raw_disk_under_its_own_checksums() {
    let arch = images::builder_arch();
    if Output::of(arch).all(|output| output != Output::Ova) {
        // VMware supports no guest of this architecture. A file of that name belongs to another
        // architecture.
        let there = format!("corten-{}-{arch}.ova", images::version());
        assert!(!images::directory().join(there).exists());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let ova = images::image(".ova");
    let names = tool("tar", &["-tf", text(&ova)], dir.path());
    let names: Vec<&str> = names.lines().collect();
    let [description, manifest, disk] = names.as_slice() else {
        panic!("an OVA of {names:?}");
    };
    // An importer needs the description first.
    assert!(description.ends_with(".ovf") && manifest.ends_with(".mf") && disk.ends_with(".vmdk"));
    tool("tar", &["-xf", text(&ova)], dir.path());
    let sums = fs::read_to_string(dir.path().join(manifest)).unwrap();
    for name in [description, disk] {
        let sum = tool("sha256sum", &[name], dir.path());
        let sum = sum.split_whitespace().next().unwrap();
        assert!(sums.contains(&format!("SHA256({name})= {sum}")), "{sums}");
    }
    let description = fs::read_to_string(dir.path().join(description)).unwrap();
    let facts = ovf::check(&description).unwrap();
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    assert_eq!(facts.file, *disk);
    assert_eq!(facts.size, size(&dir.path().join(disk)));
    assert_eq!(facts.capacity, size(&images::image(".raw")));
    holds_the_raw_disk("vmdk", &dir.path().join(disk));
}

#[test]
#[ignore = "make test-vm"]
fn the_gcp_archive_holds_the_raw_disk_and_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let archive = images::image("-gcp.tar.gz");
    tool("tar", &["-xzf", text(&archive)], dir.path());
    let disk = dir.path().join("disk.raw");
    // Whole GiB; qemu-img reads zeros after the end of the shorter disk.
    assert_eq!(fs::metadata(&disk).unwrap().len() % (1 << 30), 0);
    holds_the_raw_disk("raw", &disk);
}

#[test]
#[ignore = "make test-vm"]
fn the_installer_is_an_oci_archive_with_the_same_unified_kernel_image() {
    let dir = tempfile::tempdir().unwrap();
    let archive = images::image("-installer.tar");
    tool("tar", &["-xf", text(&archive)], dir.path());
    let read = |path: &str| fs::read(dir.path().join(path)).unwrap();
    let layout: Value = serde_json::from_slice(&read("oci-layout")).unwrap();
    assert_eq!(layout["imageLayoutVersion"], "1.0.0");
    // Each descriptor names its blob by digest, which is both the name and the hash of the file.
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        let digest = digest.strip_prefix("sha256:").unwrap();
        let path = format!("blobs/sha256/{digest}");
        let sum = tool("sha256sum", &[&path], dir.path());
        assert!(sum.starts_with(digest), "{sum}");
        assert_eq!(descriptor["size"], read(&path).len());
        path
    };
    let json = |path: &str| serde_json::from_slice::<Value>(&read(path)).unwrap();
    let index = json("index.json");
    let manifest = json(&blob(&index["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    let layer = blob(&manifest["layers"][0]);
    assert_eq!(
        config["rootfs"]["diff_ids"][0],
        manifest["layers"][0]["digest"]
    );
    tool("tar", &["-xf", &layer], dir.path());
    let oci = images::builder_arch().names().oci;
    let inside = dir.path().join(format!("usr/install/{oci}/corten.efi"));
    assert_eq!(
        fs::read(inside).unwrap(),
        fs::read(images::image(".efi")).unwrap()
    );
}

#[test]
#[ignore = "make test-vm"]
fn checksums_match_the_images() {
    let (directory, sums) = (images::directory(), images::image(".SHA256SUMS"));
    let arguments = ["--check", "--strict", "--quiet", text(&sums)];
    tool("sha256sum", &arguments, &directory);
}
