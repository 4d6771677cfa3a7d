//! Unpacks an extension from an archive to a directory, by the program's arguments.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use corten_extension::archive::testing::{Image, Member, PLAIN, file, tar};
use corten_extension::layers;

const MANIFEST: &str = "version: v1alpha1\nmetadata: {name: hello, version: '1'}\n";

/// Writes the archive of an extension with these files; returns its digest.
fn archive(path: &Path, members: &[Member<'_>]) -> String {
    let mut image = Image::default();
    let digest = image.add(corten_api::ARCH, &[(PLAIN, tar(members))]);
    fs::write(path, image.archive()).unwrap();
    digest
}

fn unpack(archive: &Path, digest: &str, to: &Path) -> bool {
    let words = ["registryd".into(), "unpack".into(), archive.into()];
    let words = words.into_iter().chain([OsString::from(digest), to.into()]);
    let ended = registryd::run(words);
    // ExitCode has no other comparison.
    format!("{ended:?}") == format!("{:?}", ExitCode::SUCCESS)
}

#[test]
fn extension_is_unpacked_and_replaces_leftovers_of_another_boot() {
    let directory = tempfile::tempdir().unwrap();
    let (image, to) = (directory.path().join("x.tar"), directory.path().join("to"));
    let tool = file("rootfs/usr/local/bin/tool", "a program");
    let digest = archive(&image, &[file("manifest.yaml", MANIFEST), tool]);
    fs::create_dir_all(to.join("rootfs/half")).unwrap();
    assert!(unpack(&image, &digest, &to));
    let tool = fs::read_to_string(to.join("rootfs/usr/local/bin/tool")).unwrap();
    assert_eq!(tool, "a program");
    let manifest = layers::read(&to.join("manifest.yaml")).unwrap();
    assert_eq!(manifest.metadata.name, "hello");
    let mut left: Vec<_> = fs::read_dir(&to)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["manifest.yaml", "rootfs"]);
}

#[test]
fn unusable_extension_fails_and_leaves_no_manifest() {
    let directory = tempfile::tempdir().unwrap();
    let (image, to) = (directory.path().join("x.tar"), directory.path().join("to"));
    let good = [file("manifest.yaml", MANIFEST)];
    let other = MANIFEST.replace(
        "version: '1'",
        "version: '1', compatibility: {talos: {version: '< v1.0.0'}}",
    );
    let module = file("rootfs/usr/lib/modules/6.12.1/a.ko", "");
    for members in [
        vec![],
        vec![good[0], module],
        vec![file("manifest.yaml", &other)],
        vec![good[0], file("rootfs/etc/passwd", "")],
    ] {
        let digest = archive(&image, &members);
        assert!(!unpack(&image, &digest, &to), "{members:?}");
        assert!(!to.join("manifest.yaml").exists());
    }
    archive(&image, &good);
    let another = format!("sha256:{}", "0".repeat(64));
    assert!(!unpack(&image, &another, &to));
    assert!(!unpack(&directory.path().join("none"), &another, &to));
}
