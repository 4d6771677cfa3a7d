//! Records of `/run/udev/data` in the format libudev clients read. Only [`Database`] does I/O.

use crate::event::Properties;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Data about a device beyond sysfs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Names below `/dev`.
    pub links: BTreeSet<String>,
    /// Priority of its link claims.
    pub priority: i32,
    /// Time of the first handling in microseconds of the monotonic clock; 0 for never.
    pub initialized: u64,
    /// Properties beyond those of the kernel.
    pub properties: Properties,
    /// Tags.
    pub tags: BTreeSet<String>,
}

impl Record {
    /// One line per fact; the first letter is the kind of fact.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let mut line = |kind: char, value: &str| {
            // A value with a line feed could forge other lines.
            if !value.contains('\n') {
                text.push(kind);
                text.push(':');
                text.push_str(value);
                text.push('\n');
            }
        };
        for link in &self.links {
            line('S', link);
        }
        if self.priority != 0 {
            line('L', &self.priority.to_string());
        }
        if self.initialized != 0 {
            line('I', &self.initialized.to_string());
        }
        for (key, value) in &self.properties {
            line('E', &format!("{key}={value}"));
        }
        for tag in &self.tags {
            // `G`: all tags the device ever had. `Q`: its current tags.
            line('G', tag);
            line('Q', tag);
        }
        line('V', "1");
        text
    }

    /// Parses a record. Lines of unknown kinds are skipped.
    pub fn decode(text: &str) -> Self {
        let mut record = Self::default();
        for line in text.lines() {
            let Some((kind, value)) = line.split_once(':') else {
                continue;
            };
            match kind {
                "S" => drop(record.links.insert(value.to_owned())),
                "L" => record.priority = value.parse().unwrap_or_default(),
                "I" => record.initialized = value.parse().unwrap_or_default(),
                "Q" => drop(record.tags.insert(value.to_owned())),
                "E" => {
                    if let Some((key, value)) = value.split_once('=') {
                        record.properties.insert(key.to_owned(), value.to_owned());
                    }
                }
                _ => {}
            }
        }
        record
    }
}

/// The files: `data/<id>` per device, `tags/<tag>/<id>` per tag it has.
#[derive(Debug)]
pub struct Database {
    root: PathBuf,
}

impl Database {
    /// The database below `root`, normally `/run/udev`.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The stored record of `id`.
    pub fn load(&self, id: &str) -> Option<Record> {
        Some(Record::decode(
            &fs::read_to_string(self.data().join(id)).ok()?,
        ))
    }

    /// Replaces the record of `id` atomically.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn store(&self, id: &str, record: &Record) -> io::Result<()> {
        let (path, text) = (self.data().join(id), record.encode());
        let before = fs::read_to_string(&path).ok();
        // Most events change nothing; skip the write.
        if before.as_deref() == Some(&text) {
            return Ok(());
        }
        let old = before.map(|text| Record::decode(&text)).unwrap_or_default();
        // Clients take the presence of the file as "initialized", so it appears complete, by a rename.
        let temporary = self.data().join(format!(".#{id}"));
        write(&temporary, text.as_bytes())?;
        fs::rename(&temporary, path)?;
        for tag in record.tags.difference(&old.tags) {
            write(&self.tag(tag).join(id), b"")?;
        }
        self.untag(id, old.tags.difference(&record.tags))
    }

    /// Removes the record of `id`, if there is one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn forget(&self, id: &str) -> io::Result<()> {
        let old = self.load(id).unwrap_or_default();
        self.untag(id, old.tags.iter())?;
        gone(fs::remove_file(self.data().join(id)))
    }

    /// The ids of all records.
    pub fn ids(&self) -> Vec<String> {
        let entries = fs::read_dir(self.data()).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    fn untag<'a>(&self, id: &str, tags: impl Iterator<Item = &'a String>) -> io::Result<()> {
        for tag in tags {
            gone(fs::remove_file(self.tag(tag).join(id)))?;
        }
        Ok(())
    }

    fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    fn tag(&self, tag: &str) -> PathBuf {
        self.root.join("tags").join(tag)
    }
}

/// Writes a file; creates its directory if it is missing.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::write(path, bytes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            fs::write(path, bytes)
        }
        done => done,
    }
}

/// Treats a missing file as removed.
pub fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::{Database, Record};

    fn record() -> Record {
        Record {
            links: ["disk/by-id/virtio-1".into(), "block/254:0".into()].into(),
            priority: -5,
            initialized: 1_234_567,
            properties: [
                ("ID_FS_TYPE".into(), "xfs".into()),
                ("A".into(), "b=c".into()),
            ]
            .into(),
            tags: ["systemd".into()].into(),
        }
    }

    #[test]
    fn database_has_the_format_of_libudev() {
        let text = "S:block/254:0\nS:disk/by-id/virtio-1\nL:-5\nI:1234567\nE:A=b=c\n\
                    E:ID_FS_TYPE=xfs\nG:systemd\nQ:systemd\nV:1\n";
        assert_eq!(record().encode(), text);
        assert_eq!(Record::decode(text), record());
        let forged = Record {
            properties: [("A".into(), "b\nS:passwd".into())].into(),
            ..Record::default()
        };
        assert_eq!(forged.encode(), "V:1\n");
    }

    #[test]
    fn record_is_stored_replaced_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::new(directory.path());
        assert_eq!(database.load("b254:0"), None);
        database.forget("b254:0").unwrap();
        database.store("b254:0", &record()).unwrap();
        assert_eq!(database.load("b254:0"), Some(record()));
        let tag = directory.path().join("tags/systemd/b254:0");
        assert!(tag.exists());
        assert_eq!(database.ids(), ["b254:0"]);
        database.store("b254:0", &Record::default()).unwrap();
        assert!(!tag.exists());
        database.forget("b254:0").unwrap();
        assert!(database.ids().is_empty());
    }
}
