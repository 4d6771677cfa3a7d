//! What is mounted where: `/proc/self/mounts` (fstab(5), proc(5)), read again when it changes.

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
/// Pods come with dozens of mounts each; so long one waits for the rest of them.
const BUNCH: Duration = Duration::from_millis(500);

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// A device's path, or whatever the file system calls where it comes from.
    pub source: String,
    /// The mount point.
    pub target: String,
    /// The file system's type.
    pub kind: String,
    /// Such as `rw`, `nosuid`.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether it was mounted with this option.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }
}

/// The table as it is; empty when the kernel cannot be asked.
#[must_use]
pub fn now() -> Vec<Mount> {
    read().unwrap_or_default()
}

fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&String::from_utf8_lossy(&fs::read(TABLE)?)))
}

/// The lines of a table; one that is none is passed over.
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

/// The kernel writes blanks, tabs, line feeds and backslashes as `\ooo`.
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

/// The table as it is, always; it stays as it was when the kernel cannot be asked any more, and that is told.
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

/// The kernel says by `POLLPRI` that the table has changed since it was last asked.
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
    fn names_are_unescaped() {
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
    fn what_is_no_line_is_passed_over() {
        let mounts = parse("\n \nproc\nproc /proc\n\u{fffd} / \u{0} \nproc /proc proc rw\n");
        let kinds: Vec<&str> = mounts.iter().map(|mount| mount.kind.as_str()).collect();
        assert_eq!(kinds, ["\u{0}", "proc"]);
    }

    #[tokio::test]
    async fn the_table_of_this_machine_is_read_at_once() {
        let mut mounts = follow();
        let now = mounts.wait_for(|mounts| !mounts.is_empty()).await.unwrap();
        assert!(now.iter().any(|mount| mount.target == "/"));
    }
}
