//! A sysfs tree for tests.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Reports that a test is skipped for lack of a prerequisite.
pub fn skip(what: &str) {
    eprintln!("skipped: this needs {what}");
}

/// A temporary sysfs tree, removed on drop.
pub struct Tree {
    root: tempfile::TempDir,
}

impl Tree {
    pub fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// Adds a directory with a uevent file and, unless `subsystem` is empty, a subsystem link.
    pub fn device(&self, devpath: &str, subsystem: &str) -> &Self {
        self.attribute(devpath, "uevent", "");
        let link = self.directory(devpath).join("subsystem");
        if !subsystem.is_empty() && !link.is_symlink() {
            symlink(format!("/sys/class/{subsystem}"), link).unwrap();
        }
        self
    }

    pub fn attribute(&self, devpath: &str, name: &str, value: impl AsRef<[u8]>) -> &Self {
        let directory = self.directory(devpath);
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, value).unwrap();
        self
    }

    /// Lists a device in the directory of a bus or class, such as `class/net`.
    pub fn listed(&self, directory: &str, devpath: &str) {
        let place = self.directory(directory);
        fs::create_dir_all(&place).unwrap();
        let target = self.directory(devpath);
        symlink(&target, place.join(target.file_name().unwrap())).unwrap();
    }

    fn directory(&self, devpath: &str) -> std::path::PathBuf {
        self.root.path().join(devpath.trim_start_matches('/'))
    }
}
