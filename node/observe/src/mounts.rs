//! Mounted file systems: `/proc/self/mounts` and `statfs`, in bytes.

use std::path::PathBuf;
use std::time::Duration;

use corten_api::machine as api;
use corten_base::mount_table::{self, Mount};
use corten_base::proc;
use tokio::sync::Mutex;
use tonic::Status;

use crate::Paths;
use crate::file_systems::Meter;

/// Timeout of a file system's answer; the rest of the list waits for it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Measures the mounted file systems.
#[derive(Debug)]
pub struct Mounts {
    meter: Meter,
    /// One list at a time: each queries one file system after the other, so that only hung file systems block threads.
    turn: Mutex<()>,
}

impl Mounts {
    /// Shares the threads of `meter`.
    #[must_use]
    pub fn new(meter: &Meter) -> Mounts {
        Mounts {
            meter: meter.patient(PATIENCE),
            turn: Mutex::new(()),
        }
    }

    /// Size and free space of each mount in bytes, in the order of `mounts`. A file system that does not answer within
    /// 1 s has size 0.
    pub async fn measured(&self, mounts: Vec<Mount>) -> api::MountsResponse {
        let _turn = self.turn.lock().await;
        let mut stats = Vec::new();
        for mount in mounts {
            stats.push(self.measure(mount).await);
        }
        let metadata = None;
        let messages = vec![api::Mounts { metadata, stats }];
        api::MountsResponse { messages }
    }

    /// A file system that cannot be measured, such as a dead network mount, is listed with size 0.
    async fn measure(&self, mount: Mount) -> api::MountStat {
        let usage = self.meter.mount(PathBuf::from(&mount.target)).await;
        let (size, available) = match usage {
            Ok(Ok(usage)) => {
                let bytes = |blocks: u64| blocks.saturating_mul(usage.f_frsize);
                (bytes(usage.f_blocks), bytes(usage.f_bavail))
            }
            _ => (0, 0),
        };
        api::MountStat {
            filesystem: mount.source,
            size,
            available,
            mounted_on: mount.target,
        }
    }
}

/// The mount table.
///
/// # Errors
/// INTERNAL if the kernel's file is unreadable; the text names it.
pub fn table(paths: &Paths) -> Result<Vec<Mount>, Status> {
    Ok(mount_table::parse(&proc::text(&paths.proc, "self/mounts")?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use corten_base::bulkhead::Bulkhead;

    use super::*;

    fn mounts(targets: &[&str]) -> Vec<Mount> {
        let line = |target: &&str| format!("source {target} type rw 0 0\n");
        mount_table::parse(&targets.iter().map(line).collect::<String>())
    }

    async fn sizes(mounts: &Mounts, targets: &[&str]) -> Vec<u64> {
        let answer = mounts.measured(self::mounts(targets)).await;
        let stats = answer.messages[0].stats.iter();
        stats.map(|stat| stat.size).collect()
    }

    fn patient(meter: &Meter, patience: Duration) -> Mounts {
        Mounts {
            meter: meter.patient(patience),
            turn: Mutex::new(()),
        }
    }

    /// Timeout for a file system that answers, on a busy machine, too.
    const ANSWER: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_root_has_a_size() {
        let mounts = patient(&Meter::of_the_kernel(), ANSWER);
        let answer = mounts
            .measured(self::mounts(&["/", "/no/such/place"]))
            .await;
        let stats = &answer.messages[0].stats;
        assert!(stats[0].size > 0 && stats[0].available <= stats[0].size);
        assert_eq!(stats[1].size, 0);
    }

    #[tokio::test]
    async fn hung_mount_occupies_one_thread_and_other_mounts_are_measured() {
        let ask = |path: &Path| -> std::io::Result<_> {
            while path == Path::new("/dead") {
                std::thread::park();
            }
            Ok(rustix::fs::statvfs("/")?)
        };
        // Only four threads, which would be exhausted if each list blocked one for ever.
        let meter = Meter::by(ask, Vec::new, Bulkhead::new(4, PATIENCE));
        let hurried = patient(&meter, Duration::from_millis(10));
        for _ in 0..4 {
            // On a busy machine the other file systems may time out, too.
            let sizes = sizes(&hurried, &["/a", "/dead", "/b"]).await;
            assert_eq!((sizes.len(), sizes[1]), (3, 0), "{sizes:?}");
        }
        let sizes = sizes(&patient(&meter, ANSWER), &["/a", "/b"]).await;
        assert!(sizes[0] > 0 && sizes[1] > 0, "{sizes:?}");
    }
}
