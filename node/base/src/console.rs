//! Messages of machined. They go to the kernel log (and so to the console) and to machined's own log.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;

use corten_sys::kmsg::{Level, Writer};

const PREFIX: &str = "[corten] ";

static KERNEL: OnceLock<Writer> = OnceLock::new();
/// Receives the lines of machined's own log; must not block.
type Log = Box<dyn Fn(&str) + Send + Sync>;

static LOG: OnceLock<Log> = OnceLock::new();

/// Sends messages to the kernel log from now on. Before that, or if it is unavailable, they go to standard error.
pub fn open(device: &Path) {
    if let Ok(writer) = Writer::open(device) {
        let _ = KERNEL.set(writer);
    }
    open_none();
}

/// Sends messages, including those of libraries, to standard error from now on.
pub fn open_none() {
    if log::set_logger(&Libraries).is_ok() {
        log::set_max_level(log::LevelFilter::Warn);
    }
}

/// Also sends messages to machined's own log from now on.
pub fn log_to(log: impl Fn(&str) + Send + Sync + 'static) {
    let _ = LOG.set(Box::new(log));
}

/// Logs normal progress.
pub fn say(text: &str) {
    write(Level::Info, text);
}

/// Logs a problem that does not stop the node.
pub fn warn(text: &str) {
    write(Level::Warning, text);
}

/// Logs a problem that stops the node; visible even with `quiet`.
pub fn error(text: &str) {
    write(Level::Error, text);
}

/// Logs an event of a service.
pub fn service(id: &str, message: &str) {
    say(&format!("service {id}: {message}"));
}

/// Shows a line of a service's output in the kernel log only, since the service's own log has it as well. Control
/// characters are escaped, so that the line cannot control the terminal.
pub fn quote(id: &str, line: &[u8]) {
    to_kernel(Level::Info, &format!("service {id}: {}", spelt_out(line)));
}

fn spelt_out(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    for c in String::from_utf8_lossy(line).chars() {
        match c.is_control() {
            true => text.extend(c.escape_default()),
            false => text.push(c),
        }
    }
    text
}

/// Logger for messages of libraries that help with diagnosis.
struct Libraries;

impl log::Log for Libraries {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        // Callers of the Kubernetes API report the outcome of a call themselves.
        let is_told = record.target().starts_with("kube_client");
        if self.enabled(record.metadata()) && !is_told {
            let library = record.target().split(':').next().unwrap_or_default();
            say(&format!("{library}: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

fn to_kernel(level: Level, text: &str) {
    let kernel = KERNEL.get().map(|kernel| kernel.write(level, PREFIX, text));
    if !matches!(kernel, Some(Ok(()))) {
        // Standard error may be closed. eprintln! would panic, even in the panic hook.
        let _ = writeln!(io::stderr(), "{PREFIX}{text}");
    }
}

fn write(level: Level, text: &str) {
    to_kernel(level, text);
    if let Some(log) = LOG.get() {
        log(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::in_a_process;

    #[test]
    fn control_characters_of_a_service_are_escaped_on_the_console() {
        let said = "\x1b[2Jgone\r\tä".as_bytes();
        assert_eq!(spelt_out(said), "\\u{1b}[2Jgone\\r\\tä");
        assert_eq!(spelt_out(b"\xff"), "\u{fffd}");
    }
    #[test]
    fn console_message_without_a_reader_causes_no_panic() {
        let test = "console::tests::console_message_without_a_reader_causes_no_panic";
        let said = in_a_process(test, || {
            let kept = rustix::io::dup(rustix::stdio::stderr()).unwrap();
            let (reader, writer) = io::pipe().unwrap();
            drop(reader);
            rustix::stdio::dup2_stderr(&writer).unwrap();
            assert!(io::stderr().write_all(b"x").is_err());
            crate::panics::install_hook();
            open(Path::new("/no/such/kmsg"));
            warn("a message without a reader");
            let ended: Result<(), _> =
                std::thread::spawn(|| panic!("another message without a reader")).join();
            ended.unwrap_err();
            rustix::stdio::dup2_stderr(&kept).unwrap();
            warn("a message with a reader");
        });
        let Some(said) = said else { return };
        assert!(said.contains("[corten] a message with a reader"), "{said}");
        assert!(!said.contains("without a reader"), "{said}");
    }
}
