use std::collections::BTreeSet;
use std::path::PathBuf;

use corten_steps::lock::Lock;

use super::*;
use crate::manifest::{Content, Source};
use crate::tree::Node;
use crate::{go, kubernetes, listing};

fn repo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn tags_are_the_pinned_versions_and_programs_are_built() {
    let images = Images::read(&repo()).unwrap();
    let gomod = fs::read_to_string(repo().join(DIRECTORY).join("go.mod")).unwrap();
    for image in &images.images {
        if let Some(module) = &image.module {
            let version = go::module_version(&gomod, module).unwrap();
            assert_eq!(image.version, format!("v{version}"), "{}", image.name);
        }
        for program in &image.programs {
            let name = program.rsplit('/').next().unwrap();
            assert!(
                kubernetes::programs().any(|built| built == name),
                "{program}"
            );
        }
        assert!(
            image.programs.contains(&image.entrypoint[0]),
            "{}",
            image.name
        );
    }
}

/// cortenctl writes these names into configs, and machined compares them.
#[test]
fn configs_name_the_images_that_are_built() {
    let images = Images::read(&repo()).unwrap();
    assert_eq!(images.registry, corten_config::images::BUNDLED_REGISTRY);
    let built: Vec<_> = images
        .images
        .iter()
        .map(|image| (image.name.as_str(), image.version.as_str()))
        .collect();
    assert_eq!(built, corten_config::images::BUNDLED);
}

#[test]
fn every_file_of_an_image_has_a_source_and_every_package_a_use() {
    let lock = Lock::read(&repo().join("rootfs/packages.lock")).unwrap();
    let images = Images::read(&repo()).unwrap();
    for arch in Arch::ALL {
        let debian = arch.names().debian;
        let mut used = BTreeSet::new();
        for image in &images.images {
            for entry in image.manifest(&repo(), arch).unwrap().entries() {
                match &entry.content {
                    Content::File(Source::Deb { package, .. }) => {
                        let mut locked = lock.packages("rootfs", debian);
                        let mut own = lock.packages(PURPOSE, debian);
                        let known = locked.any(|one| one.name == *package)
                            || own.any(|one| one.name == *package);
                        assert!(known, "{}: {package} is not locked", image.name);
                        used.insert(package.clone());
                    }
                    Content::File(Source::Repo(path)) => {
                        assert!(repo().join(path).is_file(), "{path}");
                    }
                    _ => {}
                }
            }
        }
        for package in lock.packages(PURPOSE, debian) {
            assert!(used.contains(&package.name), "{} has no use", package.name);
        }
    }
}

/// A change of an image's content shows in a reviewed file; `UPDATE=1` writes it.
#[test]
fn listing_of_each_image_matches_the_golden_file() {
    for arch in Arch::ALL {
        let mut listings = String::new();
        for image in Images::read(&repo()).unwrap().images {
            let mut tree = Tree::default();
            for entry in image.manifest(&repo(), arch).unwrap().entries() {
                let kind = match &entry.content {
                    Content::Link(target) => Kind::Link(target.clone()),
                    Content::Directory => Kind::Directory,
                    _ => Kind::File(PathBuf::new()),
                };
                let node = Node {
                    kind,
                    mode: entry.mode,
                    uid: entry.uid,
                    gid: entry.gid,
                };
                tree.insert(entry.path.clone(), node).unwrap();
            }
            listings += &format!("# {}\n{}\n", image.name, listing::of_tree(&tree));
        }
        let path = repo().join(format!("rootfs/kubernetes/golden/{arch}.txt"));
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, &listings).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap();
        assert!(golden == listings, "run with UPDATE=1 and review {path:?}");
    }
}
