//! An upgrade: from the image of an installer to a version that the boot loader tries at the next start; and the
//! rollback. `corten-installer` changes the EFI partition; `machine/verdict.rs` judges the new version.

mod booted;
mod deadline;
mod health;
mod installer;
mod lock;
mod own_member;
mod partition;
mod patience;
mod quorum;

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use corten_base::console;
use corten_config::Document;
use corten_config::kinds::UpgradeConfig;
use corten_installer::{Entry, Fault, Signers, Trial, is_older};
use corten_meta::tags::TRIAL;
use corten_persistence::meta::Meta;
use corten_server::node::{Node as _, SubmitError, Upgrade};
use corten_supervisor::supervisor::Supervisor;
use corten_supervisor::{Argument, CONTENT, REGISTRYD};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::state::NodeState;
pub use booted::{Booted, booted, by_uefi};
pub use deadline::Deadline;
pub use health::{Health, is_healthy};
pub(crate) use installer::{Stored, obtain, release};
pub use lock::{LONGEST as LOCKED, unlock_former};
pub use own_member::has_member;
pub use partition::EfiPartition;
pub use quorum::check_reset;
use quorum::{Absence, Outlook};

/// Time for which an upgrade asks members of etcd that do not answer.
const UPGRADE_PATIENCE: Duration = Duration::from_secs(60);
/// The same for a reboot or a shutdown, whose clients wait for a minute.
const LEAVE_PATIENCE: Duration = Duration::from_secs(25);

/// Directory of an image while it is checked. It is on EPHEMERAL, because an image is as large as the node.
pub(crate) const SCRATCH: &str = "/var/lib/upgrade";
/// Environment variable with the signers that the running image accepts, set by the first program of the initramfs.
const SIGNERS: &str = "CORTEN_IMAGE_SIGNERS";
/// Message for a node without boot entries.
const NO_ENTRIES: &str = "no boot loader with entries started this node: it was started over the network, from a CD, or \
                          by BIOS from a disk of an older version; write the disk image of the new version to its \
                          disk instead";

/// Pulls the image, checks it, and writes it beside the running version. Returns its version. Sends progress lines to
/// `tell` while a receiver listens.
///
/// # Errors
/// The next start is that of the running version.
pub async fn install(
    node: &NodeState,
    supervisor: &Supervisor,
    upgrade: &Upgrade,
    tell: &mpsc::Sender<String>,
) -> Result<String, SubmitError> {
    let at = begin()?;
    if upgrade.force {
        return take(node, supervisor, upgrade, at, None, tell).await;
    }
    // The key comes before the quorum check: two nodes that check at the same moment would not see each other go down.
    let lock = lock::take(node, &upgrade.image).await.map_err(refused)?;
    let outlook = quorum::outlook(node, Absence::Passing, UPGRADE_PATIENCE).await;
    let taken = match outlook.refusal() {
        None => take(node, supervisor, upgrade, at, lock.as_ref(), tell).await,
        Some(why) => Err(refused(why)),
    };
    match lock {
        // A node that reboots holds the key until the verdict.
        Some(lock) if taken.is_err() || upgrade.staged => lock.release().await,
        _ => {}
    }
    taken
}

/// Checks that this node may reboot or shut down, and keeps other control plane nodes up meanwhile. An etcd without a
/// quorum loses nothing: a reboot may be what repairs it.
///
/// # Errors
/// etcd would lose its quorum, or another control plane node goes down.
pub async fn leave(node: &NodeState) -> Result<(), SubmitError> {
    let lock = lock::take_to_leave(node).await.map_err(refused)?;
    let outlook = quorum::outlook(node, Absence::Passing, LEAVE_PATIENCE).await;
    match outlook.refusal() {
        Some(why) if !matches!(outlook, Outlook::Unknown(_)) => {
            if let Some(lock) = lock {
                lock.release().await;
            }
            Err(refused(why))
        }
        _ => Ok(()),
    }
}

/// Gives up the key of [`leave`], so that other control plane nodes may go down at once.
pub async fn stay(node: &NodeState) {
    lock::give_up_leaving(node).await;
}

/// Pulls the image, checks it, and writes it beside the running version; the node may hold the key meanwhile.
async fn take(
    node: &NodeState,
    supervisor: &Supervisor,
    upgrade: &Upgrade,
    at: (EfiPartition, String),
    lock: Option<&lock::Held>,
    tell: &mpsc::Sender<String>,
) -> Result<String, SubmitError> {
    let say = async |line: String| {
        console::say(&format!("upgrade: {line}"));
        let _ = tell.send(line).await;
    };
    let from = at.0.versions().find(&at.1).map_err(failed)?.version;
    say(format!("fetching the installer {}", upgrade.image)).await;
    let config = node.config();
    let images = Stored::new(upgrade.namespace, config.as_ref());
    let digest = obtain(&images, &upgrade.image).await?;
    say(format!("checking the image {digest}")).await;
    let _scratch = Scratch;
    let version = unpack(supervisor, &upgrade.image, &digest).await?;
    if !upgrade.force {
        let floor = node.config().and_then(|config| floor(&config));
        check_floor(&version, floor.as_deref()).map_err(refused)?;
    }
    // The pull may have used up most of the lease.
    if let Some(lock) = lock {
        lock.prolong().await.map_err(refused)?;
    }
    say(format!("writing version {version} beside version {from}")).await;
    write(at, trial(node, from, version.clone()), node.meta().clone()).await?;
    release(&images, &upgrade.image, &digest, config.as_ref()).await;
    say(format!("version {version} is tried at the next start")).await;
    Ok(version)
}

/// Writes the unpacked image beside the running version, for this trial.
async fn write(
    (partition, running): (EfiPartition, String),
    trial: Trial,
    meta: Arc<Meta>,
) -> Result<(), SubmitError> {
    blocking(move || {
        let mut image = File::open(Path::new(SCRATCH).join("corten.efi"))
            .map_err(|error| SubmitError::Failed(error.to_string()))?;
        let length = image.metadata().map_or(u64::MAX, |about| about.len());
        let announce = |entry: &Entry| {
            record(
                &meta,
                &Trial {
                    entry: entry.id(),
                    ..trial.clone()
                },
            )
        };
        let mut versions = partition.versions();
        let written = versions.install(&running, &trial.to, (&mut image, length), announce);
        written.map(drop).map_err(failed)
    })
    .await
}

/// Has the boot loader try the other version at the next start. Returns that version.
///
/// # Errors
/// The next start is that of the running version.
pub async fn roll_back(node: &NodeState) -> Result<String, SubmitError> {
    let (partition, running) = begin()?;
    let mut versions = partition.versions();
    let found = versions.find(&running).map_err(failed)?;
    let other = versions.other(&running).map_err(failed)?;
    let trial = Trial {
        entry: other.entry.id(),
        ..trial(node, found.version, other.version.clone())
    };
    let meta = node.meta().clone();
    blocking(move || {
        record(&meta, &trial).map_err(SubmitError::Failed)?;
        versions.switch(&running, &trial.entry).map_err(failed)
    })
    .await?;
    console::say(&format!("rolling back to version {}", other.version));
    Ok(other.version)
}

/// The oldest version that the config allows.
pub(crate) fn floor(config: &Document) -> Option<String> {
    let own = config.all::<UpgradeConfig>().next()?;
    own.min_version.clone()
}

/// Refuses a version that is older than `floor`.
pub(crate) fn check_floor(version: &str, floor: Option<&str>) -> Result<(), String> {
    match floor {
        Some(floor) if is_older(version, floor) => Err(format!(
            "version {version} is older than {floor}, the oldest one that the config allows (UpgradeConfig, minVersion): \
             use a newer version, lower minVersion, or force the upgrade"
        )),
        _ => Ok(()),
    }
}

/// Saves the record of a trial.
///
/// # Errors
/// The former record stays.
pub fn record(meta: &Meta, trial: &Trial) -> Result<(), String> {
    let kept = meta.change(TRIAL, Some(trial.render()));
    kept.map_err(|error| error.to_string())
}

/// The record in META.
#[must_use]
pub fn recorded(meta: &Meta) -> Option<Trial> {
    let values = meta.watch();
    let value = values.borrow().get(&TRIAL).cloned()?;
    Trial::parse(&value).ok()
}

fn begin() -> Result<(EfiPartition, String), SubmitError> {
    let running = booted().ok_or_else(|| refused(NO_ENTRIES.to_owned()))?;
    Ok((EfiPartition::try_mount()?, running.entry))
}

/// The record of a trial that begins now, without its entry.
fn trial(node: &NodeState, from: String, to: String) -> Trial {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Health::of(node).trial(from, to, now.map_or(0, |now| now.as_secs()))
}

/// Has registryd check the installer with this digest and unpack it into [`SCRATCH`]. Returns its version.
pub(crate) async fn unpack(
    supervisor: &Supervisor,
    image: &str,
    digest: &str,
) -> Result<String, SubmitError> {
    let arguments = vec![
        Argument::word("uki"),
        Argument::reads(CONTENT),
        Argument::word(digest),
        Argument::word(signers()?),
        Argument::fills(SCRATCH),
    ];
    let checked = supervisor.run(REGISTRYD, arguments).await;
    checked.map_err(|why| refused(format!("the installer {image} cannot be used: {why}")))?;
    version()
}

/// Version of the image in [`SCRATCH`].
pub(crate) fn version() -> Result<String, SubmitError> {
    let version = fs::read_to_string(Path::new(SCRATCH).join("version"));
    version.map_err(|error| SubmitError::Failed(error.to_string()))
}

/// The accepted signers of an image: those that the running version names.
pub(crate) fn signers() -> Result<String, SubmitError> {
    let signers = std::env::var(SIGNERS).unwrap_or_default();
    match signers.parse::<Signers>() {
        Ok(_) => Ok(signers),
        Err(error) => Err(refused(format!(
            "the running image does not name its signer ({SIGNERS} is {error}), so no other image can be verified; \
             write the disk image to the disk instead"
        ))),
    }
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SubmitError> + Send + 'static,
) -> Result<T, SubmitError> {
    let done = spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(SubmitError::Failed(error.to_string())))
}

pub(crate) fn refused(why: impl Into<String>) -> SubmitError {
    SubmitError::Refused(why.into())
}

fn failed(fault: Fault) -> SubmitError {
    match fault {
        Fault::Disk(..) | Fault::Refused(_) => SubmitError::Failed(fault.to_string()),
        Fault::Missing(_)
        | Fault::OnTrial
        | Fault::Alone
        | Fault::Room { .. }
        | Fault::Unfit(..) => refused(fault.to_string()),
    }
}

/// Removes the unpacked image when it is dropped.
pub(crate) struct Scratch;

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(SCRATCH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_version_below_the_minimum_is_refused() {
        let why = check_floor("1.1.9", Some("1.2.0")).unwrap_err();
        assert!(why.contains("1.1.9 is older than 1.2.0"), "{why}");
        for (version, floor) in [
            ("1.2.0", Some("1.2.0")),
            ("1.10.0", Some("1.2.0")),
            ("0.1.0", None),
        ] {
            assert_eq!(check_floor(version, floor), Ok(()), "{version}");
        }
    }
}
