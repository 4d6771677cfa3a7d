//! Every change of the versions on the EFI partition, in steps of which each leaves a node that starts.
//!
//! FAT has no journal. The steps are therefore: a new file under a name that the boot loader does not look at, whole and
//! on the disk; then a rename. A power cut within a rename leaves the old name, the new one, or both.

use std::collections::BTreeSet;
use std::io::{self, Read};

use crate::{Entry, Installed, first};

/// A name that the boot loader does not look at.
const UNFINISHED: &str = ".new";
/// The second name of a file that has two. It stays: to remove it would free what the first name has.
const LOST: &str = ".lost";
/// Room that is left on the partition, in bytes: directories grow, and the loader keeps a seed there.
const SPARE: u64 = 1 << 20;

/// The directory of boot entries. Each change is on the disk when its call returns.
pub trait Files {
    /// Names and lengths in bytes.
    ///
    /// # Errors
    /// The file system's, as for all of these.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// `IMAGE_VERSION` of the image in this file; empty when it tells none.
    fn version(&self, name: &str) -> io::Result<String>;
    /// Bytes that are free.
    fn free(&self) -> io::Result<u64>;
    /// Writes a new file, and reads it back.
    fn write(&mut self, name: &str, content: &mut dyn Read) -> io::Result<()>;
    /// Gives a file a name that no other has.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
}

/// Why the versions stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file system's.
    #[error("{0} on the EFI partition: {1}")]
    Disk(String, #[source] io::Error),
    /// There is no such entry.
    #[error("the EFI partition has no boot entry {0}")]
    Missing(String),
    /// The version that runs may be left by itself still.
    #[error(
        "the version that runs is on trial still; wait for the verdict that `get upgrades` shows"
    )]
    OnTrial,
    /// There is no version to go to.
    #[error("the EFI partition has no other version to go to")]
    Alone,
    /// The new file would not fit.
    #[error(
        "the image needs {needed} bytes on the EFI partition, and {free} are free; build a smaller image"
    )]
    Room {
        /// Bytes of the image and of what is left free.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// Whoever is told before the change could not take it.
    #[error("{0}")]
    Refused(String),
}

/// The versions of a node.
#[derive(Debug)]
pub struct Versions<F> {
    files: F,
}

impl<F: Files> Versions<F> {
    /// Those in this directory.
    pub fn new(files: F) -> Versions<F> {
        Versions { files }
    }

    /// Every version, in no order. A file without content is what a power cut left.
    ///
    /// # Errors
    /// The file system's.
    pub fn installed(&self) -> Result<Vec<Installed>, Fault> {
        let mut installed = Vec::new();
        for (name, length) in self.list()? {
            if let Some(entry) = Entry::parse(&name).filter(|_| length > 0) {
                let version = self.files.version(&name);
                let version =
                    version.map_err(|error| Fault::Disk(format!("reading {name}"), error))?;
                installed.push(Installed { entry, version });
            }
        }
        Ok(installed)
    }

    /// Puts `image` of `version`, `length` bytes, beside the version that runs, to be tried at the next start. `announce`
    /// is told of the entry before the boot loader can see it.
    ///
    /// # Errors
    /// The version that runs is the one that starts next.
    pub fn install(
        &mut self,
        running: &str,
        version: &str,
        (image, length): (&mut dyn Read, u64),
        announce: impl FnOnce(&Entry) -> Result<(), String>,
    ) -> Result<Entry, Fault> {
        if self
            .find(running)?
            .entry
            .counter
            .is_some_and(|counter| counter.left > 0)
        {
            return Err(Fault::OnTrial);
        }
        self.clear(running)?;
        let free = self.files.free();
        let free = free.map_err(|error| Fault::Disk("asking for free space".to_owned(), error))?;
        let needed = length.saturating_add(SPARE);
        if free < needed {
            return Err(Fault::Room { needed, free });
        }
        let entry = Entry::new(version, 0);
        let entry = if entry.id() == running {
            Entry::new(version, 1)
        } else {
            entry
        };
        let unfinished = format!("{}{UNFINISHED}", entry.id());
        let written = self.files.write(&unfinished, image);
        if let Err(error) = written {
            // What cannot be removed now is removed by the next attempt.
            let _ = self.files.remove(&unfinished);
            return Err(Fault::Disk(format!("writing {unfinished}"), error));
        }
        if let Err(why) = announce(&entry) {
            let _ = self.files.remove(&unfinished);
            return Err(Fault::Refused(why));
        }
        self.rename(&unfinished, &entry.to_string())?;
        self.put_behind(running, &entry)?;
        Ok(entry)
    }

    /// Has the boot loader try the version `to` at the next start, and fall back to the one that runs.
    ///
    /// # Errors
    /// The version that runs is the one that starts next.
    pub fn switch(&mut self, running: &str, to: &str) -> Result<(), Fault> {
        let (_, trial) = self.change(to, Entry::on_trial)?;
        self.put_behind(running, &trial)
    }

    /// The version to go to from the one that runs.
    ///
    /// # Errors
    /// There is none.
    pub fn other(&self, running: &str) -> Result<Installed, Fault> {
        let mut others = self.installed()?;
        others.retain(|one| one.entry.id() != running);
        first(&others).cloned().ok_or(Fault::Alone)
    }

    /// Takes the counter from an entry: it is started from now on. False when it had none.
    ///
    /// # Errors
    /// The entry is on trial still.
    pub fn mark_good(&mut self, id: &str) -> Result<bool, Fault> {
        let (found, _) = self.change(id, Entry::good)?;
        Ok(found.counter.is_some())
    }

    /// Leaves an entry no try: another is started, if there is one.
    ///
    /// # Errors
    /// The entry is what it was.
    pub fn mark_bad(&mut self, id: &str) -> Result<(), Fault> {
        self.change(id, Entry::bad).map(drop)
    }

    /// The entry with this id.
    ///
    /// # Errors
    /// There is none.
    pub fn find(&self, id: &str) -> Result<Installed, Fault> {
        let installed = self.installed()?;
        let found = installed.into_iter().find(|one| one.entry.id() == id);
        found.ok_or_else(|| Fault::Missing(id.to_owned()))
    }

    /// Has the boot loader take `entry`, also when it is the older one. When both are bad it takes `running` again,
    /// as it would if none was.
    fn put_behind(&mut self, running: &str, entry: &Entry) -> Result<(), Fault> {
        let installed = self.installed()?;
        if first(&installed).is_some_and(|one| one.entry == *entry) {
            return Ok(());
        }
        self.mark_bad(running)
    }

    /// Removes every version but the one that runs, and what is unfinished.
    fn clear(&mut self, running: &str) -> Result<(), Fault> {
        let mut removed = BTreeSet::new();
        for (name, length) in self.list()? {
            match Entry::parse(&name) {
                Some(entry) if length > 0 && entry.id() == running => {}
                Some(entry) if length > 0 && !removed.insert(entry.id()) => self.put_away(&name)?,
                Some(_) => self.remove(&name)?,
                None if is_unfinished(&name) => self.remove(&name)?,
                None => {}
            }
        }
        Ok(())
    }

    /// Gives the entry with this id its new counter. Returns it as it was and as it is.
    ///
    /// A power cut within a rename may have left two names of one file. One of them gets the counter, and the other is
    /// hidden from the boot loader.
    fn change(
        &mut self,
        id: &str,
        counted: impl Fn(&Entry) -> Entry,
    ) -> Result<(Entry, Entry), Fault> {
        let mut names = self.installed()?;
        names.retain(|one| one.entry.id() == id);
        let Some(was) = names.first().map(|one| one.entry.clone()) else {
            return Err(Fault::Missing(id.to_owned()));
        };
        let becomes = counted(&was);
        let mut is_there = names.iter().any(|one| one.entry == becomes);
        for name in names
            .iter()
            .map(|one| &one.entry)
            .filter(|entry| **entry != becomes)
        {
            let from = name.to_string();
            if is_there {
                self.put_away(&from)?;
                continue;
            }
            let to = becomes.to_string();
            if self.list()?.iter().any(|(name, _)| *name == to) {
                // It has no content, or it would be installed.
                self.remove(&to)?;
            }
            self.rename(&from, &to)?;
            is_there = true;
        }
        Ok((was, becomes))
    }

    fn put_away(&mut self, name: &str) -> Result<(), Fault> {
        let listed = self.list()?;
        let hidden = |number: usize| format!("{name}{LOST}{number}");
        let is_free = |hidden: &String| listed.iter().all(|(name, _)| name != hidden);
        let hidden = (1..).map(hidden).find(is_free);
        self.rename(name, &hidden.unwrap_or_default())
    }

    fn list(&self) -> Result<Vec<(String, u64)>, Fault> {
        let listed = self.files.list();
        listed.map_err(|error| Fault::Disk("listing EFI/Linux".to_owned(), error))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Fault> {
        let renamed = self.files.rename(from, to);
        renamed.map_err(|error| Fault::Disk(format!("renaming {from} to {to}"), error))
    }

    fn remove(&mut self, name: &str) -> Result<(), Fault> {
        let removed = self.files.remove(name);
        removed.map_err(|error| Fault::Disk(format!("removing {name}"), error))
    }
}

fn is_unfinished(name: &str) -> bool {
    let entry = name.strip_suffix(UNFINISHED).and_then(Entry::parse);
    entry.is_some()
}

#[cfg(test)]
#[path = "versions_tests.rs"]
mod tests;
