//! Mounts the EFI partition, for the time of a change only.

use std::fs;
use std::path::Path;

use corten_installer::{Directory, Loader, Versions};
use corten_server::node::SubmitError;
use corten_supervisor::REGISTRYD_UID;
use corten_sys::mount::{self, MountFlags};
use tokio::sync::{Mutex, MutexGuard};

use super::booted;

/// Mount point of the partition.
const MOUNT_POINT: &str = "/run/efi";
/// Label of the partition.
const LABEL: &str = "EFI";

/// Held while the partition is mounted: one change at a time.
static MOUNTED: Mutex<()> = Mutex::const_new(());

/// The EFI partition of the node's disk. It is mounted until the drop of this value.
#[derive(Debug)]
pub struct EfiPartition {
    _alone: MutexGuard<'static, ()>,
}

impl EfiPartition {
    /// Mounts the partition, unless another change has it mounted.
    ///
    /// # Errors
    /// [`SubmitError::Busy`] when another change has it mounted, [`SubmitError::Failed`] when the mount fails.
    pub fn try_mount() -> Result<EfiPartition, SubmitError> {
        let alone = MOUNTED.try_lock();
        let alone =
            alone.map_err(|_| SubmitError::Busy("another change of the node's versions"))?;
        EfiPartition::with(alone).map_err(SubmitError::Failed)
    }

    /// Waits until no other change has the partition, and mounts it.
    ///
    /// # Errors
    /// The mount fails; the text says why.
    pub async fn mount() -> Result<EfiPartition, String> {
        EfiPartition::with(MOUNTED.lock().await)
    }

    fn with(alone: MutexGuard<'static, ()>) -> Result<EfiPartition, String> {
        let device = corten_volumes::device(LABEL).map_err(|error| error.to_string())?;
        let told = |error: std::io::Error| {
            format!(
                "the EFI partition {} cannot be mounted: {error}",
                device.display()
            )
        };
        fs::create_dir_all(MOUNT_POINT).map_err(told)?;
        // Without DIRSYNC: `corten_installer::Directory` orders the changes of names itself.
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        // The group: registryd reads the running version when it checks a new one.
        let options = format!("umask=0027,gid={REGISTRYD_UID}");
        mount::mount(&device, Path::new(MOUNT_POINT), "vfat", flags, &options).map_err(told)?;
        Ok(EfiPartition { _alone: alone })
    }

    /// Directory of the boot entries.
    #[must_use]
    pub fn directory(&self) -> Directory {
        Directory::of(Path::new(MOUNT_POINT))
    }

    /// Versions on the partition.
    #[must_use]
    pub fn versions(&self) -> Versions<Directory> {
        let loader = booted().map_or(Loader::SystemdBoot, |booted| booted.loader);
        Versions::new(self.directory(), loader)
    }
}

impl Drop for EfiPartition {
    fn drop(&mut self) {
        let target = Path::new(MOUNT_POINT);
        if mount::unmount(target).is_err() {
            let _ = mount::detach(target);
        }
    }
}
