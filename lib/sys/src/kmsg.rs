//! The kernel's log, both ways (kernel: Documentation/ABI/testing/dev-kmsg).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The longest text the kernel takes in one record; longer lines are cut here, not refused there.
const MAX_TEXT: usize = 960;
/// One record as read from the kernel fits this (CONSOLE_EXT_LOG_MAX).
const MAX_RECORD: usize = 8192;

/// Severity, as in syslog (RFC 5424, 6.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are syslog's own")]
pub enum Level {
    Error = 3,
    Warning = 4,
    Notice = 5,
    Info = 6,
}

/// Writes lines to the kernel's log, and so to the console. Cheap to share.
#[derive(Debug)]
pub struct Writer {
    file: File,
}

impl Writer {
    /// Opens the device for writing.
    ///
    /// # Errors
    /// Not root, or /dev not mounted.
    pub fn open(device: &Path) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).open(device)?;
        Ok(Writer { file })
    }

    /// Writes one record per line of `text`, each with `prefix`; facility `daemon`.
    ///
    /// # Errors
    /// The kernel's answer (`EAGAIN` when it limits the rate).
    pub fn write(&self, level: Level, prefix: &str, text: &str) -> io::Result<()> {
        for line in text.lines() {
            (&self.file).write_all(&record(level, prefix, line))?;
        }
        Ok(())
    }
}

/// One record: `<facility|level>prefix text`, and a line feed: without it the kernel takes the record for a
/// beginning, and shows it only when the next one comes.
fn record(level: Level, prefix: &str, line: &str) -> Vec<u8> {
    const DAEMON: u8 = 3 << 3;
    let mut record = format!("<{}>{prefix}{line}", DAEMON | level as u8).into_bytes();
    record.truncate(MAX_TEXT - 1);
    record.push(b'\n');
    record
}

/// Reads the log from its oldest kept record, without waiting.
#[derive(Debug)]
pub struct Reader {
    file: File,
}

impl Reader {
    /// Opens the device at its oldest record.
    ///
    /// # Errors
    /// No permission (`kernel.dmesg_restrict`), or /dev not mounted.
    pub fn open(device: &Path) -> io::Result<Reader> {
        let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(device)?;
        Ok(Reader { file })
    }

    /// The next raw record, `None` at the end. Records overwritten meanwhile are skipped.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn next_record(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; MAX_RECORD];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(length) => {
                    buffer.truncate(length);
                    return Ok(Some(buffer));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_carries_facility_and_level() {
        assert_eq!(
            record(Level::Info, "corten: ", "hello"),
            b"<30>corten: hello\n"
        );
        let long = record(Level::Error, "", &"x".repeat(5000));
        assert_eq!((long.len(), long.last()), (MAX_TEXT, Some(&b'\n')));
    }
}
