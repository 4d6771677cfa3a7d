//! Promise: every image says the licence of each of its components, and carries their texts. The test reads the
//! finished images, not the input of the builder.
#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use spdx::Expression;
use tests::images;

/// The line between two texts.
const LINE: &str =
    "\n==============================================================================\n";

/// Unpacks `paths` of the squashfs with this ending; all without any.
fn unpacked(ending: &str, paths: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let output = Command::new("unsquashfs")
        .args(["-no-progress", "-no-xattrs", "-dest"])
        .arg(dir.path().join("files"))
        .arg(images::image(ending))
        .args(paths)
        .output()
        .expect("unsquashfs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    dir
}

/// Fails unless each component of the bill has a licence, and a text in the list of texts. Returns the names.
fn complete(image: &str, bill: &str, texts: &str) -> BTreeSet<String> {
    let bill: Value = bill.parse().expect("a bill of materials");
    let all = bill
        .get("packages")
        .and_then(Value::as_array)
        .expect("packages");
    let word = |package: &Value, key: &str| {
        let found = package.get(key).and_then(Value::as_str);
        found.expect("a text").to_owned()
    };
    // The first package is the image itself.
    let packages = all
        .iter()
        .filter(|one| word(one, "SPDXID") != "SPDXRef-Image");
    let headings: BTreeSet<&str> = texts
        .split(LINE)
        .skip(1)
        .filter_map(|text| text.split_once("\n\n"))
        .flat_map(|(users, _)| users.lines())
        .map(|user| user.split(", by ").next().expect("a name"))
        .collect();
    let mut names = BTreeSet::new();
    for package in packages {
        let name = word(package, "name");
        let licence = word(package, "licenseDeclared");
        let parsed = Expression::parse(&licence);
        assert!(parsed.is_ok(), "{image}: {name}: licence {licence:?}");
        let full = format!("{name} {}", word(package, "versionInfo"));
        assert!(
            headings.contains(full.as_str()),
            "{image}: no text of {full}"
        );
        names.insert(name);
    }
    names
}

#[test]
#[ignore = "make test-cluster"]
fn node_says_the_licence_of_each_component_and_carries_the_texts() {
    let paths = [
        "usr/share/spdx/corten.spdx.json",
        "usr/share/licenses/corten.txt",
    ];
    let dir = unpacked("-rootfs.squashfs", &paths);
    let [bill, texts] = paths.map(|path| {
        fs::read_to_string(dir.path().join("files").join(path)).expect("a file of the image")
    });
    let names = complete("node", &bill, &texts);
    for name in [
        "linux",
        "libc6",
        "kmod",
        "stdlib",
        "tokio",
        "github.com/opencontainers/runc",
    ] {
        assert!(names.contains(name), "{name} is not among {names:?}");
    }
    for text in [
        "Version 2, June 1991",
        "GCC RUNTIME LIBRARY EXCEPTION",
        "The Go Authors",
    ] {
        assert!(texts.contains(text), "no {text:?}");
    }
}

/// The files at the top of an image's only layer, by name.
fn about(cache: &Path, manifest: &Path) -> BTreeMap<String, String> {
    let manifest = fs::read_to_string(manifest).expect("a manifest");
    let manifest: Value = manifest.parse().expect("a manifest");
    let layer = manifest
        .pointer("/layers/0/digest")
        .and_then(Value::as_str)
        .expect("a layer");
    let layer = cache.join("blob").join(layer.replace(':', "-"));
    let mut found = BTreeMap::new();
    let mut tar = tar::Archive::new(fs::File::open(layer).expect("the layer"));
    for entry in tar.entries().expect("a tar archive") {
        let mut entry = entry.expect("an entry");
        let path = entry.path().expect("a path").display().to_string();
        if ["sbom.spdx.json", "licences.txt"].contains(&path.as_str()) {
            let mut text = String::new();
            entry.read_to_string(&mut text).expect("a text");
            found.insert(path, text);
        }
    }
    found
}

#[test]
#[ignore = "make test-cluster"]
fn each_container_image_says_the_licences_of_its_components_and_carries_the_texts() {
    let dir = unpacked("-image-cache.squashfs", &[]);
    let cache = dir.path().join("files");
    let mut read = BTreeSet::new();
    let registries = fs::read_dir(cache.join("manifests")).expect("registries");
    for registry in registries {
        let repositories = fs::read_dir(registry.expect("a registry").path());
        for repository in repositories.expect("repositories") {
            let repository = repository.expect("a repository");
            let image = repository.file_name().to_string_lossy().into_owned();
            let tags = fs::read_dir(repository.path().join("reference")).expect("tags");
            for tag in tags {
                let files = about(&cache, &tag.expect("a tag").path());
                let file = |name| files.get(name).expect("a file of the image");
                let names = complete(&image, file("sbom.spdx.json"), file("licences.txt"));
                assert!(names.contains("stdlib"), "{image}: {names:?}");
            }
            read.insert(image);
        }
    }
    let wanted = [
        "coredns",
        "etcd",
        "flannel",
        "kube-apiserver",
        "kubelet",
        "pause",
    ];
    for image in wanted {
        assert!(read.contains(image), "{image} is not among {read:?}");
    }
}
