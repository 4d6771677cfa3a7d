//! Mounted file systems: `/proc/self/mounts` and `statfs`, in bytes.

use corten_api::machine as api;
use tonic::Status;

use super::Paths;
use crate::mount_table::{self, Mount};
use crate::proc;

pub(super) fn mounts(paths: &Paths) -> Result<api::MountsResponse, Status> {
    let text = proc::text(&paths.proc, "self/mounts")?;
    let stats = mount_table::parse(&text).into_iter().map(measure).collect();
    Ok(api::MountsResponse {
        messages: vec![api::Mounts {
            metadata: None,
            stats,
        }],
    })
}

/// A file system that cannot be measured (a dead network mount) is listed
/// with nothing in it rather than not at all.
fn measure(mount: Mount) -> api::MountStat {
    let (size, available) = rustix::fs::statvfs(mount.target.as_str()).map_or((0, 0), |usage| {
        let bytes = |blocks: u64| blocks.saturating_mul(usage.f_frsize);
        (bytes(usage.f_blocks), bytes(usage.f_bavail))
    });
    api::MountStat {
        filesystem: mount.source,
        size,
        available,
        mounted_on: mount.target,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_a_size() {
        let of = |target: &str| {
            let text = format!("source {target} type rw 0 0");
            measure(mount_table::parse(&text).remove(0))
        };
        let stat = of("/");
        assert!(stat.size > 0 && stat.available <= stat.size);
        assert_eq!(of("/no/such/place").size, 0);
    }
}
