//! Writes the logs to disks: files under `/var/log`, and tails for the next boot. A task for each hands writes to a
//! thread that may block. A full, broken or hanging disk loses only its own lines, as the rings evict them.

pub mod blocks;
mod files;
mod records;
mod writer;

use crate::config::Config;
use crate::store::Store;
use files::Files;
use records::Records;
pub use records::previous;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use writer::{Keeper, Writer};

/// Interval of writing; a line is in memory only for at most this long. Flash wears by the write: a node that logs
/// continuously writes each log's last block once per interval.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes new lines until `stop`, then once more. `boot` identifies this boot; tails with another id are the previous
/// boot's.
pub async fn keep(
    store: Arc<Store>,
    config: watch::Receiver<Config>,
    boot: String,
    stop: watch::Receiver<bool>,
) {
    // Independent of each other: they may be on different volumes.
    let files = Writer::new(Files::open);
    let records = Writer::new(move |base| Records::open(base, &boot));
    let filing = run(files, store.clone(), config.clone(), stop.clone(), |now| {
        now.files.clone()
    });
    let recording = run(records, store, config, stop, |now| now.records.clone());
    tokio::join!(filing, recording);
}

async fn run<K: Keeper + Send + 'static>(
    mut writer: Writer<K>,
    store: Arc<Store>,
    mut config: watch::Receiver<Config>,
    mut stop: watch::Receiver<bool>,
    directory: fn(&Config) -> Option<PathBuf>,
) {
    let mut changed = store.changed();
    loop {
        let stopping = *stop.borrow_and_update();
        changed.mark_unchanged();
        let directory = directory(&config.borrow_and_update());
        let logs = store.clone();
        let write = tokio::task::spawn_blocking(move || {
            writer.write(&logs, directory.as_deref());
            writer
        });
        // A task fails only by a panic, which ends the daemon.
        let Ok(written) = write.await else { return };
        writer = written;
        if stopping {
            return;
        }
        tokio::select! {
            _ = changed.changed() => {}
            _ = config.changed() => continue,
            _ = stop.changed() => continue,
        }
        tokio::select! {
            () = sleep(PAUSE) => {}
            _ = stop.changed() => {}
        }
    }
}
