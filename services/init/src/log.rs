//! Messages of init, written to the kernel log and so to the console.

use std::path::Path;

use corten_sys::kmsg::{Level, Writer};

const PREFIX: &str = "[corten] [initramfs] ";

/// Writer to the kernel log, or to standard error if that cannot be opened.
pub struct Log {
    kernel: Option<Writer>,
}

impl Log {
    /// Never fails: a missing log does not stop the boot.
    pub fn open() -> Log {
        Log {
            kernel: Writer::open(Path::new("/dev/kmsg")).ok(),
        }
    }

    /// Logs progress.
    pub fn say(&self, text: &str) {
        self.write(Level::Info, text);
    }

    /// Logs a failure; shown on the console even with `quiet`.
    pub fn complain(&self, text: &str) {
        self.write(Level::Error, text);
    }

    fn write(&self, level: Level, text: &str) {
        let written = self
            .kernel
            .as_ref()
            .is_some_and(|kernel| kernel.write(level, PREFIX, text).is_ok());
        if !written {
            eprintln!("{PREFIX}{text}");
        }
    }
}
