//! The installer: an OCI image layout (Image Specification 1.1) in a tar, with what goes onto a disk.

use std::io::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::oci::{self, Blob};
use super::tarball::Tarball;
use super::{Release, calendar, checksums, grub, output};
use crate::error::Result;

/// What an installer carries.
#[derive(Debug)]
pub struct Installer<'a> {
    /// The unified kernel image.
    pub uki: &'a Path,
    /// systemd-boot ([`crate::arch::Names::sd_boot`]).
    pub sd_boot: &'a Path,
    /// GRUB's directory ([`crate::arch::Names::grub`]) for machines without EFI.
    pub grub: Option<&'a Path>,
}

/// Writes the archive to `out`.
pub fn build(out: &Path, release: &Release, installer: &Installer<'_>) -> Result<()> {
    let layer = layer(release, installer)?;
    let described = Blob::of_bytes(&layer);
    let config = oci::config(release, &described, &json!({"Labels": labels(release)}));
    let manifest = oci::manifest(&Blob::of_bytes(&config), &described, &labels(release));
    let reference = json!({"org.opencontainers.image.ref.name": release.version});
    let index = oci::index(release, [(&Blob::of_bytes(&manifest), reference)]);
    let mut blobs = [config, layer, manifest].map(|blob| (checksums::of_bytes(&blob), blob));
    blobs.sort_by(|a, b| a.0.cmp(&b.0));
    output::create(out, |file| {
        let mut tar = Tarball::new(std::io::BufWriter::new(file), release.epoch);
        tar.directory("blobs/")?;
        tar.directory("blobs/sha256/")?;
        for (digest, blob) in &blobs {
            tar.bytes(&format!("blobs/sha256/{digest}"), blob)?;
        }
        tar.bytes("index.json", index.as_bytes())?;
        tar.bytes(oci::LAYOUT.0, oci::LAYOUT.1)?;
        Ok(tar.finish()?.flush()?)
    })
}

/// The file system: `/usr/install/<arch>/`, under OCI's name of the architecture.
fn layer(release: &Release, installer: &Installer<'_>) -> Result<Vec<u8>> {
    let directory = format!("usr/install/{}/", release.arch.names().oci);
    let mut tar = Tarball::new(Vec::new(), release.epoch);
    tar.directory("usr/")?;
    tar.directory("usr/install/")?;
    tar.directory(&directory)?;
    tar.bytes(
        &format!("{directory}corten.efi"),
        &output::read(installer.uki)?,
    )?;
    if let Some(dir) = installer.grub {
        // The installer adds the place it writes them to, as `grub::disk` does.
        let boot = grub::disk(dir, "(,gpt1)/grub", 0)?;
        tar.bytes(&format!("{directory}grub-boot.img"), &boot.mbr)?;
        tar.bytes(&format!("{directory}grub-core.img"), &boot.core)?;
    }
    tar.bytes(
        &format!("{directory}systemd-boot.efi"),
        &output::read(installer.sd_boot)?,
    )?;
    tar.finish()
}

fn labels(release: &Release) -> Value {
    json!({
        "org.opencontainers.image.title": "corten installer",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.created": calendar::rfc3339(release.epoch),
        "org.opencontainers.image.licenses": "Apache-2.0",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::testing::{Scratch, host, noise, release, text};

    #[test]
    fn every_digest_leads_to_its_blob_and_the_layer_to_the_files() {
        let scratch = Scratch::new();
        let (uki, sd_boot) = (
            scratch.file("uki", &noise(9999)),
            scratch.file("sd", b"sd-boot"),
        );
        let installer = Installer {
            uki: &uki,
            sd_boot: &sd_boot,
            grub: None,
        };
        let (one, two) = (scratch.path("one.tar"), scratch.path("two.tar"));
        build(&one, &release(), &installer).unwrap();
        build(&two, &release(), &installer).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());

        let dir = scratch.path("layout");
        std::fs::create_dir(&dir).unwrap();
        host("tar", &["-C", text(&dir), "-xf", text(&one)]);
        let blob = |descriptor: &Value| {
            let digest = descriptor["digest"]
                .as_str()
                .unwrap()
                .strip_prefix("sha256:")
                .unwrap();
            let data = std::fs::read(dir.join("blobs/sha256").join(digest)).unwrap();
            assert_eq!(checksums::of_bytes(&data), digest);
            assert_eq!(descriptor["size"], data.len());
            data
        };
        let json = |data: Vec<u8>| serde_json::from_slice::<Value>(&data).unwrap();
        let index = json(std::fs::read(dir.join("index.json")).unwrap());
        assert_eq!(index["manifests"][0]["platform"]["architecture"], "amd64");
        let manifest = json(blob(&index["manifests"][0]));
        let config = json(blob(&manifest["config"]));
        assert_eq!(
            config["rootfs"]["diff_ids"][0],
            manifest["layers"][0]["digest"]
        );
        let layer = scratch.file("layer.tar", &blob(&manifest["layers"][0]));
        let listing = host("tar", &["-tf", text(&layer)]);
        assert!(listing.ends_with("amd64/corten.efi\nusr/install/amd64/systemd-boot.efi\n"));
    }
}
