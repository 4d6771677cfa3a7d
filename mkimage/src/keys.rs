//! The secrets of a build: the key that signs kernel modules, the seed of the kernel's structure
//! layout, and the keys of Secure Boot. They are inputs, so that the same keys give the same bytes.
//! The key that signs finished steps for other caches is no input.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::Context as _;
use corten_image::secure_boot::Signer;
use corten_image::secure_boot::enrolment::{self, Variable};
use corten_kernel::keys::{MODULE_SIGNING, RANDSTRUCT_SEED};
use corten_steps::cache::trust;
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::tool::Tool;

/// Makes a new key set in `dir`, readable by its owner alone.
pub fn make(dir: &Path) -> Result<()> {
    if dir.exists() {
        return Err(Failure::new(
            format!("{} exists already", dir.display()),
            "give a new directory; a key set is never overwritten",
        ));
    }
    fs::DirBuilder::new().mode(0o700).create(dir).or_fail(
        format!("creating {}", dir.display()),
        "give a directory whose parent is writable",
    )?;
    write(
        &dir.join(MODULE_SIGNING),
        &pair("Module signing", "rsa:4096", "-sha512")?,
    )?;
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .context("reading the kernel's random numbers")?;
    write(
        &dir.join(RANDSTRUCT_SEED),
        format!("{}\n", hex::encode(seed)).as_bytes(),
    )?;
    for variable in &enrolment::ALL {
        secure_boot(dir, variable)?;
    }
    let signer = trust::Signer::generate()?;
    write(&dir.join(trust::PRIVATE), signer.to_pem().as_bytes())?;
    write(
        &dir.join(trust::PUBLIC),
        signer.public().to_pem().as_bytes(),
    )
}

/// A new private key and its certificate, valid 100 years, both PEM.
fn pair(name: &str, size: &str, digest: &str) -> Result<Vec<u8>> {
    Tool::new("openssl")
        .args(["req", "-new", "-x509", digest, "-newkey", size])
        .args(["-nodes", "-batch", "-days", "36500"])
        .args(["-subj", &format!("/O=Corten/CN={name}")])
        .args(["-addext", "keyUsage=digitalSignature"])
        .args(["-keyout", "-", "-out", "-"])
        .output()
}

/// Makes key, certificate and update of one variable; the key that signs the update must exist. RSA
/// 2048 with SHA-256, because all firmware supports it.
fn secure_boot(dir: &Path, variable: &Variable) -> Result<()> {
    let pem = pair(variable.title, "rsa:2048", "-sha256")?;
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    for block in pem::parse_many(&pem).context("reading the output of openssl")? {
        let name = match block.tag() {
            "CERTIFICATE" => variable.certificate(),
            _ => variable.key(),
        };
        let text = pem::encode_config(&block, lines);
        write(&dir.join(name), text.as_bytes())?;
    }
    let key = Signer::read(dir, variable)?;
    let signer = Signer::read(dir, &variable.set_by())?;
    let update = enrolment::update(variable, &key, &signer)?;
    write(&dir.join(variable.update()), &update)
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
        for name in [
            MODULE_SIGNING,
            "PK.key",
            "KEK.key",
            "db.key",
            trust::PRIVATE,
        ] {
            let mode = fs::metadata(keys.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        for name in ["PK.auth", "KEK.auth", "db.auth"] {
            assert!(keys.join(name).exists(), "{name}");
        }
        let public = trust::PublicKey::read(&keys.join(trust::PUBLIC)).unwrap();
        assert_eq!(trust::Signer::read(&keys).unwrap().public(), public);
        make(&keys).unwrap_err();
    }
}
