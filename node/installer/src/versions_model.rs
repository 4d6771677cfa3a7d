//! A directory of boot entries in memory, and the boot loaders that start them, for tests.

use std::collections::BTreeMap;
use std::io::{self, Read};

use crate::grub::{self, Listed, Start, Unfit};
use crate::versions::{Files, Versions};
use crate::{Entry, Installed, Loader, first, grub_model};

/// Files in memory that simulate a power cut after a number of steps, or within one. A file's content is its version.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// GRUB's files; `None`: systemd-boot starts the node.
    pub(crate) grub: Option<Grub>,
    /// Steps before the power cut; `None`: no power cut.
    pub(crate) left: Option<usize>,
    /// Effect of the interrupted step.
    pub(crate) torn: Torn,
    pub(crate) steps: usize,
    /// Size of the partition in bytes; `None`: every file fits.
    pub(crate) size: Option<u64>,
}

/// GRUB's configuration and counter.
#[derive(Debug, Clone, Default)]
pub(crate) struct Grub {
    pub(crate) config: String,
    pub(crate) block: Vec<u8>,
}

/// Effect of a step that a power cut interrupts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Torn {
    /// No effect.
    #[default]
    Nothing,
    /// A write leaves a part of the file. A rename leaves the new name without content, and the old name. The counter's
    /// sector has its new start and its old end.
    Part,
    /// A rename leaves both names. A write leaves an empty file. The counter's sector has its old start and its new end.
    Both,
    /// A rename leaves the new name, and the old name without content. A write leaves the whole file.
    Late,
}

pub(crate) const TORN: [Torn; 4] = [Torn::Nothing, Torn::Part, Torn::Both, Torn::Late];

impl Memory {
    pub(crate) fn with(files: &[(&str, &str)]) -> Memory {
        let files = files
            .iter()
            .map(|(name, version)| ((*name).to_owned(), whole(version)));
        Memory {
            files: files.collect(),
            ..Memory::default()
        }
    }

    /// The same files on a disk that GRUB starts. The running version has its entry in GRUB's configuration.
    pub(crate) fn with_grub(mut self) -> Memory {
        self.grub = Some(Grub::default());
        let installed = versions(&mut self).installed().unwrap();
        let listed = installed.into_iter().map(|one| Listed {
            start: start_of(&whole(&one.version)).unwrap(),
            installed: one,
        });
        let config = grub::config(listed.collect());
        let block = vec![b'#'; 512];
        self.grub = Some(Grub { config, block });
        self
    }

    /// True for a completed step, false for the interrupted one; an error for a step after the power cut.
    fn step(&mut self) -> io::Result<bool> {
        let cut = Err(io::Error::other("power cut"));
        match &mut self.left {
            None => {
                self.steps += 1;
                Ok(true)
            }
            Some(0) => {
                // Every later step fails: the machine is off.
                self.left = Some(usize::MAX);
                Ok(false)
            }
            Some(usize::MAX) => cut,
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
        }
    }
}

/// The content of a whole image of a version.
pub(crate) fn whole(version: &str) -> Vec<u8> {
    format!("{version};").into_bytes()
}

/// Facts about an image that GRUB needs: a number that depends on its content.
pub(crate) fn start_of(content: &[u8]) -> Result<Start, Unfit> {
    if content.starts_with(b"unfit") {
        return Err(Unfit::Image("it has quotes".to_owned()));
    }
    let sum: u64 = content.iter().map(|byte| u64::from(*byte)).sum();
    Ok(Start::sample(&format!("{sum}+1")))
}

pub(crate) fn versions(memory: &mut Memory) -> Versions<&mut Memory> {
    let loader = match memory.grub {
        Some(_) => Loader::Grub,
        None => Loader::SystemdBoot,
    };
    Versions::new(memory, loader)
}

fn cut<T>() -> io::Result<T> {
    Err(io::Error::other("power cut"))
}

impl Files for &mut Memory {
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let length = |content: &Vec<u8>| u64::try_from(content.len()).unwrap();
        let files = self.files.iter();
        Ok(files
            .map(|(name, content)| (name.clone(), length(content)))
            .collect())
    }

    fn version(&self, name: &str) -> io::Result<String> {
        let text = String::from_utf8(self.files[name].clone()).unwrap();
        Ok(text.strip_suffix(';').unwrap_or_default().to_owned())
    }

    fn free(&self) -> io::Result<u64> {
        let used = self.files.values().map(Vec::len).sum::<usize>();
        let used = u64::try_from(used).unwrap();
        Ok(self.size.map_or(u64::MAX, |size| size.saturating_sub(used)))
    }

    fn write(&mut self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        assert!(!self.files.contains_key(name), "{name} is written over");
        if !self.step()? {
            match self.torn {
                Torn::Nothing => {}
                Torn::Part => drop(
                    self.files
                        .insert(name.to_owned(), bytes[..bytes.len() - 1].into()),
                ),
                Torn::Both => drop(self.files.insert(name.to_owned(), Vec::new())),
                Torn::Late => drop(self.files.insert(name.to_owned(), bytes)),
            }
            return cut();
        }
        self.files.insert(name.to_owned(), bytes);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        assert!(!self.files.contains_key(to), "{to} is written over");
        let content = self.files[from].clone();
        if !self.step()? {
            match self.torn {
                Torn::Nothing => {}
                Torn::Part => drop(self.files.insert(to.to_owned(), Vec::new())),
                Torn::Both => drop(self.files.insert(to.to_owned(), content)),
                Torn::Late => {
                    self.files.insert(to.to_owned(), content);
                    self.files.insert(from.to_owned(), Vec::new());
                }
            }
            return cut();
        }
        self.files.remove(from);
        self.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        if self.step()? {
            self.files.remove(name).ok_or(io::ErrorKind::NotFound)?;
            return Ok(());
        }
        cut()
    }

    fn start(&self, name: &str) -> Result<Start, Unfit> {
        start_of(&self.files[name])
    }

    fn has_grub(&self) -> bool {
        self.grub.is_some()
    }

    fn configure(&mut self, text: &str) -> io::Result<()> {
        let (is_done, torn) = (self.step()?, self.torn);
        let grub = self.grub.as_mut().expect("GRUB");
        if is_done || matches!(torn, Torn::Both | Torn::Late) {
            text.clone_into(&mut grub.config);
        }
        if is_done { Ok(()) } else { cut() }
    }

    fn block(&self) -> io::Result<Vec<u8>> {
        let grub = self.grub.as_ref();
        Ok(grub.map(|grub| grub.block.clone()).unwrap_or_default())
    }

    fn arm(&mut self, block: &[u8]) -> io::Result<()> {
        let (is_done, torn) = (self.step()?, self.torn);
        let now = &mut self.grub.as_mut().expect("GRUB").block;
        let middle = block.windows(5).position(|bytes| bytes == b"left=");
        let (start, end) = block.split_at(middle.expect("a counter"));
        match torn {
            _ if is_done => block.clone_into(now),
            Torn::Nothing => {}
            Torn::Late => block.clone_into(now),
            Torn::Part => now[..start.len()].copy_from_slice(start),
            Torn::Both => now[start.len()..].copy_from_slice(end),
        }
        if is_done { Ok(()) } else { cut() }
    }
}

/// Simulates the boot loader's next start: counts it, and returns the started version.
pub(crate) fn start(memory: &mut Memory) -> Installed {
    match memory.grub {
        Some(_) => start_by_grub(memory),
        None => start_by_systemd_boot(memory),
    }
}

pub(crate) fn start_by_grub(memory: &mut Memory) -> Installed {
    let Grub { config, block } = memory.grub.as_mut().expect("GRUB");
    let started = grub_model::start(config, block, &memory.files);
    let (name, list) = started.expect("a version that starts");
    let content = &memory.files[&name];
    let version = String::from_utf8(content.clone()).unwrap();
    let version = version.strip_suffix(';').expect("it is whole").to_owned();
    assert_eq!(start_of(content).unwrap(), Start::sample(&list), "{name}");
    Installed {
        entry: Entry::parse(&name).unwrap(),
        version,
    }
}

pub(crate) fn start_by_systemd_boot(memory: &mut Memory) -> Installed {
    let installed = versions(memory).installed().unwrap();
    let started = first(&installed).expect("a version that starts").clone();
    let counted = match started.entry.counter {
        Some(counter) if counter.left > 0 => {
            let mut entry = started.entry.clone();
            entry.counter = Some(crate::Counter {
                left: counter.left - 1,
                done: counter.done + 1,
            });
            let content = memory.files.remove(&started.entry.to_string()).unwrap();
            memory.files.insert(entry.to_string(), content);
            entry
        }
        _ => started.entry,
    };
    assert_eq!(
        memory.files[&counted.to_string()],
        whole(&started.version),
        "it is whole"
    );
    Installed {
        entry: counted,
        version: started.version,
    }
}
