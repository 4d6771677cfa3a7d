//! The record of a finished step: the digest of its output, and signatures of that digest.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::digest::is_digest;
use super::trust::{PublicKey, Signer};
use crate::error::Result;

/// Largest record in bytes: a substituter is not trusted.
const LARGEST: u64 = 1 << 16;

/// The record of a finished step, as JSON in `steps/<name>-<key>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The digest of the output, which is its name in `outputs/`.
    pub output: String,
    /// Signatures over the entry's name and `output`, by the public key that verifies them, in hex.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    signatures: BTreeMap<String, String>,
}

impl Record {
    /// A record without signatures.
    pub fn new(output: String) -> Self {
        Self {
            output,
            signatures: BTreeMap::new(),
        }
    }

    /// Reads a record; `None` if the file does not exist.
    ///
    /// # Errors
    /// The file is not a record.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let file = match fs::File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.with_context(|| format!("opening {}", path.display()))?,
        };
        let mut text = String::new();
        file.take(LARGEST)
            .read_to_string(&mut text)
            .with_context(|| format!("reading {}", path.display()))?;
        let record: Self = serde_json::from_str(&text)
            .with_context(|| format!("{} is not a record of a step", path.display()))?;
        ensure!(
            is_digest(&record.output),
            "{}: the output {:?} is not 64 hex digits",
            path.display(),
            record.output
        );
        Ok(Some(record))
    }

    /// Writes the record by atomic rename of a file in `work`.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn write(&self, path: &Path, work: &Path) -> Result<()> {
        let failed = || format!("writing {}", path.display());
        let mut file = tempfile::NamedTempFile::new_in(work).with_context(failed)?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        file.write_all(text.as_bytes()).with_context(failed)?;
        // Temporary files are readable by their owner only; other users may read a cache.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        file.as_file().set_permissions(open).with_context(failed)?;
        file.persist(path).with_context(failed)?;
        Ok(())
    }

    /// Adds a signature; replaces an older one of the same key.
    pub fn sign(&mut self, entry: &str, signer: &Signer) {
        let signature = signer.sign(&self.message(entry));
        let key = hex::encode(signer.public().as_bytes());
        self.signatures.insert(key, hex::encode(signature));
    }

    /// Checks that one of the keys has signed this record's output for `entry`.
    ///
    /// # Errors
    /// No key has signed it; the error says why.
    pub fn require_signature(&self, entry: &str, trusted: &[PublicKey]) -> Result<()> {
        ensure!(!trusted.is_empty(), "no key is named with --trust");
        let signatures: Vec<_> = trusted
            .iter()
            .filter_map(|key| Some((key, self.signatures.get(&hex::encode(key.as_bytes()))?)))
            .collect();
        ensure!(
            !signatures.is_empty(),
            "it has no signature of a key that --trust names"
        );
        let message = self.message(entry);
        let good = signatures.iter().any(|(key, signature)| {
            hex::decode(signature).is_ok_and(|bytes| key.has_signed(&message, &bytes))
        });
        ensure!(good, "its signature is not valid");
        Ok(())
    }

    fn message(&self, entry: &str) -> Vec<u8> {
        format!(
            "corten mkimage step output, version 1\n{entry}\n{}\n",
            self.output
        )
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record::new("0".repeat(64))
    }

    #[test]
    fn signature_is_valid_only_for_its_entry_output_and_key() {
        let signer = Signer::generate().unwrap();
        let (named, other) = (signer.public(), Signer::generate().unwrap().public());
        let mut signed = record();
        signed.sign("go-1", &signer);
        signed
            .require_signature("go-1", &[other.clone(), named.clone()])
            .unwrap();

        let refused = |record: &Record, entry: &str, keys: &[PublicKey]| {
            record
                .require_signature(entry, keys)
                .unwrap_err()
                .to_string()
        };
        let trusted = std::slice::from_ref(&named);
        assert!(refused(&record(), "go-1", trusted).contains("no signature of a key"));
        assert!(refused(&signed, "go-1", &[other]).contains("no signature of a key"));
        assert!(refused(&signed, "go-1", &[]).contains("no key is named"));
        assert!(refused(&signed, "go-2", trusted).contains("not valid"));
        let mut changed = signed.clone();
        changed.output = "1".repeat(64);
        assert!(refused(&changed, "go-1", trusted).contains("not valid"));
        for text in ["", "zz", "00"] {
            let mut changed = signed.clone();
            changed
                .signatures
                .values_mut()
                .for_each(|one| *one = text.to_owned());
            assert!(refused(&changed, "go-1", trusted).contains("not valid"));
        }
    }

    #[test]
    fn record_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("go-1");
        assert_eq!(Record::read(&path).unwrap(), None);
        let mut written = record();
        written.sign("go-1", &Signer::generate().unwrap());
        written.write(&path, dir.path()).unwrap();
        assert_eq!(Record::read(&path).unwrap(), Some(written));
    }

    #[test]
    fn hostile_records_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("go-1");
        let large = format!("{{\"output\": \"{}\"}}", "0".repeat(1 << 17));
        for text in [
            "",
            "{}",
            "{\"output\": \"../../../etc\"}",
            "{\"output\": \"00\"}",
            "{\"output\": 1}",
            &large,
        ] {
            fs::write(&path, text).unwrap();
            Record::read(&path).unwrap_err();
        }
        Record::read(dir.path()).unwrap_err();
    }
}
