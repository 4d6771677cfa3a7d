//! What machined says: one place, in the kernel's log (and so on the console) and in its own log.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::OnceLock;

use corten_sys::kmsg::{Level, Writer};

const PREFIX: &str = "[corten] ";

static KERNEL: OnceLock<Writer> = OnceLock::new();
/// Takes lines of machined's own log; it never waits.
type Log = Box<dyn Fn(&str) + Send + Sync>;

static LOG: OnceLock<Log> = OnceLock::new();

/// From now on speak through the kernel's log; until then, or without it, on standard error.
pub fn open(device: &Path) {
    if let Ok(writer) = Writer::open(device) {
        let _ = KERNEL.set(writer);
    }
    open_none();
}

/// From now on speak for libraries, too, on standard error.
pub fn open_none() {
    if log::set_logger(&Libraries).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// From now on also write into machined's own log.
pub fn log_to(log: impl Fn(&str) + Send + Sync + 'static) {
    let _ = LOG.set(Box::new(log));
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

/// Shows a line of a service's output, which is also in its log: in the kernel's log alone, and what a
/// terminal would obey is spelt out.
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
        // The DHCP client sees every packet while it has no address, and says of each that it is none for it.
        let is_of_others = || {
            record
                .args()
                .to_string()
                .starts_with("Ignoring invalid DHCP package")
        };
        // Who calls the Kubernetes API says itself what became of the call.
        let is_told = record.target().starts_with("kube_client");
        if self.enabled(record.metadata()) && !is_told && !is_of_others() {
            let library = record.target().split(':').next().unwrap_or_default();
            say(&format!("{library}: {}", record.args()));
        }
    }

    fn flush(&self) {}
}

fn to_kernel(level: Level, text: &str) {
    let kernel = KERNEL.get().map(|kernel| kernel.write(level, PREFIX, text));
    if !matches!(kernel, Some(Ok(()))) {
        // Nobody may listen there any more; eprintln! would panic, also in the panic hook.
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
    fn a_terminal_obeys_nothing_of_what_a_service_says() {
        let said = "\x1b[2Jgone\r\tä".as_bytes();
        assert_eq!(spelt_out(said), "\\u{1b}[2Jgone\\r\\tä");
        assert_eq!(spelt_out(b"\xff"), "\u{fffd}");
    }
    #[test]
    fn what_is_said_where_nobody_listens_ends_nothing() {
        let test = "console::tests::what_is_said_where_nobody_listens_ends_nothing";
        let said = in_a_process(test, || {
            let kept = rustix::io::dup(rustix::stdio::stderr()).unwrap();
            let (reader, writer) = io::pipe().unwrap();
            drop(reader);
            rustix::stdio::dup2_stderr(&writer).unwrap();
            assert!(io::stderr().write_all(b"x").is_err());
            crate::panics::install_hook();
            open(Path::new("/no/such/kmsg"));
            warn("nobody hears this");
            let ended: Result<(), _> = std::thread::spawn(|| panic!("nor this")).join();
            ended.unwrap_err();
            rustix::stdio::dup2_stderr(&kept).unwrap();
            warn("this is heard");
        });
        let Some(said) = said else { return };
        assert!(said.contains("[corten] this is heard"), "{said}");
        assert!(!said.contains("nobody hears"), "{said}");
    }
}
