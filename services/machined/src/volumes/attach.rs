//! From a partition to a mounted volume: decrypted, formatted, repaired.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use corten_config::kinds::Encryption;
use corten_sys::mount;
use tokio::task::{block_in_place, spawn_blocking};

use super::disk::{self, Content};
use super::encryption::Decrypted;
use super::{Volume, encryption};
use crate::console;
use crate::supervisor::Supervisor;

/// Bytes of a label of XFS (`sb_fname`).
const LONGEST_LABEL: usize = 12;

/// Mounts a volume; encrypts it and makes its file system when there is none, repairs one that cannot be
/// mounted. `opened`: how it is encrypted, if it is; known also of one that cannot be mounted.
pub(super) async fn attach(
    supervisor: &Supervisor,
    volume: &Volume<'_>,
    device: &Path,
    wanted: Option<&Encryption>,
    opened: &mut Option<Encryption>,
) -> Result<(), String> {
    let decrypted = decrypt(volume.name, device, wanted).await?;
    *opened = decrypted.as_ref().map(|decrypted| decrypted.by.clone());
    let device = decrypted
        .as_ref()
        .map_or(device, |decrypted| decrypted.device.as_path());
    let shown = device.display().to_string();
    let found = content(device)?;
    match found {
        Content::Xfs => {}
        Content::Nothing => make_file_system(supervisor, volume, &shown).await?,
        Content::Luks | Content::Foreign => {
            return Err(format!(
                "{shown} holds no XFS file system; wipe or reset it to have the volume made anew"
            ));
        }
    }
    if let Err(error) = mount_on(volume, device) {
        console::warn(&format!(
            "{} on {shown} cannot be mounted ({error}); it is being repaired",
            volume.name
        ));
        supervisor
            .run("xfs_repair", &[&shown])
            .await
            .map_err(|why| format!("{shown} is damaged and cannot be repaired: {why}"))?;
        mount_on(volume, device).map_err(|error| format!("cannot mount {shown}: {error}"))?;
    }
    let Some(mode) = volume.mode else {
        return Ok(());
    };
    fs::set_permissions(volume.target, fs::Permissions::from_mode(mode))
        .map_err(|error| format!("cannot set the mode of {}: {error}", volume.target))
}

/// Opens an encrypted partition, or makes it one; `None`: it is not encrypted.
pub(super) async fn decrypt(
    volume: &str,
    partition: &Path,
    wanted: Option<&Encryption>,
) -> Result<Option<Decrypted>, String> {
    let shown = partition.display();
    let found = content(partition)?;
    let (open, wanted): (Open, _) = match (found, wanted) {
        (Content::Nothing, Some(wanted)) => (encryption::make, wanted.clone()),
        (Content::Luks, Some(wanted)) => (encryption::open, wanted.clone()),
        (Content::Luks, None) => {
            return Err(format!(
                "{shown} is encrypted, and nothing says by which key; see docs/configuration.md, Encryption"
            ));
        }
        (Content::Xfs, Some(_)) => {
            console::warn(&format!(
                "{volume} was made before the config asked for its encryption and is used as it is, unencrypted; \
                 wipe or reset it to have it made anew"
            ));
            return Ok(None);
        }
        (Content::Nothing | Content::Xfs | Content::Foreign, _) => return Ok(None),
    };
    let (volume, partition) = (volume.to_owned(), partition.to_owned());
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
    device: &str,
) -> Result<(), String> {
    let mut arguments = vec!["-q", "-f"];
    if volume.name.len() <= LONGEST_LABEL {
        arguments.extend(["-L", volume.name]);
    }
    arguments.push(device);
    supervisor.run("mkfs.xfs", &arguments).await
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
