//! Reads and writes the kernel log (kernel: Documentation/ABI/testing/dev-kmsg).

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::OFlags;

/// Longest text of a record in bytes; a longer line is cut here, because the kernel would refuse it.
const MAX_TEXT: usize = 960;
/// Upper bound of one record as read from the kernel (CONSOLE_EXT_LOG_MAX).
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

/// Writes lines to the kernel log, and so to the console. Cheap to share.
#[derive(Debug)]
pub struct Writer {
    file: File,
}

impl Writer {
    /// Opens the device for writing.
    ///
    /// # Errors
    /// The caller is not root, or /dev is not mounted.
    pub fn open(device: &Path) -> io::Result<Writer> {
        let file = OpenOptions::new().write(true).open(device)?;
        Ok(Writer { file })
    }

    /// Writes one record per line of `text`, each with `prefix`, under facility `daemon`.
    ///
    /// # Errors
    /// The kernel's error (`EAGAIN` when it limits the rate).
    pub fn write(&self, level: Level, prefix: &str, text: &str) -> io::Result<()> {
        for line in text.lines() {
            (&self.file).write_all(&record(level, prefix, line))?;
        }
        Ok(())
    }
}

/// One record: `<facility|level>prefix text` and a line feed. Without the line feed the kernel waits for a
/// continuation, and shows the record only with the next one.
fn record(level: Level, prefix: &str, line: &str) -> Vec<u8> {
    const DAEMON: u8 = 3 << 3;
    let mut record = format!("<{}>{prefix}{line}", DAEMON | level as u8).into_bytes();
    record.truncate(MAX_TEXT - 1);
    record.push(b'\n');
    record
}

/// Reads the log from its oldest kept record.
#[derive(Debug)]
pub struct Reader {
    file: File,
    record: Vec<u8>,
}

impl Reader {
    /// Opens the device for non-blocking reads from the oldest record.
    ///
    /// # Errors
    /// The caller has no permission (`kernel.dmesg_restrict`), or /dev is not mounted.
    pub fn open(device: &Path) -> io::Result<Reader> {
        Reader::with(device, OFlags::NONBLOCK)
    }

    /// [`Reader::open`] with blocking reads.
    ///
    /// # Errors
    /// Those of [`Reader::open`].
    pub fn open_blocking(device: &Path) -> io::Result<Reader> {
        Reader::with(device, OFlags::empty())
    }

    fn with(device: &Path, flags: OFlags) -> io::Result<Reader> {
        let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(device)?;
        let record = vec![0; MAX_RECORD];
        Ok(Reader { file, record })
    }

    /// Skips all present records.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn skip(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::End(0)).map(drop)
    }

    /// The next raw record ([`parse`]); `None` when there is none yet. Records that the kernel overwrote are skipped;
    /// the sequence numbers show the gap.
    ///
    /// # Errors
    /// The kernel's error, or an end of file, which a kernel log never has.
    pub fn next_record(&mut self) -> io::Result<Option<&[u8]>> {
        use io::ErrorKind::{BrokenPipe, Interrupted, UnexpectedEof, WouldBlock};
        let length = loop {
            match self.file.read(&mut self.record) {
                Ok(0) => return Err(UnexpectedEof.into()),
                Ok(length) => break length,
                Err(error) => match error.kind() {
                    WouldBlock => return Ok(None),
                    BrokenPipe | Interrupted => {}
                    _ => return Err(error),
                },
            }
        };
        Ok(self.record.get(..length))
    }
}

/// For a caller that polls several descriptors.
impl AsRawFd for Reader {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// The time when the records' clock was 0, by the wall clock as it is now. That clock stops while the machine sleeps.
#[must_use]
pub fn booted() -> SystemTime {
    let now = SystemTime::now();
    now.checked_sub(crate::clock::monotonic()).unwrap_or(now)
}

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record<'a> {
    /// Facility × 8 + severity; a user space writer chooses its own facility.
    pub priority: u16,
    /// Sequence number; grows by one, so a gap means lost records.
    pub sequence: u64,
    /// Microseconds of the kernel's monotonic clock, since [`booted`].
    pub microseconds: u64,
    /// Text; non-printing bytes and the backslash appear as `\xNN`.
    pub text: Cow<'a, str>,
}

/// Parses `6,339,5140900,-[,...];text\n KEY=value\n`. `None` for an invalid prefix. The dictionary lines after the text
/// are ignored.
#[must_use]
pub fn parse(record: &[u8]) -> Option<Record<'_>> {
    let semicolon = record.iter().position(|byte| *byte == b';')?;
    let (prefix, text) = record.split_at_checked(semicolon)?;
    let mut fields = std::str::from_utf8(prefix).ok()?.split(',');
    let text = text.get(1..)?.split(|byte| *byte == b'\n').next()?;
    Some(Record {
        priority: fields.next()?.parse().ok()?,
        sequence: fields.next()?.parse().ok()?,
        microseconds: fields.next()?.parse().ok()?,
        text: String::from_utf8_lossy(text),
    })
}

impl<'a> Record<'a> {
    /// Decodes the `\xNN` sequences of the text.
    #[must_use]
    pub fn decoded(self) -> Record<'a> {
        if !self.text.contains('\\') {
            return self;
        }
        let mut plain = Vec::with_capacity(self.text.len());
        let mut rest = self.text.as_bytes();
        while let Some((byte, after)) = rest.split_first() {
            let decoded = rest
                .strip_prefix(b"\\x")
                .and_then(|hex| hex.split_at_checked(2))
                .and_then(|(hex, after)| Some((std::str::from_utf8(hex).ok()?, after)))
                .and_then(|(hex, after)| Some((u8::from_str_radix(hex, 16).ok()?, after)));
            let (byte, after) = decoded.unwrap_or((*byte, after));
            plain.push(byte);
            rest = after;
        }
        let text = String::from_utf8_lossy(&plain).into_owned().into();
        Record { text, ..self }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

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
    #[test]
    fn recorded_kernel_records_parse() {
        let record = parse(b"6,339,5140900,-;NET: Registered PF_INET6\n SUBSYSTEM=net\n").unwrap();
        assert_eq!((record.priority, record.sequence), (6, 339));
        assert_eq!(record.microseconds, 5_140_900);
        assert_eq!(record.text, "NET: Registered PF_INET6");
        let record = parse(b"12,340,5690716,-,caller=T1;a\\x0ab \\xc3\\xa4 \\x5c\\x\n").unwrap();
        assert_eq!(record.priority, 12);
        assert_eq!(record.text, "a\\x0ab \\xc3\\xa4 \\x5c\\x");
        assert_eq!(record.decoded().text, "a\nb \u{e4} \\\\x");
    }

    #[test]
    fn malformed_records_are_refused() {
        for bytes in [&b""[..], b"hello", b"6,1;x", b"a,b,c,-;x", b"6,1,-5,-;x"] {
            assert_eq!(parse(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn reader_drains_the_records_and_then_waits_for_new_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kmsg");
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, &path, FileType::Fifo, mode, 0).unwrap();
        let mut kernel = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        let mut reader = Reader::open(&path).unwrap();
        for record in [b"6,1,2,-;a\n", b"6,2,3,-;b\n"] {
            assert_eq!(reader.next_record().unwrap(), None);
            kernel.write_all(record).unwrap();
            assert_eq!(reader.next_record().unwrap(), Some(&record[..]));
        }
        drop(kernel);
        reader.next_record().unwrap_err();
    }
}
