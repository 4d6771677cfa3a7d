//! From a partition to a mounted volume: decrypted, formatted, repaired.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use corten_config::kinds::Encryption;
use corten_sys::{mount, xfs};
use rustix::fs::{major, minor};
use rustix::io::Errno;
use tokio::task::{block_in_place, spawn_blocking};

use super::disk::{self, Content};
use super::encryption::Decrypted;
use super::judge::{REMEDY, Step, judge};
use super::table::Marks;
use super::{Volume, encryption};
use crate::console;
use crate::services::Argument;
use crate::supervisor::Supervisor;

/// What sysfs counts devices in, in bytes, whatever a device's own sectors are.
const SECTOR: u64 = 512;

/// Where a volume is.
pub(super) struct Site<'a> {
    /// The device of its partition or disk.
    pub(super) device: &'a Path,
    /// What the node has written down of it.
    pub(super) marks: Marks,
    /// Has it taken for one that was never made; what is in it is lost.
    pub(super) give_up: &'a (dyn Fn() -> io::Result<()> + Send + Sync),
}

/// Mounts a volume; encrypts it and makes its file system when there is none, repairs one that cannot be
/// mounted. `opened`: how it is encrypted, if it is; known also of one that cannot be mounted.
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

/// Whether a file system is to be made. Where one was, there may be copies of what it began with, by which it is
/// repaired.
fn lacks_file_system(found: Content, is_made: bool, shown: &str) -> Result<bool, String> {
    match found {
        Content::Xfs => Ok(false),
        Content::Nothing => Ok(!is_made),
        Content::Luks | Content::Foreign => Err(format!(
            "{shown} holds no XFS file system; wipe or reset it to have the volume made anew"
        )),
    }
}

/// Mounts a file system; one that cannot be mounted is repaired first, unless the kernel does not know it at all.
async fn mount_repaired(
    volume: &str,
    shown: &str,
    mount: impl Fn() -> io::Result<()>,
    repair: impl AsyncFnOnce() -> Result<(), String>,
) -> Result<(), String> {
    let Err(error) = mount() else { return Ok(()) };
    if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) {
        return Err(format!(
            "{shown} cannot be mounted: this kernel has no driver of its file system; start another version"
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
        format!("{shown} was repaired and cannot be mounted still: {error}; {REMEDY}")
    })?;
    console::warn(&format!(
        "{volume} on {shown} was repaired; what could be saved without its name is in lost+found"
    ));
    Ok(())
}

/// What `xfs_repair` says, but for the dots by which it shows that it gets on.
fn without_dots(text: &str) -> String {
    // They are at the start of a line, right before its words.
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

/// Opens an encrypted partition, or makes it one, as [`judge`] says; `None`: it is not encrypted.
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

/// The same, when it is known what is to be done.
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
            // What cannot be encrypted is not given up for it.
            encryption::check_keys(volume, wanted)?;
            let shown = site.device.display();
            console::warn(&format!(
                "{volume} on {shown} was made in the clear; it is made anew, encrypted (migration: wipe)"
            ));
            block_in_place(|| (site.give_up)())
                .map_err(|error| format!("{shown} cannot be wiped: {error}"))?;
            (encryption::make, wanted.clone())
        }
    };
    let (volume, partition) = (volume.to_owned(), site.device.to_owned());
    // Trying a passphrase is meant to take long.
    spawn_blocking(move || open(&volume, &partition, &wanted))
        .await
        .map_err(|_| "opening it failed".to_owned())?
        .map(Some)
}

/// Makes or opens an encrypted volume: its name, its partition, what is wanted.
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

/// Lets a file system fill its device; one that does already is left as it is. `xfs_growfs` asks the kernel for no
/// more, and would need the right to change any file system of the node.
pub(super) fn grow(mounted: &Path) -> Result<(), String> {
    let told = |error: io::Error| {
        format!(
            "cannot grow what is mounted on {}: {error}",
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

/// A disk may take its time to answer, or for ever: the runtime's threads go on.
pub(super) fn content(device: &Path) -> Result<Content, String> {
    block_in_place(|| disk::content(device))
        .map_err(|error| format!("cannot read {}: {error}", device.display()))
}

/// What was written to a log before a power cut is written to its place first, which may take minutes.
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

#[cfg(test)]
#[path = "attach_tests.rs"]
mod tests;
