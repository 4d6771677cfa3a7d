//! Detects changed rule files (inotify(7)).

use rustix::fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use tracing::debug;

/// Watches the directories of rule files.
#[derive(Debug)]
pub struct RuleWatch {
    inotify: OwnedFd,
}

impl RuleWatch {
    /// Watches `directories`. A missing directory is not watched.
    ///
    /// # Errors
    /// If the limit of inotify instances is reached.
    pub fn new(directories: &[PathBuf]) -> io::Result<Self> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        // A file counts when it is written completely.
        let changes = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE;
        for directory in directories {
            if let Err(error) = add_watch(&inotify, directory, changes | WatchFlags::ONLYDIR) {
                debug!("cannot watch {}: {error}", directory.display());
            }
        }
        Ok(Self { inotify })
    }

    /// Whether a rule file was added, changed or removed since the last call. True after a queue overflow, too.
    pub fn changed(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut changed = false;
        while let Ok(event) = reader.next() {
            changed |= event.events().contains(ReadFlags::QUEUE_OVERFLOW);
            let name = event.file_name().map(|name| name.to_string_lossy());
            changed |= name.is_some_and(|n| n.ends_with(".rules") && !n.starts_with('.'));
        }
        changed
    }
}

impl AsFd for RuleWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::RuleWatch;
    use std::fs;

    #[test]
    fn rules_reload_only_for_complete_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let none = path("none");
        let watch = RuleWatch::new(&[none, directory.path().into()]).unwrap();
        assert!(!watch.changed());
        fs::write(path(".99-machine.rules"), "").unwrap();
        fs::write(path("note"), "").unwrap();
        assert!(!watch.changed());
        fs::rename(path(".99-machine.rules"), path("99-machine.rules")).unwrap();
        assert!(watch.changed());
        assert!(!watch.changed());
        fs::remove_file(path("99-machine.rules")).unwrap();
        assert!(watch.changed());
    }

    #[test]
    fn lost_inotify_events_trigger_a_rule_reload() {
        let directory = tempfile::tempdir().unwrap();
        let watch = RuleWatch::new(&[directory.path().into()]).unwrap();
        let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        // The kernel merges equal consecutive events, so the names alternate.
        for number in 0..=most.trim().parse().unwrap() {
            let name = if number % 2 == 0 { "a" } else { "b" };
            fs::write(directory.path().join(name), "").unwrap();
        }
        assert!(watch.changed());
        assert!(!watch.changed());
    }
}
