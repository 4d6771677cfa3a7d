//! The installer: an OCI image layout (Image Specification 1.1) in a tar, with the files for a
//! disk.

use std::io::Write as _;
use std::path::Path;

use corten_steps::calendar;
use corten_steps::error::Result;
use serde_json::{Value, json};

use super::oci::{self, Blob};
use super::tarball::Tarball;
use super::{Release, checksums, output};

/// The content of an installer.
#[derive(Debug)]
pub struct Installer<'a> {
    /// The unified kernel image.
    pub uki: &'a Path,
    /// systemd-boot ([`corten_steps::arch::Names::sd_boot`]).
    pub sd_boot: &'a Path,
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
    use std::path::PathBuf;

    use corten_extension::archive::{Wanted, take_files};
    use corten_installer::{check, check_loader, version};

    use super::*;
    use crate::secure_boot::Signer;
    use crate::secure_boot::enrolment::{self, Variable};
    use crate::testing::{Scratch, development, host, noise, release, stub, text};
    use crate::uki;

    #[test]
    fn every_digest_has_its_blob_and_the_layer_has_the_files() {
        let scratch = Scratch::new();
        let (uki, sd_boot) = (
            scratch.file("uki", &noise(9999)),
            scratch.file("sd", b"sd-boot"),
        );
        let installer = Installer {
            uki: &uki,
            sd_boot: &sd_boot,
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

    /// Writes a unified kernel image with this os-release, signed with `key`.
    fn image(scratch: &Scratch, name: &str, os_release: &str, key: &Variable) -> PathBuf {
        let program = scratch.file("program", &stub());
        let out = scratch.path(name);
        let parts = uki::Uki {
            stub: &program,
            vmlinuz: &program,
            initramfs: &scratch.file("initramfs", &noise(999)),
            cmdline: "console=ttyS0",
            os_release,
            uname: "6.12.1",
            grub: None,
            signer: &Signer::read(&development(), key).unwrap(),
        };
        uki::build(&out, &release(), &parts).unwrap();
        out
    }

    const NEXT: &str = "ID=corten\nIMAGE_VERSION=\"1.3.0\"\n";

    #[test]
    fn node_extracts_the_image_of_an_installer_and_reads_its_version() {
        let scratch = Scratch::new();
        let uki = image(&scratch, "next", NEXT, &enrolment::DB);
        let parts = Installer {
            uki: &uki,
            sd_boot: &uki,
        };
        let archive = scratch.path("installer.tar");
        build(&archive, &release(), &parts).unwrap();
        let taken = scratch.path("taken");
        let wanted = Wanted {
            architecture: "amd64",
            digest: None,
        };
        let take = |path: &str| {
            let contents = tempfile::tempdir_in(scratch.path("")).unwrap();
            take_files(&archive, wanted, &[(path, &taken)], contents.path())
        };
        let error = take("usr/install/amd64/other").unwrap_err().to_string();
        assert!(error.contains("/usr/install/amd64/other"), "{error}");
        take("usr/install/amd64/corten.efi").unwrap();
        assert_eq!(version(&taken).unwrap(), "1.3.0");
    }

    #[test]
    fn node_starts_only_images_signed_by_the_key_of_its_own_image() {
        let scratch = Scratch::new();
        let own = Signer::read(&development(), &enrolment::DB).unwrap();
        let next_key = Signer::read(&development(), &enrolment::KEK).unwrap();
        let both = format!("{},{}", own.digest(), next_key.digest());
        let (own, both) = (own.digest().parse().unwrap(), both.parse().unwrap());
        let next = image(&scratch, "next", NEXT, &enrolment::DB);
        assert_eq!(check(&next, &own, "amd64").unwrap().version, "1.3.0");
        let strange = image(&scratch, "strange", NEXT, &enrolment::KEK);
        assert_eq!(check(&strange, &both, "amd64").unwrap().version, "1.3.0");
        assert_eq!(check(&next, &both, "amd64").unwrap().version, "1.3.0");
        let foreign = image(&scratch, "foreign", "ID=debian\n", &enrolment::DB);
        let whole = std::fs::read(&next).unwrap();
        let text = whole
            .windows(5)
            .position(|bytes| bytes == b"1.3.0")
            .unwrap();
        let changed = |at: usize| {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            scratch.file(&format!("changed{at}"), &bytes)
        };
        let unsigned = scratch.file("unsigned", &stub());
        let short = scratch.file("short", &whole[..whole.len() - 100]);
        for (image, architecture, why) in [
            (strange, "amd64", "key"),
            (foreign, "amd64", "another system"),
            (changed(text), "amd64", "sign"),
            (changed(whole.len() - 40), "amd64", "sign"),
            (unsigned, "amd64", ".osrel"),
            (short, "amd64", "sign"),
            (scratch.file("empty", b""), "amd64", "not an EFI program"),
            (next.clone(), "arm64", "architecture"),
        ] {
            let error = check(&image, &own, architecture).unwrap_err().to_string();
            assert!(error.contains(why), "{}: {error}", image.display());
            let as_loader = check_loader(&image, &own, architecture);
            // A boot loader has no version.
            let is_loader = why == "another system";
            assert_eq!(as_loader.is_ok(), is_loader, "{}", image.display());
        }
    }
}
