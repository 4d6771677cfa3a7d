//! The inputs of a build, for its provenance: everything needed to build the same bytes again.

use std::path::{Path, PathBuf};

use corten_image::provenance::{Material, Provenance, Substituted};
use corten_image::secure_boot::enrolment;
use corten_kernel::CONFIG_DIR;
use corten_kernel::keys::{MODULE_SIGNING, RANDSTRUCT_SEED};
use corten_kernel::source::SourceLock;
use corten_rootfs::kubernetes;
use corten_steps::archive::Substitution;
use corten_steps::cache::sha256_file;
use corten_steps::error::Result;
use corten_steps::file_name;

use super::context::Context;
use crate::overlay::Overlay;
use crate::profile::Profile;

/// The inputs and outputs of a build.
///
/// # Errors
/// An input cannot be read.
pub fn of(context: &Context, outputs: &[PathBuf]) -> Result<Provenance> {
    let mut materials: Vec<Material> = context
        .lock
        .packages
        .iter()
        .map(|p| Material {
            uri: format!("pkg:deb/debian/{}@{}?arch={}", p.name, p.version, p.arch),
            sha256: p.sha256.clone(),
        })
        .collect();
    let kernel = SourceLock::read(&context.options.source.join(CONFIG_DIR))?.kernel;
    materials.push(Material {
        uri: kernel.tarball.clone(),
        sha256: kernel.tarball_sha256,
    });
    let profile = &context.options.profile;
    let locks = ["Cargo.lock", "rootfs/go/go.sum", "rootfs/packages.lock"]
        .map(|lock| (lock.to_owned(), context.options.source.join(lock)));
    let kubernetes = format!("{}/go.sum", kubernetes::DIRECTORY);
    let kubernetes = profile
        .makes_images()
        .then(|| (kubernetes.clone(), context.options.source.join(&kubernetes)));
    let files = locks
        .into_iter()
        .chain(kubernetes)
        .chain(own_files(profile, &context.overlay))
        .chain(key_set(&context.options.key_set()));
    for (uri, path) in files {
        let sha256 = sha256_file(&path)?;
        materials.push(Material { uri, sha256 });
    }
    Ok(Provenance {
        outputs: outputs.to_vec(),
        materials,
        parameters: serde_json::to_value(choices(profile))?,
        commit: context.commit.clone(),
        substituted: context
            .substituted
            .iter()
            .map(|Substitution { locked, used }| Substituted {
                package: format!("pkg:deb/debian/{}?arch={}", locked.name, locked.arch),
                locked: locked.version.clone(),
                used: used.version.clone(),
            })
            .collect(),
    })
}

/// The profile without the paths of the user's own files: their location on the build machine is
/// not an input.
fn choices(profile: &Profile) -> Profile {
    Profile {
        config: None,
        extensions: Vec::new(),
        overlay: None,
        firmware: None,
        ..profile.clone()
    }
}

/// The user's files of the profile and the overlay, by their names in the provenance.
fn own_files(profile: &Profile, overlay: &Overlay) -> Vec<(String, PathBuf)> {
    let archives = profile.extensions.iter().map(|one| &one.archive);
    let named = profile.config.iter().chain(archives);
    let mut files: Vec<_> = named.map(|path| (file_name(path), path.clone())).collect();
    if let Some(dir) = &profile.overlay {
        files.extend(overlay.files(dir));
    }
    files
}

/// The files of a key set that a build reads. The digest of a key does not reveal the key.
fn key_set(dir: &Path) -> Vec<(String, PathBuf)> {
    let kernel = [MODULE_SIGNING, RANDSTRUCT_SEED].map(str::to_owned);
    let firmware = [enrolment::DB.key(), enrolment::DB.certificate()];
    let updates = enrolment::ALL.map(|variable| variable.update());
    let names = kernel.into_iter().chain(firmware).chain(updates);
    names
        .map(|name| (format!("keys/{name}"), dir.join(name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use corten_steps::arch::Arch;

    use super::*;
    use crate::profile::Extension;

    #[test]
    fn provenance_names_user_files_without_their_location() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for (file, text) in [
            (
                "board/overlay.toml",
                "name = \"board\"\narch = \"arm64\"\nfirmware = [\"start4.elf\"]\n",
            ),
            ("board/esp/config.txt", "arm_64bit=1"),
            ("firmware/start4.elf", "elf"),
        ] {
            std::fs::create_dir_all(at(file).parent().unwrap()).unwrap();
            std::fs::write(at(file), text).unwrap();
        }
        let profile = Profile {
            config: Some(at("machine.yaml")),
            extensions: vec![Extension {
                archive: at("tools.tar"),
                digest: None,
            }],
            overlay: Some(at("board")),
            firmware: Some(at("firmware")),
            ..Profile::default()
        };
        let firmware = profile.firmware.as_deref();
        let overlay = Overlay::read(&at("board"), firmware, Arch::Arm64).unwrap();
        let said = serde_json::to_string(&choices(&profile)).unwrap();
        assert!(!said.contains(home.path().to_str().unwrap()), "{said}");
        let files = own_files(&profile, &overlay);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "machine.yaml",
                "tools.tar",
                "overlay/overlay.toml",
                "overlay/esp/config.txt",
                "overlay/esp/start4.elf"
            ]
        );
        assert!(files.iter().all(|(_, path)| path.starts_with(home.path())));
    }
}
