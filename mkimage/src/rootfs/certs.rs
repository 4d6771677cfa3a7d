//! The bundle of certificate authorities, made without running a package's scripts.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::deb;
use crate::error::{Failure, Result};

/// Where the CA package keeps its certificates.
const DIRECTORY: &str = "usr/share/ca-certificates/mozilla/";

/// All certificates of the package `deb`, in file name order, as one PEM file.
pub fn bundle(deb: &Path) -> Result<Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    deb::for_each_entry(deb, |path, kind, _, content| {
        if *kind == deb::Kind::File
            && let Some(name) = path.strip_prefix(DIRECTORY)
            && name.ends_with(".crt")
        {
            let mut pem = String::new();
            std::io::Read::read_to_string(content, &mut pem)
                .with_context(|| format!("reading {path}"))?;
            if pem.matches("-----BEGIN CERTIFICATE-----").count() != 1 {
                return Err(Failure::new(
                    format!("{path} of {} is not one certificate", deb.display()),
                    "lock another version of ca-certificates",
                ));
            }
            found.insert(name.to_owned(), format!("{}\n", pem.trim_end()));
        }
        Ok(())
    })?;
    if found.is_empty() {
        return Err(Failure::new(
            format!("{} holds no certificate below {DIRECTORY}", deb.display()),
            "lock another version of ca-certificates",
        ));
    }
    Ok(found.into_values().collect::<String>().into_bytes())
}

/// Writes the bundle to `file`.
pub fn write(deb: &Path, file: &Path) -> Result<()> {
    fs::write(file, bundle(deb)?).with_context(|| format!("writing {}", file.display()))
}
