//! Checks the repository's manifest against the promises, without a build.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use corten_steps::arch::Arch;
use corten_steps::lock::Lock;

use crate::manifest::{Content, Manifest, Source};
use crate::tree::{Kind, Node, Tree};
use crate::{go, libkmod, listing, programs, rust};

fn repo(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

fn manifest(arch: Arch) -> Manifest {
    Manifest::read(&repo("rootfs/manifest.toml"), arch).unwrap()
}

/// The manifest's paths as a tree without content.
fn tree(arch: Arch) -> Tree {
    let mut tree = Tree::default();
    for entry in manifest(arch).entries() {
        let kind = match &entry.content {
            Content::Directory | Content::Modules => Kind::Directory,
            Content::Link(target) => Kind::Link(target.clone()),
            Content::File(_) => Kind::File(PathBuf::new()),
        };
        let node = Node {
            kind,
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
        };
        tree.insert(entry.path.clone(), node).unwrap();
    }
    tree
}

#[test]
fn listing_of_the_root_file_system_matches_the_golden_file() {
    for arch in Arch::ALL {
        let path = repo(&format!("rootfs/golden/{arch}.txt"));
        let listing = listing::of_tree(&tree(arch));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &listing).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap();
        let text = similar::TextDiff::from_lines(&golden, &listing)
            .unified_diff()
            .header("golden", "manifest")
            .to_string();
        assert!(
            golden == listing,
            "the listing of the image changed; accept the change with UPDATE=1 cargo test -p corten-rootfs\n{text}"
        );
    }
}

#[test]
fn every_file_has_a_source_that_can_exist() {
    let lock = Lock::read(&repo("rootfs/packages.lock")).unwrap();
    let entries = Arch::ALL.map(|arch| (arch, manifest(arch)));
    for (arch, entry) in entries
        .iter()
        .flat_map(|(arch, manifest)| manifest.entries().map(move |entry| (arch, entry)))
    {
        let Content::File(source) = &entry.content else {
            continue;
        };
        let known = match source {
            Source::Deb { package, .. } => lock
                .packages("rootfs", arch.names().debian)
                .any(|locked| locked.name == *package),
            Source::Go(name) => go::programs().contains(&name.as_str()),
            Source::Cargo(name) => rust::programs().contains(&name.as_str()),
            Source::C(name) => name == libkmod::LIBRARY,
            Source::Repo(path) => repo(path).is_file(),
            Source::Generated(_) => true,
        };
        assert!(known, "/{}: nothing provides {source:?}", entry.path);
    }
}

#[test]
fn every_locked_package_is_used_in_the_image() {
    let lock = Lock::read(&repo("rootfs/packages.lock")).unwrap();
    for arch in Arch::ALL {
        let manifest = manifest(arch);
        let used: BTreeSet<&str> = manifest
            .entries()
            .filter_map(|entry| match &entry.content {
                Content::File(Source::Deb { package, .. }) => Some(package.as_str()),
                _ => None,
            })
            .collect();
        for package in lock.packages("rootfs", arch.names().debian) {
            // The image has the certificates as a bundle.
            assert!(
                used.contains(package.name.as_str()) || package.name == "ca-certificates",
                "{} is locked for the image, and no file comes from it",
                package.name
            );
        }
    }
}

/// A version without the suffix of a rebuild from the same source: `+b1`.
fn source_version(version: &str) -> &str {
    match version.rsplit_once("+b") {
        Some((source, rebuild)) if rebuild.chars().all(|c| c.is_ascii_digit()) => source,
        _ => version,
    }
}

#[test]
fn a_package_is_locked_once_for_each_use() {
    let lock = Lock::read(&repo("rootfs/packages.lock")).unwrap();
    let mut seen = BTreeSet::new();
    for package in &lock.packages {
        let row = (&package.purpose, &package.name, &package.arch);
        assert!(seen.insert(row), "{row:?} is locked twice");
    }
    // The libraries for linking must be the versions in the image.
    for debian in Arch::ALL.map(|arch| arch.names().debian) {
        for linked in lock.packages("sysroot", debian) {
            for shipped in lock.packages("rootfs", debian) {
                let same = linked.name != shipped.name || linked.sha256 == shipped.sha256;
                assert!(same, "{} differs between sysroot and image", linked.name);
            }
        }
    }
    let source = libkmod::source(&lock).unwrap();
    for linked in lock.packages.iter().filter(|p| p.name == "libkmod-dev") {
        assert_eq!(linked.version, source.version, "{}", linked.arch);
    }
    // The images of all architectures hold the same program versions.
    for one in lock.packages.iter().filter(|one| one.arch == "arm64") {
        let other = lock.packages.iter().find(|other| {
            other.arch == "amd64" && (&other.name, &other.purpose) == (&one.name, &one.purpose)
        });
        let version = other.map(|other| source_version(&other.version));
        assert_eq!(version, Some(source_version(&one.version)), "{}", one.name);
    }
}

#[test]
fn programs_of_the_image_match_the_list() {
    let text = fs::read_to_string(repo("rootfs/executables.txt")).unwrap();
    for arch in Arch::ALL {
        let listed: BTreeSet<String> = programs::allowed(&text, arch)
            .unwrap()
            .into_iter()
            .map(str::to_owned)
            .collect();
        let programs: BTreeSet<String> = tree(arch)
            .nodes()
            .filter(|(_, node)| matches!(node.kind, Kind::File(_)) && node.mode & 0o111 != 0)
            .map(|(path, _)| format!("/{path}"))
            .collect();
        assert_eq!(programs, listed);
    }
}

#[test]
fn required_mount_points_and_links_exist() {
    let tree = tree(Arch::X86_64);
    for mount in [
        "dev", "proc", "sys", "run", "tmp", "var", "system", "mnt", "etc/cni",
    ] {
        let kind = tree.get(mount).map(|node| node.kind.clone());
        assert_eq!(kind, Some(Kind::Directory), "/{mount}");
    }
    for (name, target) in [
        ("sbin/init", "usr/bin/init"),
        ("usr/bin/machined", "usr/bin/init"),
        ("sbin/apid", "usr/bin/init"),
        (
            "lib64/ld-linux-x86-64.so.2",
            "usr/lib64/ld-linux-x86-64.so.2",
        ),
    ] {
        assert_eq!(tree.resolve(name).as_deref(), Some(target), "/{name}");
    }
}
