//! Unpacks and checks the unified kernel image and the boot loader of an installer's image or of the start medium.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use corten_extension::archive::{self, Wanted};
use corten_installer::esp;
use corten_installer::{Entry, IMAGES, Signers, check, check_loader, image_path, loader_path};

use crate::unpack::make_empty;

/// File names of the unified kernel image and the boot loader in the output directory.
const IMAGE: &str = "corten.efi";
const LOADER: &str = "systemd-boot.efi";

/// An image, its accepted signers, and the target directory.
#[derive(Debug, Clone, Args)]
pub(crate) struct Uki {
    /// An OCI archive, or a directory with `blobs/sha256`.
    image: PathBuf,
    /// The digest of the image's index or manifest: `sha256:` and 64 hexadecimal digits.
    digest: String,
    /// SHA-256 of the accepted signers' public keys: 64 hexadecimal digits each, separated by commas.
    signers: Signers,
    /// Target directory of `corten.efi`, `systemd-boot.efi` and `version`; its former content is removed first.
    directory: PathBuf,
}

/// A medium, its accepted signers, and the target directory.
#[derive(Debug, Clone, Args)]
pub(crate) struct Medium {
    /// Image file of the medium's EFI partition.
    efi: PathBuf,
    /// SHA-256 of the accepted signers' public keys: 64 hexadecimal digits each, separated by commas.
    signers: Signers,
    /// Target directory, as for `uki`.
    directory: PathBuf,
}

impl Uki {
    /// Runs on a blocking thread, so that a signal can end the program.
    pub(crate) async fn run(self) -> Result<(), String> {
        on_thread(move || self.take()).await
    }

    fn take(&self) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.directory.display());
        let contents = self.directory.join("contents");
        make_empty(&self.directory)
            .and_then(|()| fs::create_dir(&contents))
            .map_err(failed)?;
        let architecture = corten_api::ARCH;
        let wanted = Wanted {
            architecture,
            digest: Some(&self.digest),
        };
        let [image, loader] = [IMAGE, LOADER].map(|name| {
            let path = format!("usr/install/{architecture}/{name}");
            (path, self.directory.join(name))
        });
        let files = [&image, &loader].map(|(path, to)| (path.as_str(), to.as_path()));
        archive::take_files(&self.image, wanted, &files, &contents)
            .map_err(|problem| problem.to_string())?;
        fs::remove_dir_all(&contents).map_err(failed)?;
        judge(&self.directory, &self.signers)
    }
}

impl Medium {
    /// Runs on a blocking thread, so that a signal can end the program.
    pub(crate) async fn run(self) -> Result<(), String> {
        on_thread(move || self.take()).await
    }

    fn take(&self) -> Result<(), String> {
        let failed = |error: io::Error| format!("{}: {error}", self.directory.display());
        make_empty(&self.directory).map_err(failed)?;
        let told = |error: io::Error| format!("{}: {error}", self.efi.display());
        let mut efi = File::open(&self.efi).map_err(told)?;
        let length = efi.metadata().map_err(told)?.len();
        let place = (0, length);
        let images = esp::list(&mut efi, place, IMAGES).map_err(told)?;
        let mut images = images.iter().filter(|name| Entry::parse(name).is_some());
        let (Some(image), None) = (images.next(), images.next()) else {
            return Err(format!(
                "{}: it must have exactly one image in {IMAGES}",
                self.efi.display()
            ));
        };
        for (path, name) in [
            (image_path(image), IMAGE),
            (loader_path(corten_api::ARCH).to_owned(), LOADER),
        ] {
            let mut file = File::create(self.directory.join(name)).map_err(failed)?;
            let copied = esp::read(&mut efi, place, &path, |chunk| file.write_all(chunk));
            copied.map_err(told)?;
        }
        judge(&self.directory, &self.signers)
    }
}

/// Checks the unpacked programs, and writes the `version` file.
fn judge(directory: &Path, signers: &Signers) -> Result<(), String> {
    let architecture = corten_api::ARCH;
    let checked = check(&directory.join(IMAGE), signers, architecture);
    let checked = checked.map_err(|error| format!("{IMAGE}: {error}"))?;
    check_loader(&directory.join(LOADER), signers, architecture)
        .map_err(|error| format!("{LOADER}: {error}"))?;
    fs::write(directory.join("version"), checked.version)
        .map_err(|error| format!("{}: {error}", directory.display()))
}

async fn on_thread(
    work: impl FnOnce() -> Result<(), String> + Send + 'static,
) -> Result<(), String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use corten_extension::archive::testing::{Image, PLAIN, file, tar};
    use corten_installer::esp::{Content, DATELESS, FatFile, Place, write};

    use super::*;

    #[test]
    fn installer_with_both_programs_is_unpacked_and_its_image_is_checked() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| format!("usr/install/{}/{name}", corten_api::ARCH);
        let paths = [path(IMAGE), path(LOADER)];
        let take = |names: &[String]| {
            let members: Vec<_> = names.iter().map(|name| file(name, "MZ")).collect();
            let mut image = Image::default();
            let digest = image.add(corten_api::ARCH, &[(PLAIN, tar(&members))]);
            let archive = directory.path().join("installer.tar");
            fs::write(&archive, image.archive()).unwrap();
            let uki = Uki {
                image: archive,
                digest,
                signers: "00".repeat(32).parse().unwrap(),
                directory: directory.path().join("taken"),
            };
            uki.take().unwrap_err()
        };
        let why = take(&paths);
        assert!(
            why.contains("corten.efi: it is not a unified kernel image"),
            "{why}"
        );
        for name in [IMAGE, LOADER] {
            let taken = fs::read(directory.path().join("taken").join(name)).unwrap();
            assert_eq!(taken, b"MZ", "{name}");
        }
        let why = take(&paths[..1]);
        assert!(
            why.contains("systemd-boot.efi: there is no such file"),
            "{why}"
        );
    }

    #[test]
    fn medium_without_exactly_one_signed_image_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let take = |images: &[&str]| {
            let efi = directory.path().join("efi.img");
            let size = 40 << 20;
            let mut disk = File::create(&efi).unwrap();
            disk.set_len(size).unwrap();
            disk = File::options().read(true).write(true).open(&efi).unwrap();
            let file = |path: &str| (path.to_owned(), Content::Bytes(b"MZ".to_vec()));
            let loaders = ["EFI/BOOT/BOOTX64.EFI", "EFI/BOOT/BOOTAA64.EFI"];
            let images = images.iter().map(|name| file(&format!("EFI/Linux/{name}")));
            let files: Vec<FatFile> = loaders.map(file).into_iter().chain(images).collect();
            let place = Place {
                start: 0,
                size,
                sector: 512,
                id: 1,
            };
            write(&mut disk, place, &files, &DATELESS).unwrap();
            let medium = Medium {
                efi,
                signers: "00".repeat(32).parse().unwrap(),
                directory: directory.path().join("taken"),
            };
            medium.take().unwrap_err()
        };
        let two = ["corten-1.efi", "corten-2.efi"];
        for images in [&["other.efi"][..], &two] {
            let why = take(images);
            assert!(why.contains("it must have exactly one image"), "{why}");
        }
        let why = take(&["corten-1.efi"]);
        assert!(
            why.contains("corten.efi: it is not a unified kernel image"),
            "{why}"
        );
        let taken = fs::read(directory.path().join("taken/corten.efi")).unwrap();
        assert_eq!(taken, b"MZ");
        let none = directory.path().join("none.img");
        fs::write(&none, [0; 4096]).unwrap();
        let medium = Medium {
            efi: none,
            signers: "00".repeat(32).parse().unwrap(),
            directory: directory.path().join("taken"),
        };
        medium.take().unwrap_err();
    }
}
