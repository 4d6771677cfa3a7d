//! CAs trusted by programs of the node: those of the image and of `TrustedRootsConfig`.
//!
//! The image is read-only, so a file with all CAs is bind-mounted over the image's own.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use corten_config::Document;
use corten_config::kinds::TrustedRootsConfig;
use corten_sys::mount::{self, MountFlags};

use crate::durable::{Access, remove_if_there, replace_now};

/// File in which programs look for trusted CAs.
pub const CA_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";
/// File that is mounted over it.
const WRITTEN: &str = "/run/ssl/ca-certificates.crt";
/// Separator between the image's and the config's CAs.
const MARKER: &str = "\n# Of the machine config:\n";

/// The CAs of the config in PEM; empty for none.
#[must_use]
pub fn of(document: &Document) -> String {
    let mut text = String::new();
    for roots in document.all::<TrustedRootsConfig>() {
        text.push_str(roots.certificates.trim());
        text.push('\n');
    }
    text
}

/// Makes every program started from now on trust exactly these CAs in addition to the image's.
///
/// # Errors
/// The file cannot be written or mounted; then only the image's CAs are trusted.
pub fn trust(roots: &str) -> Result<(), String> {
    let place = Place {
        ca_file: CA_FILE.into(),
        written: WRITTEN.into(),
    };
    place
        .lay(roots)
        .map_err(|error| format!("cannot trust the CAs of the config: {error}"))
}

#[derive(Debug)]
struct Place {
    ca_file: PathBuf,
    written: PathBuf,
}

impl Place {
    fn lay(&self, roots: &str) -> io::Result<()> {
        if self.holds(roots) {
            return Ok(());
        }
        if self.is_laid() {
            mount::detach(&self.ca_file)?;
        }
        if roots.is_empty() {
            return remove_if_there(&self.written);
        }
        fs::create_dir_all(self.written.parent().unwrap_or(Path::new("/")))?;
        let mut text = fs::read_to_string(&self.ca_file)?;
        text.push_str(MARKER);
        text.push_str(roots);
        replace_now(&self.written, &text, Access::ALL)?;
        mount::mount(&self.written, &self.ca_file, "", MountFlags::BIND, "")?;
        // Read-only: a container that gets the file must not change the node's trust.
        let flags = MountFlags::BIND
            | MountFlags::RDONLY
            | MountFlags::NOSUID
            | MountFlags::NODEV
            | MountFlags::NOEXEC;
        let sealed = mount::remount(&self.ca_file, flags);
        if sealed.is_err() {
            let _ = mount::detach(&self.ca_file);
        }
        sealed
    }

    fn is_laid(&self) -> bool {
        let file = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
        let written = file(&self.written);
        written.is_some() && written == file(&self.ca_file)
    }

    /// Whether the mount already has this content.
    fn holds(&self, roots: &str) -> bool {
        if !self.is_laid() {
            return roots.is_empty() && !self.written.exists();
        }
        let text = fs::read_to_string(&self.written).unwrap_or_default();
        text.rsplit_once(MARKER)
            .is_some_and(|(_, own)| own == roots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;
    use crate::testing::on_a_volume;

    #[test]
    fn trusted_roots_of_all_documents_are_joined_in_order() {
        let pem = |body: &str| {
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        };
        let document = |name: &str, body: &str| {
            let quoted = pem(body).replace('\n', "\\n");
            format!(
                "---\napiVersion: v1alpha1\nkind: TrustedRootsConfig\nname: {name}\ncertificates: \"{quoted}\\n\"\n"
            )
        };
        let more = document("b", "AAAA") + &document("a", "BBBB");
        assert_eq!(of(&sample::config("", &more)), pem("AAAA") + &pem("BBBB"));
        assert_eq!(of(&sample::config("", "")), "");
    }

    #[test]
    fn trusted_roots_of_the_config_are_mounted_over_the_image_until_removed() {
        on_a_volume("mode=700", |volume| {
            let place = Place {
                ca_file: volume.join("image.crt"),
                written: volume.join("run/ssl/all.crt"),
            };
            fs::write(&place.ca_file, "image\n").unwrap();
            let read = || fs::read_to_string(&place.ca_file).unwrap();
            let lay = |roots: &str| {
                place.lay(roots).unwrap();
                read()
            };
            assert_eq!(lay(""), "image\n");
            assert_eq!(lay("one\n"), format!("image\n{MARKER}one\n"));
            fs::write(&place.ca_file, "x").unwrap_err();
            let inode = || fs::metadata(&place.ca_file).unwrap().ino();
            let before = inode();
            lay("one\n");
            assert_eq!(inode(), before);
            assert_eq!(lay("two\n"), format!("image\n{MARKER}two\n"));
            assert_eq!(lay(""), "image\n");
            assert!(!place.written.exists());
            // No mount is left over it.
            mount::unmount(&place.ca_file).unwrap_err();
            // A missing mount point is reported.
            fs::remove_file(&place.ca_file).unwrap();
            place.lay("one\n").unwrap_err();
        });
    }
}
