use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Files in memory that simulate a power cut after a number of steps, or within one. A file's content is its version.
#[derive(Debug, Clone, Default)]
struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    /// Steps before the power cut; `None`: no power cut.
    left: Option<usize>,
    /// Effect of the interrupted step.
    torn: Torn,
    steps: usize,
}

/// Effect of a step that a power cut interrupts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Torn {
    /// No effect.
    #[default]
    Nothing,
    /// A write leaves a part of the file. A rename leaves the new name without content, and the old name.
    Part,
    /// A rename leaves both names. A write leaves an empty file.
    Both,
}

const TORN: [Torn; 3] = [Torn::Nothing, Torn::Part, Torn::Both];

impl Memory {
    fn with(files: &[(&str, &str)]) -> Memory {
        let files = files
            .iter()
            .map(|(name, version)| ((*name).to_owned(), whole(version)));
        Memory {
            files: files.collect(),
            ..Memory::default()
        }
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
fn whole(version: &str) -> Vec<u8> {
    format!("{version};").into_bytes()
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
        Ok(u64::MAX)
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
}

/// Simulates the boot loader's next start: counts it, and returns the started version.
fn start(memory: &mut Memory) -> Installed {
    let installed = Versions::new(&mut *memory).installed().unwrap();
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

fn install(memory: &mut Memory, running: &str, version: &str) -> Result<Entry, Fault> {
    let content = whole(version);
    let length = u64::try_from(content.len()).unwrap();
    let image: (&mut dyn Read, u64) = (&mut content.as_slice(), length);
    Versions::new(memory).install(running, version, image, |_| Ok(()))
}

/// Runs `change` with a power cut at each of its steps, in each way.
fn at_every_step(
    before: &Memory,
    change: impl Fn(&mut Memory),
    mut check: impl FnMut(Memory),
) -> usize {
    let mut whole = before.clone();
    change(&mut whole);
    let steps = whole.steps;
    assert!(steps > 0, "there is something to break off");
    check(whole);
    let mut cuts = 0;
    for left in 0..steps {
        for torn in TORN {
            let mut memory = Memory {
                left: Some(left),
                torn,
                ..before.clone()
            };
            change(&mut memory);
            memory.left = None;
            check(memory);
            cuts += 1;
        }
    }
    cuts
}

/// Pairs of running and new version: newer, older, the same.
const PAIRS: [(&str, &str); 4] = [
    ("1.0", "2.0"),
    ("2.0", "1.0"),
    ("1.0", "1.0"),
    ("1.0", "1.0~rc1"),
];

fn running(version: &str) -> (Memory, String) {
    let name = format!("corten-{version}.efi");
    // An older version beside it, and the leftover of a power cut.
    let files = [
        (name.as_str(), version),
        ("corten-0.1.efi", "0.1"),
        ("corten-0.2.efi.new", "0"),
        ("other.efi", "9"),
    ];
    let mut memory = Memory::with(&files);
    memory.files.remove("other.efi");
    (memory, name)
}

#[test]
fn installed_version_gets_three_tries_and_is_left_unless_marked_good() {
    for (from, to) in PAIRS {
        let (mut memory, running) = running(from);
        let entry = install(&mut memory, &running, to).unwrap();
        for _ in 0..3 {
            assert_eq!(start(&mut memory).entry.id(), entry.id(), "{from} {to}");
        }
        for _ in 0..3 {
            assert_eq!(start(&mut memory).entry.id(), running, "{from} {to}");
        }
    }
}

#[test]
fn version_marked_good_stays_and_version_marked_bad_is_left_at_once() {
    for (from, to) in PAIRS {
        let (mut memory, running) = running(from);
        let entry = install(&mut memory, &running, to).unwrap();
        let mut left = memory.clone();
        start(&mut memory);
        assert!(Versions::new(&mut memory).mark_good(&entry.id()).unwrap());
        assert!(!Versions::new(&mut memory).mark_good(&entry.id()).unwrap());
        for _ in 0..5 {
            assert_eq!(start(&mut memory).entry, entry.good());
        }
        start(&mut left);
        Versions::new(&mut left).mark_bad(&entry.id()).unwrap();
        assert_eq!(start(&mut left).entry.id(), running);
        // A rollback: the previous version, on trial.
        let other = Versions::new(&mut memory).other(&entry.id()).unwrap();
        assert_eq!(other.entry.id(), running);
        Versions::new(&mut memory)
            .switch(&entry.id(), &running)
            .unwrap();
        assert_eq!(start(&mut memory).entry.id(), running);
        for _ in 0..2 {
            start(&mut memory);
        }
        assert_eq!(start(&mut memory).entry.id(), entry.id());
    }
}

#[test]
fn power_cut_leaves_the_old_or_new_version_and_a_retry_succeeds() {
    let mut cuts = 0;
    for (from, to) in PAIRS {
        let (before, running) = running(from);
        let upgrade = |memory: &mut Memory| drop(install(memory, &running, to));
        cuts += at_every_step(&before, upgrade, |mut memory| {
            let started = start(&mut memory);
            let is_old = started.entry.id() == running;
            assert!(is_old || started.version == to, "{started:?}");
            // The old version is there, whatever the result of the new one.
            for _ in 0..3 {
                start(&mut memory);
            }
            assert_eq!(start(&mut memory).entry.id(), running);
            install(&mut memory, &running, to).unwrap();
            assert_eq!(start(&mut memory).version, to);
        });
        let mut installed = before.clone();
        let entry = install(&mut installed, &running, to).unwrap();
        start(&mut installed);
        installed.steps = 0;
        let good = |memory: &mut Memory| drop(Versions::new(memory).mark_good(&entry.id()));
        cuts += at_every_step(&installed, good, |mut memory| {
            assert_eq!(start(&mut memory).entry.id(), entry.id());
        });
        let revert = |memory: &mut Memory| drop(Versions::new(memory).mark_bad(&entry.id()));
        cuts += at_every_step(&installed, revert, |mut memory| {
            let ids = [entry.id(), running.clone()];
            assert!(ids.contains(&start(&mut memory).entry.id()));
            start(&mut memory);
            start(&mut memory);
            assert_eq!(start(&mut memory).entry.id(), running);
        });
        let mut settled = installed.clone();
        Versions::new(&mut settled).mark_good(&entry.id()).unwrap();
        settled.steps = 0;
        let back = |memory: &mut Memory| drop(Versions::new(memory).switch(&entry.id(), &running));
        cuts += at_every_step(&settled, back, |mut memory| {
            for _ in 0..3 {
                let ids = [entry.id(), running.clone()];
                assert!(ids.contains(&start(&mut memory).entry.id()));
            }
            assert_eq!(start(&mut memory).entry.id(), entry.id());
        });
    }
    assert_eq!(cuts, CUTS);
}

/// Number of power cuts that the test above replays; docs/promises.md names it.
const CUTS: usize = 96;

#[test]
fn failed_install_changes_no_bootable_version() {
    let (before, running) = running("1.0");
    let mut memory = before.clone();
    let content = whole("2.0");
    let image: (&mut dyn Read, u64) = (&mut content.as_slice(), u64::MAX - SPARE);
    let refused = |_: &Entry| Err("META is full".to_owned());
    let mut versions = Versions::new(&mut memory);
    let error = versions
        .install(&running, "2.0", image, refused)
        .unwrap_err();
    assert_eq!(error.to_string(), "META is full");
    assert_eq!(memory.files.len(), 1);
    assert_eq!(start(&mut memory).entry.id(), running);
    // A version on trial can fall back only to the one that the installation would remove.
    let mut trial = Memory::with(&[("corten-1.0.efi", "1.0"), ("corten-2.0+2-1.efi", "2.0")]);
    let error = install(&mut trial, "corten-2.0.efi", "3.0").unwrap_err();
    assert!(matches!(error, Fault::OnTrial), "{error}");
    let error = install(&mut trial, "corten-9.efi", "3.0").unwrap_err();
    assert!(matches!(error, Fault::Missing(_)), "{error}");
    assert_eq!(trial.files.len(), 2);
    let error = Versions::new(&mut memory).other(&running).unwrap_err();
    assert!(matches!(error, Fault::Alone), "{error}");
}

proptest! {
    #[test]
    fn running_version_is_kept_with_any_directory_contents(
        names in prop::collection::vec("(corten-)?[12](\\+[0-3](-[0-3])?)?(\\.efi)?(\\.new)?", 0..6),
    ) {
        let running = "corten-1.5.efi";
        let mut memory = Memory::with(&[(running, "1.5")]);
        for name in &names {
            memory.files.entry(name.clone()).or_insert_with(|| whole("1"));
        }
        install(&mut memory, running, "3.0").unwrap();
        prop_assert!(memory.files.contains_key(running));
        prop_assert_eq!(start(&mut memory).version, "3.0");
        prop_assert_eq!(Versions::new(&mut memory).installed().unwrap().len(), 2);
    }
}
