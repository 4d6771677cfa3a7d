//! What init says, in the kernel's log and so on the console.

use std::path::Path;

use corten_sys::kmsg::{Level, Writer};

const PREFIX: &str = "[corten] [initramfs] ";

/// The kernel's log, or standard error where that cannot be opened.
pub struct Log {
    kernel: Option<Writer>,
}

impl Log {
    /// Never fails: a boot does not stop because it cannot be told.
    pub fn open() -> Log {
        Log {
            kernel: Writer::open(Path::new("/dev/kmsg")).ok(),
        }
    }

    /// Says how the boot goes.
    pub fn say(&self, text: &str) {
        self.write(Level::Info, text);
    }

    /// Says what went wrong; shown on the console even with `quiet`.
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
