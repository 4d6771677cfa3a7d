//! Shows the volumes the node wants: its own, and the user volumes of the machine config.

use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_sys::mount::MountFlags;
use corten_types::expression::Expression;
use corten_types::volume::MountSpec;
use corten_types::volume_config::{
    DiskSelector, FilesystemSpec, Locator, PartitionSpec, Provisioning, VolumeConfig,
};
use corten_values::MaxSize;
use corten_volumes::user::{self, Kind, Mounting, Partition, Purpose, UserVolume};
use corten_volumes::{
    EPHEMERAL, SMALLEST_EPHEMERAL, STATE, STATE_LENGTH, TYPE_LINUX, TYPE_SWAP, Volume,
};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::volumes::{SECURE, SYSTEM_VOLUME, spec};

/// Expression that selects the system disk.
const SYSTEM_DISK: &str = "system_disk";

#[derive(Debug, Clone)]
pub(crate) struct VolumeConfigs {
    pub(crate) config: watch::Receiver<Option<Document>>,
}

impl Controller for VolumeConfigs {
    fn name(&self) -> &'static str {
        "block.VolumeConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<VolumeConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            // Parsing each expression blocks.
            let drafts = spawn_blocking(move || wanted(config.as_ref())).await??;
            context.start_outputs();
            for draft in drafts {
                context.put(draft)?;
            }
            context.remove_others::<VolumeConfig>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

/// The node's own volumes and the user volumes.
fn wanted(config: Option<&Document>) -> Result<Vec<Draft>, String> {
    let mut wanted = Vec::new();
    for (name, config) in own() {
        wanted.push(Draft::new(name, config).label(SYSTEM_VOLUME, ""));
    }
    for volume in config.into_iter().flat_map(user::wanted) {
        let draft = Draft::new(&volume.id, of_user(&volume)?);
        wanted.push(draft.label(label(&volume), ""));
    }
    Ok(wanted)
}

fn own() -> [(&'static str, VolumeConfig); 3] {
    let meta = VolumeConfig {
        kind: "partition",
        provisioning: Provisioning::default(),
        locator: on_system_disk("META"),
        mount: None,
    };
    [
        ("META", meta),
        (STATE.name, of_node(&STATE, Some(STATE_LENGTH))),
        (EPHEMERAL.name, of_node(&EPHEMERAL, None)),
    ]
}

fn of_node(volume: &Volume<'_>, length: Option<u64>) -> VolumeConfig {
    VolumeConfig {
        kind: "partition",
        provisioning: Provisioning {
            disk_selector: Some(DiskSelector {
                matches: Expression::of_name(SYSTEM_DISK),
            }),
            partition_spec: Some(PartitionSpec {
                min_size: length.unwrap_or(SMALLEST_EPHEMERAL),
                max_size: length,
                grow: length.is_none(),
                label: volume.name.to_owned(),
                type_uuid: TYPE_LINUX.to_string(),
            }),
            filesystem_spec: Some(formatted("xfs", volume.name)),
        },
        locator: on_system_disk(volume.name),
        mount: Some(spec(volume)),
    }
}

fn of_user(volume: &UserVolume) -> Result<VolumeConfig, String> {
    let id = &volume.id;
    let mount = volume.mounting.as_ref().map(mount_spec);
    let (kind, provisioning, matches) = match &volume.kind {
        Kind::Directory => ("directory", Provisioning::default(), Expression::default()),
        Kind::Existing(selector) => (
            "partition",
            Provisioning::default(),
            Expression::read(selector)?,
        ),
        Kind::Partition(partition) => (
            "partition",
            Provisioning {
                disk_selector: Some(on_disk(&partition.selector)?),
                partition_spec: Some(partition_spec(id, partition)),
                filesystem_spec: Some(volume.formatted())
                    .filter(|kind| !kind.is_empty())
                    .map(|kind| formatted(kind, id)),
            },
            by_label(id),
        ),
        Kind::Disk(disk) => (
            "disk",
            Provisioning {
                disk_selector: Some(on_disk(&disk.selector)?),
                partition_spec: None,
                filesystem_spec: Some(formatted(volume.formatted(), &disk.label)),
            },
            // For an encrypted volume this is the label of the file system inside.
            Expression::of_field("volume", "label", &disk.label),
        ),
    };
    Ok(VolumeConfig {
        kind,
        provisioning,
        locator: Locator {
            matches,
            ..Locator::default()
        },
        mount,
    })
}

/// A size in percent of a disk is unknown until the disk is chosen.
fn partition_spec(label: &str, partition: &Partition) -> PartitionSpec {
    PartitionSpec {
        min_size: partition.least,
        max_size: match partition.most {
            Some(MaxSize::Bytes(bytes)) => Some(bytes),
            Some(MaxSize::Percent(_)) | None => None,
        },
        grow: partition.grow,
        label: label.to_owned(),
        type_uuid: match partition.purpose {
            Purpose::FileSystem | Purpose::Raw => TYPE_LINUX.to_string(),
            Purpose::Swap => TYPE_SWAP.to_string(),
        },
    }
}

fn formatted(kind: &'static str, label: &str) -> FilesystemSpec {
    FilesystemSpec {
        kind,
        label: label.to_owned(),
    }
}

/// Mount options of a user volume.
pub(super) fn mount_spec(mounting: &Mounting) -> MountSpec {
    MountSpec {
        target_path: mounting.target.clone(),
        selinux_label: "",
        project_quota_support: mounting.project_quota,
        secure: mounting.flags.contains(SECURE),
        no_exec: mounting.flags.contains(MountFlags::NOEXEC),
    }
}

/// Label key with the kind of the volume; clients test for the key alone.
pub(super) fn label(volume: &UserVolume) -> &'static str {
    match &volume.kind {
        Kind::Existing(_) => "talos.dev/existing-volume",
        Kind::Directory | Kind::Disk(_) => "talos.dev/user-volume",
        Kind::Partition(partition) => match partition.purpose {
            Purpose::FileSystem => "talos.dev/user-volume",
            Purpose::Raw => "talos.dev/raw-volume",
            Purpose::Swap => "talos.dev/swap-volume",
        },
    }
}

fn on_disk(selector: &str) -> Result<DiskSelector, String> {
    let matches = Expression::read(selector)?;
    Ok(DiskSelector { matches })
}

fn on_system_disk(name: &str) -> Locator {
    Locator {
        matches: by_label(name),
        disk_match: Expression::of_name(SYSTEM_DISK),
    }
}

fn by_label(name: &str) -> Expression {
    Expression::of_field("volume", "partition_label", name)
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::controller::Runtime;
    use corten_resources::{Sensitivity, Spec as _, Store};

    use super::*;

    /// The resources after the controller has settled.
    async fn configs(document: Option<Document>) -> Store {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let (_, config) = watch::channel(document);
        runtime.add(VolumeConfigs { config }).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        store
    }

    #[tokio::test]
    async fn user_volume_configs_follow_the_config() {
        let document = sample::kind(
            "UserVolumeConfig\nname: data\n\
             provisioning: {diskSelector: {match: '!system_disk'}, maxSize: 10GiB}\n\
             ---\napiVersion: v1alpha1\nkind: RawVolumeConfig\nname: osd\n\
             provisioning: {diskSelector: {match: 'true'}, maxSize: 50%}\n\
             ---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: whole\nvolumeType: disk\n\
             provisioning: {diskSelector: {match: disk.rotational}}",
        );
        let store = configs(Some(document)).await;
        let data = store.get_as::<VolumeConfig>("u-data").unwrap();
        let selector = data.provisioning.disk_selector.as_ref().unwrap();
        assert_eq!(selector.matches, Expression::read("!system_disk").unwrap());
        let partition = data.provisioning.partition_spec.as_ref().unwrap();
        assert_eq!(
            (partition.max_size, partition.min_size, &*partition.label),
            (Some(10 << 30), 300 << 20, "u-data")
        );
        assert_eq!(data.mount.as_ref().unwrap().target_path, "/var/mnt/data");
        let label = Expression::read("volume.partition_label == \"u-data\"");
        assert_eq!(data.locator.matches, label.unwrap());
        let osd = store.get_as::<VolumeConfig>("r-osd").unwrap();
        assert_eq!(
            (&osd.mount, &osd.provisioning.filesystem_spec),
            (&None, &None)
        );
        let whole = store.get_as::<VolumeConfig>("u-whole").unwrap();
        assert_eq!(whole.kind, "disk");
        assert_eq!(whole.provisioning.partition_spec, None);
        let made = whole.provisioning.filesystem_spec.as_ref().unwrap();
        assert_eq!((made.kind, &*made.label), ("xfs", "u-whole"));
        let label = Expression::read("volume.label == \"u-whole\"");
        assert_eq!(whole.locator.matches, label.unwrap());
    }

    #[tokio::test]
    async fn state_has_a_size_and_ephemeral_takes_the_rest() {
        let store = configs(None).await;
        let partition = |name: &str| {
            let config = store.get_as::<VolumeConfig>(name).unwrap();
            config.provisioning.partition_spec.clone().unwrap()
        };
        let (state, ephemeral) = (partition("STATE"), partition("EPHEMERAL"));
        assert_eq!((state.max_size, state.grow), (Some(320 << 20), false));
        assert_eq!((ephemeral.max_size, ephemeral.grow), (None, true));
        let meta = store.get_as::<VolumeConfig>("META").unwrap();
        let label = Expression::read("volume.partition_label == \"META\"");
        assert_eq!(meta.locator.matches, label.unwrap());
        let disk = Expression::read("system_disk");
        assert_eq!(meta.locator.disk_match, disk.unwrap());
        assert_eq!(VolumeConfig::DEFINITION.sensitivity, Sensitivity::Sensitive);
    }
}
