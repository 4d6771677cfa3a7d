//! `gen ca`, `gen key`, `gen csr` and `gen crt`: make certificates one by one. Operators use them
//! to keep the CA's key apart from the cluster's secrets.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use corten_client::failure::Failure;
use corten_client::files;
use corten_pki::{Algorithm, Ca};

use crate::args::{GenCa, GenCrt, GenCsr, GenKey};

/// The largest PEM file read, in bytes; a certificate is about 1 kB.
const MAX_SIZE: u64 = 1024 * 1024;

pub(crate) fn ca(args: &GenCa) -> Result<(), Failure> {
    let name = file_name("--organization", &args.organization)?;
    let lifetime = hours(args.hours);
    let made = Ca::generate_for(
        Algorithm::Ed25519,
        &args.organization,
        "",
        SystemTime::now(),
        lifetime,
    );
    let made = made.context("making the CA")?;
    let (crt, key) = (with(name, "crt"), with(name, "key"));
    // Both or neither: a key without its certificate is useless.
    if let Some(path) = [&crt, &key]
        .into_iter()
        .find(|path| !args.force && path.exists())
    {
        return Err(exists(path));
    }
    create(&key, &made.pem().key, args.force)?;
    create(&crt, &made.pem().crt, args.force)
}

pub(crate) fn key(args: &GenKey) -> Result<(), Failure> {
    let path = with(file_name("--name", &args.name)?, "key");
    let key = corten_pki::new_key(Algorithm::Ed25519).context("making the key")?;
    create(&path, &key, args.force)
}

pub(crate) fn csr(args: &GenCsr) -> Result<(), Failure> {
    let key = files::read(&args.key, MAX_SIZE)?;
    let roles: Vec<&str> = args.roles.iter().map(String::as_str).collect();
    let names: Vec<String> = args.ip.iter().map(ToString::to_string).collect();
    let request = corten_pki::request(&key, &roles, &names)
        .with_context(|| format!("key {}", args.key.display()))?;
    create(&args.key.with_extension("csr"), &request, args.force)
}

pub(crate) fn crt(args: &GenCrt) -> Result<(), Failure> {
    let name = file_name("--name", &args.name)?;
    let (ca_crt, ca_key) = (with(&args.ca, "crt"), with(&args.ca, "key"));
    let crt = files::read(&ca_crt, MAX_SIZE)?;
    let ca = Ca::from_pem(&crt, &files::read(&ca_key, MAX_SIZE)?)
        .with_context(|| format!("CA {}", args.ca.display()))?;
    let request = files::read(&args.csr, MAX_SIZE)?;
    let signed = ca
        .sign(&request, SystemTime::now(), hours(args.hours))
        .with_context(|| format!("request {}", args.csr.display()))?;
    create(&with(name, "crt"), &signed, args.force)
}

fn hours(number: u64) -> Duration {
    Duration::from_secs(number.saturating_mul(3600))
}

/// A file name that does not leave this directory.
fn file_name<'a>(flag: &str, name: &'a str) -> Result<&'a str, Failure> {
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
    if plain {
        Ok(name)
    } else {
        Err(Failure::usage(format!(
            "{flag} {name:?} is not a file name"
        )))
    }
}

/// The path with an extension appended.
fn with(path: impl AsRef<Path>, extension: &str) -> PathBuf {
    let mut name = path.as_ref().as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

fn exists(path: &Path) -> Failure {
    Failure::call(format!("{} exists; --force overwrites it", path.display()))
}

fn create(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    files::write(path, text, force)?;
    eprintln!("created {}", path.display());
    Ok(())
}
