//! Installs the node to a disk that has none, from the start medium or from an installer's image. `corten-volumes` and
//! `corten-installer` write the disk; its partitions become visible only when it is complete.

use std::fs;
use std::path::Path;

use corten_base::{console, os_release};
use corten_config::Document;
use corten_config::installation::Installation;
use corten_config::kinds::SystemVolume;
use corten_containerd::client::SYSTEM;
use corten_installer::esp::{Content, FatFile};
use corten_installer::grub::{self, Code, Start, Unfit};
use corten_installer::{Entry, boot_files, medium_label};
use corten_meta::Values;
use corten_meta::tags::{OWNER, STATE_ENCRYPTION, WAS_ENCRYPTED};
use corten_persistence::config_store::ConfigStore;
use corten_server::node::{Node as _, SubmitError};
use corten_server::volume_of_a_node;
use corten_supervisor::supervisor::Supervisor;
use corten_supervisor::{Argument, REGISTRYD};
use corten_types::block::{DiscoveredVolume, Disk};
use corten_types::secrets::{joined, trusted_cas};
use corten_volumes::labelled;
use corten_volumes::user::disk_facts;
use corten_volumes::{Blank, Over};
use tokio::sync::mpsc;
use tokio::task::block_in_place;

use crate::state::NodeState;
use crate::upgrade::{
    SCRATCH, Scratch, Stored, blocking, by_uefi, check_floor, floor, obtain, refused, release,
    signers, unpack, version,
};

/// Mount point of the medium.
const MOUNT_POINT: &str = "/run/install-medium";
/// The medium's EFI partition, a file on it.
const EFI_IMAGE: &str = "efi.img";

/// A finished installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Installed version.
    pub version: String,
    /// The kernel's name of the disk.
    pub disk: String,
}

/// Requester of an installation. It decides what may be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// A caller of the API, who may be anonymous.
    Caller,
    /// The owner of the machine, through the kernel parameters.
    Machine,
}

/// Claims the target disk, if the node may be installed to it. Changes nothing.
///
/// # Errors
/// The reason why the disk is refused.
pub fn take(node: &NodeState, wanted: &Installation, by: By) -> Result<Blank, SubmitError> {
    let disks = node.store().list_as::<Disk>();
    let facts: Vec<_> = disks.iter().map(|disk| disk_facts(disk, false)).collect();
    let device = wanted.disk.choose(&facts).map_err(refused)?;
    let sequence = disks
        .iter()
        .find(|disk| disk.dev_path == device)
        .map_or(0, |disk| disk.sequence);
    let name = device.strip_prefix("/dev/").unwrap_or(&device);
    // Only UEFI names the disk that it started.
    let labels = node.store().list_as::<DiscoveredVolume>();
    if labels
        .iter()
        .any(|one| one.id() == name && one.label == medium())
    {
        return Err(refused(format!(
            "{}: {name} is the medium of the running version; use another disk",
            wanted.disk.field()
        )));
    }
    if let (Some(volume), By::Caller) = (volume_of_a_node(node.store(), name), by) {
        return Err(refused(format!(
            "{}: {name} carries {volume}, a volume of a node that may have an owner; wipe the disk on another machine",
            wanted.disk.field(),
        )));
    }
    let over = match (wanted.wipe, by) {
        (false, _) => Over::Nothing,
        (true, By::Caller) => Over::Foreign,
        (true, By::Machine) => Over::Anything,
    };
    let taken = Blank::take(corten_volumes::Disk::new(name, sequence), over);
    let taken = taken.and_then(|blank| match by_uefi() {
        true => Ok(blank),
        false => blank.check_bios().map(|()| blank),
    });
    taken.map_err(|why| refused(format!("{}: {why}", wanted.disk.field())))
}

/// Installs the node to the target disk, with this machine config. Sends progress lines to `tell` while a receiver
/// listens.
///
/// # Errors
/// The disk is unchanged, or marked as unfinished.
pub async fn install(
    node: &NodeState,
    supervisor: &Supervisor,
    (wanted, config, by): (&Installation, Option<&Document>, By),
    tell: &mpsc::Sender<String>,
) -> Result<Installed, SubmitError> {
    // Refuse an unsuitable disk before the slow steps.
    let blank = block_in_place(|| take(node, wanted, by))?;
    let disk = blank.name().to_owned();
    let _scratch = Scratch;
    let installing = Installing {
        node,
        supervisor,
        config,
        is_active: wanted.is_active,
        tell,
    };
    let say = async |line| installing.say(line).await;
    let version = match &wanted.image {
        Some(image) => {
            say(format!("fetching the installer {image}")).await;
            let images = Stored::new(SYSTEM, config);
            let digest = obtain(&images, image).await?;
            say(format!("checking the image {digest}")).await;
            let version = unpack(supervisor, image, &digest).await?;
            installing.write(blank, &version).await?;
            release(&images, image, &digest, config).await;
            version
        }
        None => {
            say("reading the image that this machine was started from".to_owned()).await;
            let version = of_medium(supervisor).await?;
            installing.write(blank, &version).await?;
            version
        }
    };
    say(format!(
        "version {version} is installed on {disk}, and runs after the next start"
    ))
    .await;
    Ok(Installed { version, disk })
}

/// An installation whose image is in [`SCRATCH`].
struct Installing<'a> {
    node: &'a NodeState,
    supervisor: &'a Supervisor,
    config: Option<&'a Document>,
    /// Whether the node starts from the disk.
    is_active: bool,
    /// Receives progress lines, while a receiver listens.
    tell: &'a mpsc::Sender<String>,
}

impl Installing<'_> {
    async fn say(&self, line: String) {
        console::say(&format!("install: {line}"));
        let _ = self.tell.send(line).await;
    }

    /// Writes the disk.
    async fn write(&self, blank: Blank, version: &str) -> Result<(), SubmitError> {
        let config = self.config;
        check_floor(version, config.and_then(floor).as_deref()).map_err(refused)?;
        let unpacked = Path::new(SCRATCH).join("corten.efi");
        let grub = grub_of(&unpacked, by_uefi()).map_err(refused)?;
        let files = files(version, grub.as_ref().map(|(_, start)| start.clone()));
        let image = fs::metadata(&unpacked).map_or(0, |about| about.len());
        let failed = SubmitError::Failed;
        let code = grub.as_ref().map(|(code, _)| code);
        let plan = blank
            .plan(&files, image, code, config.is_some())
            .map_err(refused)?;
        let values = meta(&self.node.meta().watch().borrow(), config);
        let encryption = config.and_then(|config| config.encryption(SystemVolume::State));
        block_in_place(|| blank.check_content(&values, encryption)).map_err(refused)?;
        self.say(format!("writing version {version} to {}", blank.name()))
            .await;
        let (blank, plan) = blocking(move || {
            let written = blank
                .write(&plan, &files, &values)
                .map_err(SubmitError::Failed);
            written.map(|()| (blank, plan))
        })
        .await?;
        let encrypted = match config {
            None => None,
            Some(config) => {
                self.say("creating STATE, which stores the machine config".to_owned())
                    .await;
                let keep = |target: &Path| {
                    let store = ConfigStore::on_volume(target);
                    let store = store.ok_or_else(|| "STATE is not mounted".to_owned())?;
                    let saved = store.save(config.source());
                    saved.map_err(|error| format!("cannot store the machine config: {error}"))
                };
                let made = blank.make_state(self.supervisor, &plan, encryption, keep);
                Some(made.await.map_err(failed)?)
            }
        };
        block_in_place(|| blank.finish(&plan, encrypted, self.is_active)).map_err(failed)
    }
}

/// Label of the medium of the running version.
fn medium() -> String {
    // Spelling of the builder's file names.
    let architecture = match corten_api::ARCH {
        "arm64" => "arm64",
        _ => "x86_64",
    };
    medium_label(&os_release::image_version(), architecture)
}

/// Unpacks the image of the start medium into [`SCRATCH`]. Returns its version.
async fn of_medium(supervisor: &Supervisor) -> Result<String, SubmitError> {
    let running = os_release::image_version();
    let label = medium();
    let medium = labelled::attach(&label, Path::new(MOUNT_POINT)).map_err(SubmitError::Failed)?;
    let Some(medium) = medium else {
        return Err(refused(format!(
            "no medium has the label {label} of the running version {running}; a machine that was started over the \
             network has none: name the installer's image (machine.install.image, or --image)"
        )));
    };
    let arguments = vec![
        Argument::word("medium"),
        Argument::reads(medium.path(EFI_IMAGE)),
        Argument::word(signers()?),
        Argument::fills(SCRATCH),
    ];
    let taken = supervisor.run(REGISTRYD, arguments).await;
    taken.map_err(|why| refused(format!("the medium {label} cannot be used: {why}")))?;
    let found = version()?;
    // Labels are short, so two versions may share one.
    if found != running {
        return Err(refused(format!(
            "the medium {label} has version {found}, but {running} is running: remove that medium, or name the \
             installer's image"
        )));
    }
    Ok(found)
}

/// GRUB's code in the image, and the facts that GRUB needs of it. A machine with UEFI gets them, too, so that its disk
/// also works with BIOS. `None` if the image is for UEFI alone.
fn grub_of(image: &Path, by_uefi: bool) -> Result<Option<(Code, Start)>, String> {
    let found = Code::of(image).and_then(|code| match code {
        Some(code) => Ok(Some((code, Start::of(image)?))),
        None => Ok(None),
    });
    match found {
        Ok(None) if !by_uefi => Err(
            "this machine was started by BIOS, and the image is for UEFI only: use an image of this version or a newer \
             one, for x86_64"
                .to_owned(),
        ),
        Err(Unfit::Image(_)) if by_uefi => Ok(None),
        found => found.map_err(|unfit| unfit.to_string()),
    }
}

/// Files of the EFI partition, from [`SCRATCH`].
fn files(version: &str, grub: Option<Start>) -> Vec<FatFile> {
    let file = |name: &str| Content::File(Path::new(SCRATCH).join(name));
    let entry = Entry::new(version, 0);
    let name = entry.to_string();
    let image = (name.as_str(), file("corten.efi"));
    let mut files = boot_files(corten_api::ARCH, file("systemd-boot.efi"), image);
    files.extend(
        grub.into_iter()
            .flat_map(|start| grub::files(&entry, version, start)),
    );
    files
}

/// META of the installed disk: the current values, the owner, and the encryption of STATE.
fn meta(now: &Values, config: Option<&Document>) -> Values {
    let mut values = now.clone();
    let Some(config) = config else { return values };
    values.insert(OWNER, joined(&trusted_cas(config)).into_bytes());
    if let Some(encryption) = config.encryption(SystemVolume::State) {
        values.insert(STATE_ENCRYPTION, encryption.to_meta().into_bytes());
        values.insert(WAS_ENCRYPTED, b"STATE".to_vec());
    }
    values
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_meta::Tag;

    use super::*;

    #[test]
    fn meta_of_the_installed_disk_names_the_owner_and_keeps_other_values() {
        let kept = Tag::new(0x4d).unwrap();
        let now: Values = [(kept, b"kept".to_vec())].into();
        assert_eq!(meta(&now, None), now);
        let config = sample::config("", "");
        let values = meta(&now, Some(&config));
        assert_eq!(values.get(&kept), now.get(&kept));
        let owner = String::from_utf8(values[&OWNER].clone()).unwrap();
        assert!(owner.contains("BEGIN CERTIFICATE"), "{owner}");
        assert!(!values.contains_key(&STATE_ENCRYPTION));
        let encrypted = "---\napiVersion: v1alpha1\nkind: VolumeConfig\nname: STATE\nencryption:\n  \
                         provider: luks2\n  keys:\n    - {slot: 0, nodeID: {}}\n";
        let values = meta(&now, Some(&sample::config("", encrypted)));
        assert!(values.contains_key(&STATE_ENCRYPTION));
        assert_eq!(values[&WAS_ENCRYPTED], b"STATE");
    }
}
