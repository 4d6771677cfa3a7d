//! `mkimage cache sign`: signs finished steps, so that other machines take them from this cache.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Context as _;

use super::digest::is_digest;
use super::trust::Signer;
use super::{Cache, STEPS};
use crate::error::{Failure, Remedy as _, Result};

impl Cache {
    /// Verifies and signs the finished steps of these names, or all steps. Returns their entries.
    ///
    /// # Errors
    /// A name has no finished step, or an output does not match its record. Signatures made before
    /// the error stay.
    pub fn sign(&self, signer: &Signer, names: &[String]) -> Result<BTreeSet<String>> {
        let steps = self.root.join(STEPS);
        let listed =
            fs::read_dir(&steps).with_context(|| format!("listing {}", steps.display()))?;
        let mut signed = BTreeSet::new();
        let mut found = BTreeSet::new();
        for entry in listed {
            let entry = entry?.file_name().to_string_lossy().into_owned();
            // Entries of older versions have shorter keys.
            let Some((name, _)) = entry.rsplit_once('-').filter(|(_, key)| is_digest(key)) else {
                continue;
            };
            if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
                continue;
            }
            let _lock = self.lock(&entry)?;
            let record = self.read(&self.root, &entry)?;
            let Some(mut record) = record.filter(|one| self.output(&one.output).exists()) else {
                continue;
            };
            found.insert(name.to_owned());
            self.verify(&record.output).or_fail(
                format!("the finished step {entry} differs from its record"),
                "build again to renew the step, then sign it",
            )?;
            record.sign(&entry, signer);
            record.write(&steps.join(&entry), &self.root.join("work"))?;
            signed.insert(entry);
        }
        match names.iter().find(|name| !found.contains(*name)) {
            None => Ok(signed),
            Some(name) => Err(Failure::new(
                format!("the cache has no finished step {name}"),
                "`mkimage plan` lists the steps, `mkimage build` makes them",
            )),
        }
    }
}
