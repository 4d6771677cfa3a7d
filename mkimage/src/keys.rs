//! The secrets of a build: the key that signs kernel modules and the seed that shuffles the
//! kernel's structures. They are inputs, so that the same keys give the same bytes again.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::Context as _;

use crate::error::{Failure, Remedy as _, Result};
use crate::tool::Tool;

/// The module-signing key and certificate, both PEM in one file, as the kernel's build takes it.
pub const MODULE_SIGNING: &str = "module-signing.pem";
/// The seed of `CONFIG_RANDSTRUCT_FULL`: 64 hex digits.
pub const RANDSTRUCT_SEED: &str = "randstruct.seed";

/// Makes a new key set in `dir`, readable by its owner alone.
pub fn make(dir: &Path) -> Result<()> {
    if dir.exists() {
        return Err(Failure::new(
            format!("{} exists already", dir.display()),
            "name a new directory; a key set is never overwritten",
        ));
    }
    fs::DirBuilder::new().mode(0o700).create(dir).or_fail(
        format!("creating {}", dir.display()),
        "name a directory whose parent you can write",
    )?;
    let pem = Tool::new("openssl")
        .args([
            "req", "-new", "-x509", "-sha512", "-newkey", "rsa:4096", "-nodes", "-batch",
        ])
        .args(["-days", "36500", "-subj", "/O=Corten/CN=Module signing"])
        .args([
            "-addext",
            "keyUsage=digitalSignature",
            "-keyout",
            "-",
            "-out",
            "-",
        ])
        .output()?;
    write(&dir.join(MODULE_SIGNING), &pem)?;
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .context("reading the kernel's random numbers")?;
    write(
        &dir.join(RANDSTRUCT_SEED),
        format!("{}\n", hex::encode(seed)).as_bytes(),
    )
}

/// Writes a secret, mode 0600.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    use std::io::Write as _;
    let file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.and_then(|mut file| file.write_all(content)).or_fail(
        format!("writing {}", path.display()),
        "free disk space and try again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_set_is_made_once_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let keys = dir.path().join("keys");
        make(&keys).unwrap();
        let pem = fs::read_to_string(keys.join(MODULE_SIGNING)).unwrap();
        assert!(pem.contains("PRIVATE KEY") && pem.contains("CERTIFICATE"));
        assert_eq!(
            fs::read_to_string(keys.join(RANDSTRUCT_SEED))
                .unwrap()
                .trim()
                .len(),
            64
        );
        let mode = fs::metadata(keys.join(MODULE_SIGNING))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        make(&keys).unwrap_err();
    }
}
