//! Changes the versions on the EFI partition. After each step of a change, the node still starts.
//!
//! FAT has no journal: a change writes a new file under a name that the boot loader ignores, flushes it and renames it.
//! A power cut within the rename leaves the old name, the new name, or both; one of them may have no content.

use std::collections::BTreeSet;
use std::io::{self, Read};

use crate::grub::{self, Listed, Start, Unfit};
use crate::{Entry, IMAGES, Installed, Loader, first};

/// Suffix of a file whose write has not finished. The boot loader ignores such names.
pub(crate) const UNFINISHED: &str = ".new";
/// Suffix of the second name of a file that has two. The name stays: its removal would free the clusters of the first
/// name.
pub(crate) const LOST: &str = ".lost";
/// Space to leave free on the partition, in bytes: directories grow, and the boot loader keeps a random seed there.
const SPARE: u64 = 1 << 20;

/// The directory of boot entries. Each change is durable when its call returns.
pub trait Files {
    /// Lists the files: names, and lengths in bytes.
    ///
    /// # Errors
    /// The file system fails; so for all methods.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;
    /// Reads `IMAGE_VERSION` of the image in this file; empty when the image has none.
    fn version(&self, name: &str) -> io::Result<String>;
    /// Returns the free space in bytes.
    fn free(&self) -> io::Result<u64>;
    /// Writes a new file, and reads it back to verify it.
    fn write(&mut self, name: &str, content: &mut dyn Read) -> io::Result<()>;
    /// Renames a file. The new name must be free.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Reads what GRUB needs to know of the image in this file.
    ///
    /// # Errors
    /// The file system fails, or GRUB cannot start the image.
    fn start(&self, name: &str) -> Result<Start, Unfit>;
    /// Whether the partition has GRUB's configuration.
    fn has_grub(&self) -> bool;
    /// Replaces GRUB's configuration, by a rename.
    fn configure(&mut self, text: &str) -> io::Result<()>;
    /// Reads GRUB's counter; empty if there is none.
    fn block(&self) -> io::Result<Vec<u8>>;
    /// Overwrites GRUB's counter, in place.
    fn arm(&mut self, block: &[u8]) -> io::Result<()>;
}

/// Error of a change. The versions that can start stay as they are.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file system fails.
    #[error("{0} on the EFI partition: {1}")]
    Disk(String, #[source] io::Error),
    /// The partition has no such entry.
    #[error("the EFI partition has no boot entry {0}")]
    Missing(String),
    /// The running version is still on trial, so the boot loader may yet leave it.
    #[error("the running version is still on trial; wait until `get upgrades` shows its verdict")]
    OnTrial,
    /// The partition has no other version.
    #[error("the EFI partition has no other version")]
    Alone,
    /// The new file would not fit.
    #[error(
        "the image needs {needed} bytes on the EFI partition, and {free} are free; build a smaller image"
    )]
    Room {
        /// Bytes of the image and of the space to leave free.
        needed: u64,
        /// Free bytes.
        free: u64,
    },
    /// GRUB cannot start the version in this file.
    #[error("{0}: {1}")]
    Unfit(String, Unfit),
    /// The caller's announcement before the change failed.
    #[error("{0}")]
    Refused(String),
}

/// Versions on a node's EFI partition.
#[derive(Debug)]
pub struct Versions<F> {
    files: F,
    loader: Loader,
}

impl<F: Files> Versions<F> {
    /// Versions in this directory of a node that this boot loader has started.
    pub fn new(files: F, loader: Loader) -> Versions<F> {
        Versions { files, loader }
    }

    /// Lists every version, in no order. It skips files without content, which a power cut leaves.
    ///
    /// # Errors
    /// The file system fails.
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

    /// Installs `image` of `version`, `length` bytes, beside the running version. The next start tries it. `announce`
    /// gets the entry before the boot loader can see it.
    ///
    /// # Errors
    /// A step fails or `announce` refuses; the next start is that of the running version.
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
        let needed = length.saturating_add(SPARE);
        // An image that is too large costs the node no version.
        self.check_room(needed, self.removable(running)?)?;
        self.clear(running)?;
        self.check_room(needed, 0)?;
        let entry = Entry::new(version, 0);
        let entry = if entry.id() == running {
            Entry::new(version, 1)
        } else {
            entry
        };
        let unfinished = format!("{}{UNFINISHED}", entry.id());
        let written = self.files.write(&unfinished, image);
        let ready = match written {
            Ok(()) => {
                let installed = Installed {
                    entry: entry.clone(),
                    version: version.to_owned(),
                };
                let prepared = self.prepare(&entry, Some((unfinished.clone(), installed)));
                prepared.and_then(|()| announce(&entry).map_err(Fault::Refused))
            }
            Err(error) => Err(Fault::Disk(format!("writing {unfinished}"), error)),
        };
        if let Err(fault) = ready {
            // The next attempt removes a file whose removal fails now.
            let _ = self.files.remove(&unfinished);
            return Err(fault);
        }
        self.rename(&unfinished, &entry.to_string())?;
        self.put_behind(running, &entry)?;
        Ok(entry)
    }

    /// Has the boot loader try the version `to` at the next start, and fall back to the running one.
    ///
    /// # Errors
    /// A step fails; the next start is that of the running version.
    pub fn switch(&mut self, running: &str, to: &str) -> Result<(), Fault> {
        let found = self.find(to)?;
        self.prepare(&found.entry, None)?;
        let (_, trial) = self.change(to, Entry::on_trial)?;
        self.put_behind(running, &trial)
    }

    /// The best version other than the running one: the target of a rollback.
    ///
    /// # Errors
    /// The partition has no other version.
    pub fn other(&self, running: &str) -> Result<Installed, Fault> {
        let mut others = self.installed()?;
        others.retain(|one| one.entry.id() != running);
        first(&others).cloned().ok_or(Fault::Alone)
    }

    /// Removes the counter of an entry, which makes it permanent. Returns false when it had none.
    ///
    /// # Errors
    /// A step fails; the entry is still on trial.
    pub fn mark_good(&mut self, id: &str) -> Result<bool, Fault> {
        let (found, _) = self.change(id, Entry::good)?;
        Ok(found.counter.is_some())
    }

    /// Removes the tries of an entry: the boot loader starts another one, if one exists.
    ///
    /// # Errors
    /// A step fails; the entry is unchanged.
    pub fn mark_bad(&mut self, id: &str) -> Result<(), Fault> {
        self.change(id, Entry::bad).map(drop)
    }

    /// Finds the version with this entry ID.
    ///
    /// # Errors
    /// The partition has no such entry.
    pub fn find(&self, id: &str) -> Result<Installed, Fault> {
        let installed = self.installed()?;
        let found = installed.into_iter().find(|one| one.entry.id() == id);
        found.ok_or_else(|| Fault::Missing(id.to_owned()))
    }

    /// Number of starts of the entry with this ID that the boot loader has counted in its trial.
    ///
    /// # Errors
    /// The partition has no such entry, or no counter of it.
    pub fn tries(&self, id: &str) -> Result<u32, Fault> {
        let counter = self.find(id)?.entry.counter;
        let tries = match self.loader {
            Loader::SystemdBoot => counter.map(|counter| counter.done),
            Loader::Grub => {
                let block = self.files.block();
                let broken = |error| Fault::Disk("reading GRUB's counter".to_owned(), error);
                grub::starts(&block.map_err(broken)?, id)
            }
        };
        tries.ok_or_else(|| Fault::Missing(id.to_owned()))
    }

    /// Has GRUB count the starts of `trial`, and list all versions, and that of a file which is not an entry yet. GRUB
    /// sees no difference until the name of a file says that its entry is on trial.
    ///
    /// This is also done on a node that systemd-boot has started, so that its disk works on a machine with BIOS. There,
    /// GRUB does without a version that it cannot start.
    fn prepare(
        &mut self,
        trial: &Entry,
        unfinished: Option<(String, Installed)>,
    ) -> Result<(), Fault> {
        if self.loader != Loader::Grub && !self.files.has_grub() {
            return Ok(());
        }
        let installed = self.installed()?.into_iter();
        let named = installed.map(|one| (one.entry.to_string(), one));
        let mut listed = Vec::new();
        for (name, installed) in named.chain(unfinished) {
            match self.files.start(&name) {
                Ok(start) => listed.push(Listed { installed, start }),
                Err(Unfit::Read(error)) => {
                    return Err(Fault::Disk(format!("reading {name}"), error));
                }
                Err(unfit) if self.loader == Loader::Grub => {
                    return Err(Fault::Unfit(name, unfit));
                }
                Err(_) => {}
            }
        }
        let armed = self.files.arm(&grub::block(trial));
        armed.map_err(|error| Fault::Disk("writing GRUB's counter".to_owned(), error))?;
        let configured = self.files.configure(&grub::config(listed));
        configured.map_err(|error| Fault::Disk("writing GRUB's configuration".to_owned(), error))
    }

    /// Makes `entry` the boot loader's first choice, even if it is the older one: then `running` is marked bad. Once
    /// both are bad, the boot loader starts `running` again, as if neither was.
    fn put_behind(&mut self, running: &str, entry: &Entry) -> Result<(), Fault> {
        let installed = self.installed()?;
        if first(&installed).is_some_and(|one| one.entry == *entry) {
            return Ok(());
        }
        self.mark_bad(running)
    }

    /// Checks that a file of `needed` bytes fits, once `removable` bytes are removed.
    fn check_room(&self, needed: u64, removable: u64) -> Result<(), Fault> {
        let free = self.files.free();
        let free = free.map_err(|error| Fault::Disk("reading the free space".to_owned(), error))?;
        let free = free.saturating_add(removable);
        if free < needed {
            return Err(Fault::Room { needed, free });
        }
        Ok(())
    }

    /// Bytes of the files that [`Versions::clear`] removes. Of two names of one file, one counts.
    fn removable(&self, running: &str) -> Result<u64, Fault> {
        let mut counted = BTreeSet::from([running.to_owned()]);
        let is_removed = |(name, length): &(String, u64)| match Entry::parse(name) {
            Some(entry) => *length > 0 && counted.insert(entry.id()),
            None => is_unfinished(name),
        };
        let files = self.list()?.into_iter().filter(is_removed);
        Ok(files.map(|(_, length)| length).sum())
    }

    /// Removes every version but the running one, and the unfinished files.
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

    /// Gives the entry with this ID a new counter. Returns the old and the new entry.
    ///
    /// A power cut within a rename may have left two names of one file. One name gets the counter; the other is hidden
    /// from the boot loader.
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
                // The file has no content, or `installed` would have listed it.
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
        listed.map_err(|error| Fault::Disk(format!("listing {IMAGES}"), error))
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
