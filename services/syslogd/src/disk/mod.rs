//! What of the logs is written to disks: files under `/var/log`, and the tails
//! the next boot can read. A task for each, which hands the writing to a
//! thread that may block: a full, broken or hanging disk costs its own lines, by the
//! bounds of the rings, and nothing else.

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

/// At most so long a line is in memory only. Flash wears by the write: a node
/// that says something every moment writes each log's last block so often.
const PAUSE: Duration = Duration::from_secs(2);

/// Writes what comes until `stop`, and then once more. `boot` names this boot:
/// what is recorded under another name is the previous one's.
pub async fn keep(
    store: Arc<Store>,
    config: watch::Receiver<Config>,
    boot: String,
    stop: watch::Receiver<bool>,
) {
    // Two disks, or two volumes of one: neither waits for the other.
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
        // Only a panic ends it early, and that ends the daemon.
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
