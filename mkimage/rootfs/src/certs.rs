//! The bundle of CAs, made without running a package's scripts.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_steps::deb;
use corten_steps::error::{Failure, Result};

/// The directory of the CA package's certificates.
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
                    format!(
                        "{path} of {} does not contain exactly one certificate",
                        deb.display()
                    ),
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

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----";

    fn package(files: &[(&str, &str)]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let mut tar = tar::Builder::new(Vec::new());
        for (name, text) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o644);
            tar.append_data(&mut header, format!("./{DIRECTORY}{name}"), text.as_bytes())
                .unwrap();
        }
        let data = tar.into_inner().unwrap();
        let file = dir.path().join("ca.deb");
        let mut ar = ar::Builder::new(fs::File::create(&file).unwrap());
        ar.append(
            &ar::Header::new(b"data.tar".to_vec(), data.len() as u64),
            &data[..],
        )
        .unwrap();
        (dir, file)
    }

    #[test]
    fn certificate_bundle_is_ordered_by_name_and_ends_every_line() {
        let (_dir, file) = package(&[("b.crt", PEM), ("a.crt", "# a\n"), ("c.txt", "")]);
        let error = bundle(&file).unwrap_err().to_string();
        assert!(error.contains("a.crt"), "{error}");
        let first = PEM.replace("AA", "BB");
        let (_dir, file) = package(&[("b.crt", PEM), ("a.crt", &first)]);
        let text = String::from_utf8(bundle(&file).unwrap()).unwrap();
        assert_eq!(text, format!("{first}\n{PEM}\n"));
    }

    #[test]
    fn an_empty_bundle_is_an_error() {
        let (_dir, file) = package(&[("readme", "")]);
        assert!(
            bundle(&file)
                .unwrap_err()
                .to_string()
                .contains("no certificate")
        );
    }
}
