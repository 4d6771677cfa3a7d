//! Parses and formats a boot entry's file name with its counter (Boot Loader Specification, "Boot counting").

use std::fmt;

/// Prefix of our file names, before the version.
const PREFIX: &str = "corten-";
/// Suffix of the files in `EFI/Linux` that the boot loader considers.
const SUFFIX: &str = ".efi";
/// Number of times that the boot loader starts a version that is never marked good.
pub const TRIES: u32 = 3;

/// Boot counter of an entry: the starts that are left, and the starts so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counter {
    /// Starts that are left; at 0 the entry is bad.
    pub left: u32,
    /// Starts so far.
    pub done: u32,
}

/// A boot entry of ours: `corten-1.2.0+2-1.efi`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// File name without counter and suffix, such as `corten-1.2.0`. It never changes.
    stem: String,
    /// `None`: the entry is good.
    pub counter: Option<Counter>,
}

impl Entry {
    /// Parses a file name; `None`: the file is not one of ours.
    #[must_use]
    pub fn parse(name: &str) -> Option<Entry> {
        let stem = name.strip_suffix(SUFFIX)?;
        let (stem, counter) = match stem.rsplit_once('+') {
            Some((stem, text)) => (stem, Some(counter(text)?)),
            None => (stem, None),
        };
        let is_ours = stem.starts_with(PREFIX) && stem.len() > PREFIX.len();
        is_ours.then(|| Entry {
            stem: stem.to_owned(),
            counter,
        })
    }

    /// A new entry for this version, on trial. `number` distinguishes entries of the same version.
    #[must_use]
    pub fn new(version: &str, number: u32) -> Entry {
        let part = |c: char| if is_plain(c) { c } else { '_' };
        let version: String = version.chars().map(part).take(64).collect();
        let stem = match number {
            0 => format!("{PREFIX}{version}"),
            number => format!("{PREFIX}{version}~{number}"),
        };
        Entry {
            stem,
            counter: Some(Counter {
                left: TRIES,
                done: 0,
            }),
        }
    }

    /// The boot loader's ID of the entry, whatever the counter (systemd: Boot Loader Interface, `LoaderEntrySelected`).
    #[must_use]
    pub fn id(&self) -> String {
        format!("{}{SUFFIX}", self.stem)
    }

    /// The same entry, marked good: without a counter.
    #[must_use]
    pub fn good(&self) -> Entry {
        self.counted(None)
    }

    /// The same entry, marked bad: without a try left.
    #[must_use]
    pub fn bad(&self) -> Entry {
        let done = self.counter.map_or(0, |counter| counter.done);
        self.counted(Some(Counter { left: 0, done }))
    }

    /// The same entry on trial, with all tries.
    #[must_use]
    pub fn on_trial(&self) -> Entry {
        let (left, done) = (TRIES, 0);
        self.counted(Some(Counter { left, done }))
    }

    /// File name without counter and suffix.
    #[must_use]
    pub(crate) fn stem(&self) -> &str {
        &self.stem
    }

    /// Whether the name needs no quotes in a script, as all names that [`Entry::new`] makes.
    #[must_use]
    pub(crate) fn is_plain(&self) -> bool {
        self.stem.chars().all(is_plain)
    }

    /// Whether the entry is bad. The boot loader starts a bad entry only when no other exists.
    #[must_use]
    pub fn is_bad(&self) -> bool {
        self.counter.is_some_and(|counter| counter.left == 0)
    }

    fn counted(&self, counter: Option<Counter>) -> Entry {
        let stem = self.stem.clone();
        Entry { stem, counter }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.stem)?;
        match self.counter {
            Some(Counter { left, done: 0 }) => write!(f, "+{left}")?,
            Some(Counter { left, done }) => write!(f, "+{left}-{done}")?,
            None => {}
        }
        f.write_str(SUFFIX)
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '~')
}

fn counter(text: &str) -> Option<Counter> {
    let (left, done) = text.split_once('-').unwrap_or((text, "0"));
    Some(Counter {
        left: number(left)?,
        done: number(done)?,
    })
}

fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_names_with_boot_counters_are_parsed() {
        for (name, counter) in [
            ("corten-1.2.0.efi", None),
            ("corten-1.2.0+3.efi", Some((3, 0))),
            ("corten-1.2.0+2-1.efi", Some((2, 1))),
            ("corten-1.2.0+0-3.efi", Some((0, 3))),
        ] {
            let entry = Entry::parse(name).unwrap();
            let read = entry.counter.map(|counter| (counter.left, counter.done));
            assert_eq!((read, entry.id()), (counter, "corten-1.2.0.efi".to_owned()));
            assert_eq!(entry.to_string(), name);
        }
        for name in [
            "corten-.efi",
            "corten-1.efi.new",
            "other-1.efi",
            "corten-1+.efi",
            "corten-1+-1.efi",
            "corten-1+x.efi",
            "corten-1++3.efi.",
            "",
        ] {
            assert_eq!(Entry::parse(name), None, "{name}");
        }
    }

    #[test]
    fn version_string_cannot_inject_a_path_or_a_boot_counter() {
        for (version, name) in [
            ("1.2.0", "corten-1.2.0+3.efi"),
            ("../1", "corten-.._1+3.efi"),
            ("1+0", "corten-1_0+3.efi"),
        ] {
            let entry = Entry::new(version, 0);
            assert_eq!(entry.to_string(), name);
            assert_eq!(Entry::parse(name), Some(entry));
        }
        assert_eq!(Entry::new("1", 2).to_string(), "corten-1~2+3.efi");
        assert_eq!(Entry::new("1", 0).bad().to_string(), "corten-1+0.efi");
    }
}
