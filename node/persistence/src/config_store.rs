//! Stores the machine config between boots. A power loss at any moment leaves the complete old or new config.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use corten_base::durable;
use corten_config::Document;

const CURRENT: &str = "config.yaml";
const GOOD: &str = "config.good.yaml";
const PREVIOUS: &str = "config.previous.yaml";

/// The directory of the stored configs.
///
/// | file | content |
/// |---|---|
/// | `config.yaml` | the config of the next boot |
/// | `config.good.yaml` | the last one that became active |
/// | `config.previous.yaml` | the one before that |
#[derive(Debug, Clone)]
pub struct ConfigStore {
    directory: PathBuf,
}

/// Result of loading.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The newest usable config.
    pub document: Option<Document>,
    /// Problems of newer configs, for the console.
    pub complaints: Vec<String>,
}

impl ConfigStore {
    /// The store on a volume; `None` if no volume is mounted there, because files would not survive a reboot.
    #[must_use]
    pub fn on_volume(mount_point: &Path) -> Option<ConfigStore> {
        durable::is_volume(mount_point).then(|| ConfigStore::at(mount_point))
    }

    fn at(directory: &Path) -> ConfigStore {
        ConfigStore {
            directory: directory.to_owned(),
        }
    }

    /// Stores the config of the next boot durably.
    ///
    /// # Errors
    /// If the volume is full or broken. The old config stays.
    pub fn save(&self, text: &str) -> io::Result<()> {
        durable::replace(&self.directory, CURRENT, text.as_bytes())
    }

    /// Stores a config that became active, and keeps the one before it.
    ///
    /// # Errors
    /// If the volume is full or broken. The stored configs stay.
    pub fn remember(&self, text: &str) -> io::Result<()> {
        let good = match fs::read_to_string(self.directory.join(GOOD)) {
            Ok(good) if good == text => return Ok(()),
            Ok(good) => Some(good),
            Err(_) => None,
        };
        // A damaged file must not replace the usable previous one.
        if good.is_some_and(|good| Document::parse(good.as_bytes()).is_ok()) {
            durable::rename(&self.directory, GOOD, PREVIOUS)?;
        }
        durable::replace(&self.directory, GOOD, text.as_bytes())
    }

    /// Loads the newest usable config.
    #[must_use]
    pub fn load(&self) -> Loaded {
        let mut loaded = Loaded::default();
        for name in [CURRENT, GOOD, PREVIOUS] {
            let path = self.directory.join(name);
            let parsed = match fs::read(&path) {
                Ok(bytes) => Document::parse(&bytes).map_err(|problems| problems.to_string()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => Err(error.to_string()),
            };
            match parsed {
                Ok(document) => {
                    if !loaded.complaints.is_empty() {
                        let text = format!("using {} instead", path.display());
                        loaded.complaints.push(text);
                    }
                    loaded.document = Some(document);
                    break;
                }
                Err(why) => {
                    let text = format!("{} cannot be used: {why}", path.display());
                    loaded.complaints.push(text);
                }
            }
        }
        loaded
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use std::fs::File;
    use std::io::Write as _;

    use corten_base::durable::{Access, UNFINISHED, replace, replace_now};
    use corten_base::sample;
    use corten_base::testing::on_a_volume;
    use corten_types::stop::{Reason, Stop};

    use super::*;
    use crate::last_stop;

    fn config(hostname: &str) -> String {
        sample::text(&format!("network: {{hostname: {hostname}}}"), "")
    }

    fn store() -> (tempfile::TempDir, ConfigStore) {
        let directory = tempfile::tempdir().unwrap();
        let store = ConfigStore::at(directory.path());
        (directory, store)
    }

    fn name(loaded: &Loaded) -> Option<&str> {
        loaded.document.as_ref().and_then(Document::hostname)
    }

    #[test]
    fn saved_config_is_loaded_and_private() {
        let (directory, store) = store();
        assert!(store.load().document.is_none());
        for hostname in ["a", "b"] {
            store.save(&config(hostname)).unwrap();
            let loaded = store.load();
            assert_eq!(
                (name(&loaded), loaded.complaints.len()),
                (Some(hostname), 0)
            );
        }
        let mode = fs::metadata(directory.path().join(CURRENT))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(!directory.path().join(UNFINISHED).exists());
    }

    #[test]
    fn unusable_config_falls_back_to_the_last_good_config() {
        let (directory, store) = store();
        for hostname in ["a", "b", "b"] {
            store.save(&config(hostname)).unwrap();
            store.remember(&config(hostname)).unwrap();
        }
        let damage = |file: &str| fs::write(directory.path().join(file), "machine: [").unwrap();
        damage(CURRENT);
        let loaded = store.load();
        assert_eq!(name(&loaded), Some("b"));
        assert!(loaded.complaints[0].contains("config.yaml cannot be used: line 1"));
        assert!(
            loaded.complaints[1].contains("using"),
            "{:?}",
            loaded.complaints
        );
        // As after a downgrade to a version that rejects the file.
        damage(GOOD);
        assert_eq!(name(&store.load()), Some("a"));
        // A damaged file never replaces a usable one.
        store.remember(&config("c")).unwrap();
        damage(GOOD);
        assert_eq!(name(&store.load()), Some("a"));
        damage(PREVIOUS);
        let loaded = store.load();
        assert!(loaded.document.is_none());
        assert_eq!(loaded.complaints.len(), 3);
    }

    #[test]
    fn a_power_cut_leaves_the_old_or_the_new_config() {
        let (directory, store) = store();
        store.save(&config("old")).unwrap();
        store.remember(&config("old")).unwrap();
        let new = config("new");
        // The write was torn after any number of bytes: the old config counts, and the next write overwrites the rest.
        for length in 0..=new.len() {
            fs::write(directory.path().join(UNFINISHED), &new[..length]).unwrap();
            let loaded = store.load();
            assert_eq!((name(&loaded), loaded.complaints.len()), (Some("old"), 0));
        }
        store.save(&new).unwrap();
        assert_eq!(name(&store.load()), Some("new"));
        // Between the two renames of `remember` the current file is intact.
        durable::rename(directory.path(), GOOD, PREVIOUS).unwrap();
        assert_eq!(name(&store.load()), Some("new"));
        fs::write(directory.path().join(CURRENT), "").unwrap();
        assert_eq!(name(&store.load()), Some("old"));
    }

    #[test]
    fn failed_write_keeps_the_old_config() {
        let (directory, store) = store();
        store.save(&config("old")).unwrap();
        // A directory in the way makes the write fail, even for root.
        fs::create_dir(directory.path().join(UNFINISHED)).unwrap();
        store.save(&config("new")).unwrap_err();
        assert_eq!(name(&store.load()), Some("old"));
    }

    #[test]
    fn full_volume_is_an_error_and_keeps_the_old_config() {
        on_a_volume("size=64k,mode=700", |volume| {
            let store = ConfigStore::on_volume(volume).unwrap();
            let config = |name: &str| sample::text(&format!("network: {{hostname: {name}}}"), "");
            let name = || {
                let loaded = store.load();
                assert!(loaded.complaints.is_empty(), "{:?}", loaded.complaints);
                loaded.document.unwrap().hostname().unwrap().to_owned()
            };
            let stop = Stop::now(Reason::Reboot, "asked for");
            store.save(&config("old")).unwrap();
            store.remember(&config("old")).unwrap();
            last_stop::record(volume, "boot", &stop).unwrap();
            replace_now(&volume.join("hosts"), "old", Access::ALL).unwrap();
            let mut filler = File::create(volume.join("filler")).unwrap();
            while filler.write_all(&[0; 512]).is_ok() {}
            let files = || fs::read_dir(volume).unwrap().count();
            let before = files();
            let long = "x".repeat(8192);
            for failed in [
                store.save(&config("new")),
                store.remember(&config("new")),
                last_stop::record(volume, "boot", &stop),
                replace(volume, "user-volumes.json", long.as_bytes()),
                replace_now(&volume.join("hosts"), &long, Access::ALL),
            ] {
                assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
                assert_eq!(name(), "old");
            }
            let hosts = fs::read_to_string(volume.join("hosts")).unwrap();
            assert_eq!(hosts, "old");
            assert_eq!(files(), before);
            // After space is freed, writes succeed again.
            fs::remove_file(volume.join("filler")).unwrap();
            drop(filler);
            store.save(&config("new")).unwrap();
            store.remember(&config("new")).unwrap();
            last_stop::record(volume, "boot", &stop).unwrap();
            assert_eq!(name(), "new");
        });
    }
}
