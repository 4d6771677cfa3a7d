//! Snapshots of etcd: saves them with a verified checksum, and uploads them for a recovery.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, ensure};
use corten_api::common::Data;
use corten_api::machine::EtcdSnapshotRequest;
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::{Failure, finish};
use corten_client::files;
use corten_client::messages::{Reply as _, failure_of};
use corten_client::stream::{Node, Trouble, drain, each, only_one};
use ring::digest;
use tokio::sync::mpsc;

/// Size in bytes of the SHA-256 at the end of a snapshot.
const SUM: usize = 32;
/// Size in bytes of a sent frame.
const CHUNK: usize = 64 * 1024;

/// Saves a snapshot; the file appears only when it is complete.
pub(super) async fn save(routes: Vec<Route>, path: &Path) -> Result<(), Failure> {
    only_one(&routes, "be saved to one file")?;
    let failed = each(routes, async |node| {
        let request = node.request(EtcdSnapshotRequest {});
        let mut client = node.client::<Machine>();
        let mut frames = client.etcd_snapshot(request).await?.into_inner();
        let mut file = files::beside(path).map_err(Failure::from)?;
        let mut sum = Sum::new();
        drain(&mut frames, |Data { bytes, .. }| {
            sum.update(&bytes);
            Ok::<_, Trouble>(file.write_all(&bytes)?)
        })
        .await?;
        let size = sum.size;
        let hash = sum
            .finish()
            .map_err(|error| Trouble::Said(error.to_string()))?;
        file.as_file().sync_all()?;
        let kept = file.persist(path).map_err(|error| error.error);
        kept.with_context(|| path.display().to_string())
            .map_err(Failure::from)?;
        eprintln!(
            "etcd snapshot saved to {} ({size} bytes, SHA-256 {hash})",
            path.display()
        );
        Ok(())
    })
    .await?;
    finish(&failed)
}

/// A running checksum of all bytes except the last ones, which must be equal to it.
struct Sum {
    context: digest::Context,
    tail: Vec<u8>,
    size: u64,
}

impl Sum {
    fn new() -> Sum {
        Sum {
            context: digest::Context::new(&digest::SHA256),
            tail: Vec::new(),
            size: 0,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        self.size = self.size.saturating_add(bytes.len() as u64);
        self.tail.extend_from_slice(bytes);
        let rest = self.tail.len().saturating_sub(SUM);
        let done: Vec<u8> = self.tail.drain(..rest).collect();
        self.context.update(&done);
    }

    /// The checksum in hexadecimal.
    fn finish(self) -> anyhow::Result<String> {
        ensure!(
            self.tail.len() == SUM,
            "the snapshot is too short to end with a checksum; nothing was saved"
        );
        let found = self.context.finish();
        ensure!(
            found.as_ref() == self.tail,
            "the snapshot was damaged in transfer: its checksum does not match; nothing was saved"
        );
        Ok(self.tail.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// Uploads the snapshot with which the node's etcd starts.
pub(crate) async fn recover(node: &Node, path: &Path) -> Result<(), Trouble> {
    let opened = File::open(path).with_context(|| format!("snapshot {}", path.display()));
    let mut file = opened.map_err(Failure::from)?;
    let (frames, received) = mpsc::channel(4);
    let name = path.display().to_string();
    let reading = tokio::task::spawn_blocking(move || -> anyhow::Result<()> {
        loop {
            let mut bytes = vec![0; CHUNK];
            let count = file.read(&mut bytes)?;
            bytes.truncate(count);
            let frame = Data {
                bytes,
                ..Data::default()
            };
            // The node has ended the call and reports the reason.
            if count == 0 || frames.blocking_send(frame).is_err() {
                return Ok(());
            }
        }
    });
    let request = node.request(tokio_stream::wrappers::ReceiverStream::new(received));
    let reply = node.client::<Machine>().etcd_recover(request).await;
    let read = reading
        .await
        .map_err(|_| Failure::call("reading ended early"))?;
    read.with_context(|| format!("snapshot {name}"))
        .map_err(Failure::from)?;
    let messages = reply?.into_inner().messages();
    match messages.first().and_then(failure_of) {
        Some(why) => Err(Trouble::Said(why)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_without_its_checksum_at_the_end_is_refused() {
        let body: Vec<u8> = (0..1000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let hash = digest::digest(&digest::SHA256, &body);
        let whole = [&body, hash.as_ref()].concat();
        for chunk in [1, 31, 33, 500, 2000] {
            let mut sum = Sum::new();
            for part in whole.chunks(chunk) {
                sum.update(part);
            }
            assert_eq!(sum.size, 1032);
            assert_eq!(sum.finish().unwrap().len(), 64);
        }
        let mut damaged = Sum::new();
        damaged.update(&whole[1..]);
        let error = damaged.finish().unwrap_err().to_string();
        assert!(error.contains("damaged"), "{error}");
        let error = Sum::new().finish().unwrap_err().to_string();
        assert!(error.contains("too short"), "{error}");
    }
}
