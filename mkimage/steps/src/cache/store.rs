//! Finished steps: finds them, verifies them, copies them from a substituter, stores them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;

use anyhow::{Context as _, ensure};

use super::digest;
use super::record::Record;
use super::{Cache, Key, OUTPUTS, STEPS, entry, remove_tree};
use crate::error::Result;
use crate::report;
use crate::tool::Tool;

impl Cache {
    /// The output of a finished step, here or in a substituter. The output is not verified: a build
    /// makes a modified one again.
    pub fn lookup(&self, name: &str, key: &Key) -> Option<PathBuf> {
        let entry = entry(name, key);
        let here = self.read(&self.root, &entry).ok().flatten();
        let here = here.map(|record| self.output(&record.output));
        here.filter(|path| path.is_dir()).or_else(|| {
            self.substituters.iter().find_map(|root| {
                let record = self.read(root, &entry).ok().flatten()?;
                record.require_signature(&entry, &self.trusted).ok()?;
                let path = root.join(OUTPUTS).join(&record.output);
                path.is_dir().then_some(path)
            })
        })
    }

    /// Whether one of the records names this output.
    pub fn is_recorded<'a>(
        &self,
        entries: impl IntoIterator<Item = &'a String>,
        output: &str,
    ) -> bool {
        let names = |entry: &String| {
            let record = self.read(&self.root, entry).ok().flatten();
            record.is_some_and(|record| record.output == output)
        };
        entries.into_iter().any(names)
    }

    /// The output of a finished step, here or in a substituter. A damaged entry is reported as a
    /// warning and counts as missing. The caller holds the entry's lock.
    pub(super) fn finished(&self, entry: &str) -> Option<PathBuf> {
        let own = self.own(entry).unwrap_or_else(|error| {
            let text =
                format!("the finished step {entry} cannot be used, and is built again: {error:#}");
            report::warn(self.format, &text);
            None
        });
        own.or_else(|| {
            self.substituters.iter().find_map(|root| {
                self.taken(root, entry).unwrap_or_else(|error| {
                    let shown = root.display();
                    let text =
                        format!("the finished step {entry} of {shown} is not used: {error:#}");
                    report::warn(self.format, &text);
                    None
                })
            })
        })
    }

    fn own(&self, entry: &str) -> Result<Option<PathBuf>> {
        let Some(record) = self.read(&self.root, entry)? else {
            return Ok(None);
        };
        let path = self.output(&record.output);
        if !path.exists() {
            return Ok(None);
        }
        self.verify(&record.output)?;
        Ok(Some(path))
    }

    /// Copies an output from a substituter into this cache, and verifies the copy: the
    /// substituter's own files could change after the check.
    fn taken(&self, root: &Path, entry: &str) -> Result<Option<PathBuf>> {
        let Some(record) = self.read(root, entry)? else {
            return Ok(None);
        };
        record.require_signature(entry, &self.trusted)?;
        let work = self.work(entry)?;
        let out = work.join("taken");
        let from = root.join(OUTPUTS).join(&record.output);
        let taken = Tool::new("cp")
            .args(["--recursive", "--preserve=mode", "--reflink=auto"])
            .arg("--no-target-directory")
            .args([&from, &out])
            .run()
            .and_then(|()| {
                let found = digest::of_tree(&out)?;
                ensure!(
                    found == record.output,
                    "its content has the digest {found}, but the signed digest is {}",
                    record.output
                );
                self.place(entry, &out, record)
            });
        remove_tree(&work)?;
        taken.map(Some)
    }

    /// Stores the output of a step.
    pub(super) fn keep(&self, entry: &str, out: &Path) -> Result<PathBuf> {
        self.place(entry, out, Record::new(digest::of_tree(out)?))
    }

    /// Moves an output to the name of its digest in `record`.
    fn place(&self, entry: &str, out: &Path, record: Record) -> Result<PathBuf> {
        // Another step may have the same output, and `prune` must not remove it before the record
        // is written.
        let _lock = self.lock(&record.output)?;
        let done = self.output(&record.output);
        if fs::symlink_metadata(&done).is_ok() {
            let same = digest::of_tree(&done).is_ok_and(|found| found == record.output);
            // An existing output that does not match its digest is replaced.
            remove_tree(if same { out } else { &done })?;
        }
        if !done.exists() {
            fs::rename(out, &done).with_context(|| format!("writing {}", done.display()))?;
        }
        record.write(&self.root.join(STEPS).join(entry), &self.root.join("work"))?;
        self.note(&record.output);
        Ok(done)
    }

    pub(super) fn read(&self, root: &Path, entry: &str) -> Result<Option<Record>> {
        Record::read(&root.join(STEPS).join(entry))
    }

    pub(super) fn output(&self, digest: &str) -> PathBuf {
        self.root.join(OUTPUTS).join(digest)
    }

    /// Verifies an output against its digest, once per process: a later change would happen under a
    /// running build.
    pub(super) fn verify(&self, digest: &str) -> Result<()> {
        let verified = self.verified.lock();
        if verified
            .unwrap_or_else(PoisonError::into_inner)
            .contains(digest)
        {
            return Ok(());
        }
        let path = self.output(digest);
        let found = digest::of_tree(&path)?;
        ensure!(
            found == digest,
            "the content of {} has the digest {found}",
            path.display()
        );
        self.note(digest);
        Ok(())
    }

    fn note(&self, digest: &str) {
        let verified = self.verified.lock();
        verified
            .unwrap_or_else(PoisonError::into_inner)
            .insert(digest.to_owned());
    }
}
