//! The mount table, re-read on changes.

use std::fs::File;
use std::io;
use std::time::Duration;

pub use corten_sys::mount_table::{Mount, parse};
use corten_sys::mount_table::{TABLE, read};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::console;
use crate::panics::again;

/// Delay after a change, to coalesce the dozens of mounts that each pod brings.
const BUNCH: Duration = Duration::from_millis(500);

/// The current table; empty if it cannot be read.
#[must_use]
pub fn now() -> Vec<Mount> {
    read().unwrap_or_default()
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

    #[tokio::test]
    async fn mount_table_of_the_test_machine_is_read() {
        let mut mounts = follow();
        let now = mounts.wait_for(|mounts| !mounts.is_empty()).await.unwrap();
        assert!(now.iter().any(|mount| mount.target == "/"));
    }
}
