//! What machined says: one place, in the kernel's log (and so on the console) and in its own log.

use std::path::Path;
use std::sync::OnceLock;

use corten_sys::kmsg::{Level, Writer};

use crate::supervisor::logs::Sender;

const PREFIX: &str = "[corten] ";

static KERNEL: OnceLock<Writer> = OnceLock::new();
static LOG: OnceLock<Sender> = OnceLock::new();

/// From now on speak through the kernel's log; until then, or without it, on standard error.
pub fn open(device: &Path) {
    if let Ok(writer) = Writer::open(device) {
        let _ = KERNEL.set(writer);
    }
    if log::set_logger(&Libraries).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// From now on also write into machined's own log.
pub fn log_to(sender: Sender) {
    let _ = LOG.set(sender);
}

/// Says how things go.
pub fn say(text: &str) {
    write(Level::Info, text);
}

/// Says what is wrong but does not stop the node.
pub fn warn(text: &str) {
    write(Level::Warning, text);
}

/// Says what stops the node; shown even with `quiet`.
pub fn error(text: &str) {
    write(Level::Error, text);
}

/// Says what happened to a service.
pub fn service(id: &str, message: &str) {
    say(&format!("service {id}: {message}"));
}

/// What libraries have to say, as far as it helps whoever looks for a fault.
struct Libraries;

impl log::Log for Libraries {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        // The DHCP client tells of lost answers and repeats; nobody else's good news matters.
        let limit = if metadata.target().starts_with("mozim") {
            log::Level::Info
        } else {
            log::Level::Warn
        };
        metadata.level() <= limit
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let library = record.target().split(':').next().unwrap_or_default();
            say(&format!("{library}: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

fn write(level: Level, text: &str) {
    let kernel = KERNEL.get().map(|kernel| kernel.write(level, PREFIX, text));
    if !matches!(kernel, Some(Ok(()))) {
        eprintln!("{PREFIX}{text}");
    }
    if let Some(log) = LOG.get() {
        log.send("machined", text.as_bytes().to_vec());
    }
}
