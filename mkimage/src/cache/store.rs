//! Finished steps: looked up, held against their digests, taken from a substituter, kept.

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
    /// Where a finished step's output is, here or in a substituter, as far as that can be told without reading it:
    /// what a build then finds changed, it makes again.
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

    /// The output of a step that was made before, here or in a substituter. What is not as it should be is said by
    /// its name, and counts as not there. The caller holds the lock of the entry.
    pub(super) fn finished(&self, entry: &str) -> Option<PathBuf> {
        let own = self.own(entry).unwrap_or_else(|error| {
            let text = format!("the finished step {entry} is not used, and made again: {error:#}");
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

    /// Copies an output out of a substituter. Only what is in this cache is held against the digest and used: who
    /// can write to the substituter could change it afterwards.
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
                    "its content has the digest {found}, and the one that is signed is {}",
                    record.output
                );
                self.place(entry, &out, record)
            });
        remove_tree(&work)?;
        taken.map(Some)
    }

    /// Keeps what a step has made.
    pub(super) fn keep(&self, entry: &str, out: &Path) -> Result<PathBuf> {
        self.place(entry, out, Record::new(digest::of_tree(out)?))
    }

    /// Gives an output, of which the record has the digest, its name.
    fn place(&self, entry: &str, out: &Path, record: Record) -> Result<PathBuf> {
        // Another step may have the same output, and `prune` must not take it before the record is there.
        let _lock = self.lock(&record.output)?;
        let done = self.output(&record.output);
        if fs::symlink_metadata(&done).is_ok() {
            let same = digest::of_tree(&done).is_ok_and(|found| found == record.output);
            // One that is no longer what its name says makes room.
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

    /// Holds an output against its digest, once in a process: what changes later changes under a running build.
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
