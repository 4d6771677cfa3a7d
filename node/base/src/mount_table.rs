//! The mount table `/proc/self/mounts` (fstab(5), proc(5)), re-read on changes.

use std::fs::{self, File};
use std::io;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::console;
use crate::panics::again;

const TABLE: &str = "/proc/self/mounts";
/// Delay after a change, to coalesce the dozens of mounts that each pod brings.
const BUNCH: Duration = Duration::from_millis(500);

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Device path, or the file system's own name of its source.
    pub source: String,
    /// Mount point.
    pub target: String,
    /// File system type.
    pub kind: String,
    /// Mount options, such as `rw`, `nosuid`.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether it is mounted with this option.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }
}

/// The current table; empty if it cannot be read.
#[must_use]
pub fn now() -> Vec<Mount> {
    read().unwrap_or_default()
}

fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&String::from_utf8_lossy(&fs::read(TABLE)?)))
}

/// Parses a table and skips malformed lines.
#[must_use]
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ');
    let (source, target) = (unescaped(fields.next()?), unescaped(fields.next()?));
    let (kind, options) = (unescaped(fields.next()?), fields.next()?);
    Some(Mount {
        source,
        target,
        kind,
        options: options.split(',').map(unescaped).collect(),
    })
}

/// Decodes the kernel's escapes `\ooo` of blanks, tabs, line feeds and backslashes.
fn unescaped(field: &str) -> String {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        out.push(code.unwrap_or(first));
        rest = if code.is_some() {
            after.get(3..).unwrap_or_default()
        } else {
            after
        };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The current table as a watch. If it can no longer be read, it keeps its last value and a warning is logged.
#[must_use]
pub fn follow() -> watch::Receiver<Vec<Mount>> {
    let (sender, receiver) = watch::channel(Vec::new());
    tokio::spawn(async move {
        if let Err(error) = again(|| tell(&sender)).await {
            console::warn(&format!("cannot follow {TABLE}: {error}"));
        }
    });
    receiver
}

/// The kernel signals a change since the last read by `POLLPRI`.
#[expect(
    deprecated,
    reason = "its successor is unsafe; a file keeps its descriptor as long as it lives"
)]
async fn tell(sender: &watch::Sender<Vec<Mount>>) -> io::Result<()> {
    let changes = AsyncFd::with_interest(File::open(TABLE)?, Interest::PRIORITY)?;
    loop {
        let now = read()?;
        sender.send_if_modified(|mounts| {
            let differs = *mounts != now;
            *mounts = now;
            differs
        });
        let mut change = changes.ready(Interest::PRIORITY).await?;
        sleep(BUNCH).await;
        change.clear_ready();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes_in_the_mount_table_are_decoded() {
        let mounts = parse("//host/a\\040b /mnt/x\\134y cifs rw,nosuid 0 0\n");
        let [mount] = mounts.as_slice() else {
            panic!("{mounts:?}")
        };
        assert_eq!(
            (&*mount.source, &*mount.target),
            ("//host/a b", "/mnt/x\\y")
        );
        assert!(mount.has("nosuid") && !mount.has("ro"));
        assert_eq!(unescaped(r"end\"), r"end\");
        assert_eq!(unescaped(r"\999"), r"\999");
    }

    #[test]
    fn malformed_lines_of_the_mount_table_are_skipped() {
        let mounts = parse("\n \nproc\nproc /proc\n\u{fffd} / \u{0} \nproc /proc proc rw\n");
        let kinds: Vec<&str> = mounts.iter().map(|mount| mount.kind.as_str()).collect();
        assert_eq!(kinds, ["\u{0}", "proc"]);
    }

    #[tokio::test]
    async fn mount_table_of_the_test_machine_is_read() {
        let mut mounts = follow();
        let now = mounts.wait_for(|mounts| !mounts.is_empty()).await.unwrap();
        assert!(now.iter().any(|mount| mount.target == "/"));
    }
}
