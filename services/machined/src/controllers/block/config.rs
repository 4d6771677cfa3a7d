//! What the node wants of its volumes. The machine config has no say in it yet, so it never changes.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};

use super::volumes::{SYSTEM_VOLUME, spec};
use crate::resources::volume_config::{
    DiskSelector, FilesystemSpec, Locator, PartitionSpec, Provisioning, VolumeConfig,
};
use crate::volumes::{EPHEMERAL, SMALLEST_EPHEMERAL, STATE, TYPE_LINUX, Volume};

/// The disk that carries the node.
const SYSTEM_DISK: &str = "system_disk";

#[derive(Debug, Clone)]
pub(in crate::controllers) struct VolumeConfigs;

impl Controller for VolumeConfigs {
    fn name(&self) -> &'static str {
        "block.VolumeConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<VolumeConfig>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let meta = VolumeConfig {
            kind: "partition",
            provisioning: Provisioning::default(),
            locator: locator("META"),
            mount: None,
        };
        let all = [
            ("META", meta),
            (STATE.name, wanted(&STATE)),
            (EPHEMERAL.name, wanted(&EPHEMERAL)),
        ];
        for (name, config) in all {
            context.put(Draft::new(name, config).label(SYSTEM_VOLUME, ""))?;
        }
        Ok(())
    }
}

fn wanted(volume: &Volume) -> VolumeConfig {
    VolumeConfig {
        kind: "partition",
        provisioning: Provisioning {
            disk_selector: Some(DiskSelector {
                matches: SYSTEM_DISK,
            }),
            partition_spec: Some(PartitionSpec {
                min_size: volume.length.unwrap_or(SMALLEST_EPHEMERAL),
                max_size: volume.length,
                grow: volume.length.is_none(),
                label: volume.name,
                type_uuid: TYPE_LINUX.to_string(),
            }),
            filesystem_spec: Some(FilesystemSpec {
                kind: "xfs",
                label: volume.name,
            }),
        },
        locator: locator(volume.name),
        mount: Some(spec(volume)),
    }
}

fn locator(name: &str) -> Locator {
    Locator {
        matches: format!("volume.partition_label == \"{name}\""),
        disk_match: SYSTEM_DISK,
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::controller::Runtime;
    use corten_resources::{Sensitivity, Spec as _, Store};

    use super::*;

    #[tokio::test]
    async fn state_has_a_size_and_ephemeral_takes_the_rest() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(VolumeConfigs).unwrap();
        runtime.run(|notice| panic!("{notice}")).await;
        let partition = |name: &str| {
            let config = store.get_as::<VolumeConfig>(name).unwrap();
            config.provisioning.partition_spec.clone().unwrap()
        };
        let (state, ephemeral) = (partition("STATE"), partition("EPHEMERAL"));
        assert_eq!((state.max_size, state.grow), (Some(320 << 20), false));
        assert_eq!((ephemeral.max_size, ephemeral.grow), (None, true));
        let meta = store.get_as::<VolumeConfig>("META").unwrap();
        assert_eq!(meta.locator.matches, "volume.partition_label == \"META\"");
        assert_eq!(VolumeConfig::DEFINITION.sensitivity, Sensitivity::Sensitive);
    }
}
