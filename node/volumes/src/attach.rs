//! Turns a partition into a mounted volume: decrypts, formats and repairs it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use corten_base::console;
use corten_config::kinds::Encryption;
use corten_supervisor::Argument;
use corten_supervisor::supervisor::Supervisor;
use corten_sys::{mount, xfs};
use rustix::fs::{major, minor};
use rustix::io::Errno;
use tokio::task::{block_in_place, spawn_blocking};

use super::disk::{self, Content};
use super::encryption::Decrypted;
use super::judge::{REMEDY, Step, judge};
use super::table::Marks;
use super::{BUSY_PAUSE, Volume, encryption, while_busy};

/// Unit of device sizes in sysfs, in bytes, regardless of the device's own sector size.
const SECTOR: u64 = 512;

/// Location of a volume.
pub(super) struct Site<'a> {
    /// Device of its partition or disk.
    pub(super) device: &'a Path,
    /// The node's record of the volume.
    pub(super) marks: Marks,
    /// Marks the volume as never made, which discards its content.
    pub(super) give_up: &'a (dyn Fn() -> io::Result<()> + Send + Sync),
}

/// Mounts a volume. Encrypts it and makes its file system if there is none; repairs a file system that cannot be
/// mounted. `opened` receives the encryption of the volume, even if the mount fails.
pub(super) async fn attach(
    supervisor: &Supervisor,
    volume: &Volume<'_>,
    site: &Site<'_>,
    wanted: Option<&Encryption>,
    opened: &mut Option<Encryption>,
) -> Result<(), String> {
    let decrypted = decrypt(volume.name, site, wanted).await?;
    *opened = decrypted.as_ref().map(|decrypted| decrypted.by.clone());
    let is_new = decrypted.as_ref().is_some_and(|decrypted| decrypted.is_new);
    let is_made = site.marks.is_made && !is_new;
    let device = decrypted
        .as_ref()
        .map_or(site.device, |decrypted| decrypted.device.as_path());
    let shown = device.display().to_string();
    if lacks_file_system(content(device)?, is_made, &shown)? {
        make_file_system(supervisor, volume, device).await?;
    }
    let mount = || mount_on(volume, device);
    let repair = async || {
        let words = [Argument::device(device)];
        supervisor.run("xfs_repair", words.into()).await
    };
    mount_repaired(volume.name, &shown, mount, repair).await?;
    let Some(mode) = volume.mode else {
        return Ok(());
    };
    fs::set_permissions(volume.target, fs::Permissions::from_mode(mode))
        .map_err(|error| format!("cannot set the mode of {}: {error}", volume.target))
}

/// Whether to make a file system. A volume that was made before may still have copies of the lost superblock, from
/// which it can be repaired.
fn lacks_file_system(found: Content, is_made: bool, shown: &str) -> Result<bool, String> {
    match found {
        Content::Xfs => Ok(false),
        Content::Nothing => Ok(!is_made),
        Content::Luks | Content::Foreign => Err(format!(
            "{shown} does not contain an XFS file system; wipe or reset it to create the volume again"
        )),
    }
}

/// Mounts a file system. If that fails, repairs it and tries again, unless the kernel lacks the driver.
async fn mount_repaired(
    volume: &str,
    shown: &str,
    mount: impl Fn() -> io::Result<()>,
    repair: impl AsyncFnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let Err(error) = mount() else { return Ok(()) };
    if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) {
        return Err(format!(
            "{shown} cannot be mounted: this kernel has no driver for its file system; start another version"
        ));
    }
    console::warn(&format!(
        "{volume} on {shown} cannot be mounted ({error}); it is being repaired"
    ));
    repair().await.map_err(|why| {
        let why = without_dots(&why);
        format!("{shown} is damaged and cannot be repaired: {why}; {REMEDY}")
    })?;
    mount().map_err(|error| {
        format!("{shown} was repaired but still cannot be mounted: {error}; {REMEDY}")
    })?;
    console::warn(&format!(
        "{volume} on {shown} was repaired; files that lost their names are in lost+found"
    ));
    Ok(())
}

/// The output of `xfs_repair` without its progress dots.
fn without_dots(text: &str) -> String {
    // The dots begin a line and touch its first word.
    let words = text.split_whitespace().map(|word| {
        let rest = word.trim_start_matches('.');
        if word.len() - rest.len() > 3 {
            rest
        } else {
            word
        }
    });
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Opens or creates the encryption of a partition, as [`judge`] decides; `None` if it is not encrypted.
pub(super) async fn decrypt(
    volume: &str,
    site: &Site<'_>,
    wanted: Option<&Encryption>,
) -> Result<Option<Decrypted>, String> {
    let found = content(site.device)?;
    let step = judge(
        found,
        site.marks,
        wanted,
        &site.device.display().to_string(),
    )?;
    encrypt_by(step, volume, site, wanted).await
}

/// Same as [`decrypt`], with the decision already made.
pub(super) async fn encrypt_by(
    step: Step,
    volume: &str,
    site: &Site<'_>,
    wanted: Option<&Encryption>,
) -> Result<Option<Decrypted>, String> {
    let (open, wanted): (Open, _) = match (step, wanted) {
        (Step::Clear, _) | (_, None) => return Ok(None),
        (Step::Make, Some(wanted)) => (encryption::make, wanted.clone()),
        (Step::Open, Some(wanted)) => (encryption::open, wanted.clone()),
        (Step::Migrate, Some(wanted)) => {
            // A volume that cannot be encrypted must keep its content.
            encryption::check_keys(volume, wanted)?;
            let shown = site.device.display();
            console::warn(&format!(
                "{volume} on {shown} is not encrypted; it is created again with encryption (migration: wipe)"
            ));
            block_in_place(|| (site.give_up)())
                .map_err(|error| format!("{shown} cannot be wiped: {error}"))?;
            (encryption::make, wanted.clone())
        }
    };
    let (volume, partition) = (volume.to_owned(), site.device.to_owned());
    // Key derivation is slow by design.
    spawn_blocking(move || open(&volume, &partition, &wanted))
        .await
        .map_err(|_| "opening it failed".to_owned())?
        .map(Some)
}

/// Creates or opens an encrypted volume. Arguments: its name, its partition, its desired encryption.
type Open = fn(&str, &Path, &Encryption) -> Result<Decrypted, String>;

async fn make_file_system(
    supervisor: &Supervisor,
    volume: &Volume<'_>,
    device: &Path,
) -> Result<(), String> {
    let mut words = vec!["-q", "-f"];
    if !volume.label.is_empty() {
        words.extend(["-L", volume.label]);
    }
    let words = words.into_iter().map(Argument::word);
    let arguments = words.chain([Argument::device(device)]).collect();
    supervisor.run("mkfs.xfs", arguments).await
}

/// Grows a file system to the size of its device; does nothing if it fills the device. `xfs_growfs` would make the same
/// system call, and would need the right to change any file system of the node.
pub(super) fn grow(mounted: &Path) -> Result<(), String> {
    let told = |error: io::Error| {
        format!(
            "cannot grow the file system on {}: {error}",
            mounted.display()
        )
    };
    block_in_place(|| {
        let directory = File::open(mounted)?;
        let device = directory.metadata()?.dev();
        let sysfs = format!("/sys/dev/block/{}:{}/size", major(device), minor(device));
        let sectors: u64 = fs::read_to_string(sysfs)?
            .trim()
            .parse()
            .map_err(io::Error::other)?;
        xfs::grow(&directory, sectors.saturating_mul(SECTOR))
    })
    .map_err(told)
}

/// Detects the content of a device. A disk may answer late or never, so the runtime's other threads go on.
pub(super) fn content(device: &Path) -> Result<Content, String> {
    block_in_place(|| disk::content(device))
        .map_err(|error| format!("cannot read {}: {error}", device.display()))
}

/// Mounts a volume. After a power cut XFS first replays its log, which may take minutes.
pub(super) fn mount_on(volume: &Volume<'_>, device: &Path) -> io::Result<()> {
    block_in_place(|| {
        mount::mount(
            device,
            Path::new(volume.target),
            "xfs",
            volume.flags,
            volume.options,
        )
    })
}

/// Unmounts a volume. Every process that is being started holds the file descriptors of this one until it runs its
/// program, and so the volume.
pub(super) fn unmount(target: &Path) -> io::Result<()> {
    block_in_place(|| while_busy(BUSY_PAUSE, || mount::unmount(target)))
}

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
