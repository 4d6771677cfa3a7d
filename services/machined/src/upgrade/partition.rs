//! The EFI partition, mounted for as long as somebody changes it.

use std::fs;
use std::path::Path;

use corten_installer::{Directory, Versions};
use corten_services::REGISTRYD_UID;
use corten_sys::mount::{self, MountFlags};
use tokio::sync::{Mutex, MutexGuard};

use crate::node::SubmitError;

/// Where it is mounted.
const MOUNT_POINT: &str = "/run/efi";
/// Of the partition.
const LABEL: &str = "EFI";

/// Held while it is mounted.
static MOUNTED: Mutex<()> = Mutex::const_new(());

/// The EFI partition of the disk that carries the node, mounted while this lives.
#[derive(Debug)]
pub struct EfiPartition {
    _alone: MutexGuard<'static, ()>,
}

impl EfiPartition {
    /// Mounts it, when nobody else has it.
    ///
    /// # Errors
    /// Somebody has it; or it cannot be mounted, and the text says why.
    pub fn try_mount() -> Result<EfiPartition, SubmitError> {
        let alone = MOUNTED.try_lock();
        let alone =
            alone.map_err(|_| SubmitError::Busy("another change of the node's versions"))?;
        EfiPartition::with(alone).map_err(SubmitError::Failed)
    }

    /// Mounts it, once nobody else has it.
    ///
    /// # Errors
    /// It cannot be mounted; the text says why.
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
        // The order in which names change is what a power cut must not change.
        let flags =
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::DIRSYNC;
        // What checks a new version reads the one that runs.
        let options = format!("umask=0027,gid={REGISTRYD_UID}");
        mount::mount(&device, Path::new(MOUNT_POINT), "vfat", flags, &options).map_err(told)?;
        Ok(EfiPartition { _alone: alone })
    }

    /// Its directory of boot entries.
    #[must_use]
    pub fn directory(&self) -> Directory {
        Directory::of(Path::new(MOUNT_POINT))
    }

    /// The versions on it.
    #[must_use]
    pub fn versions(&self) -> Versions<Directory> {
        Versions::new(self.directory())
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
