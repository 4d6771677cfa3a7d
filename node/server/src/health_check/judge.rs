//! Judges a node's answers.

use corten_api::machine as api;
use corten_api::storage::Disk;
use corten_api::talos::resource::definitions::runtime::{
    MachineStage, MachineStatusSpec, UnmetCondition,
};
use corten_volumes::SMALLEST_EPHEMERAL;

/// Minimal memory of the image in KiB, less the kernel's share.
const SMALLEST_MEMORY: u64 = 512 * 1024 * 4 / 5;
/// Name of the unmet condition of a node that Kubernetes does not report as Ready.
const NODE_READY: &str = "nodeReady";
/// Space of the boot partitions and STATE on a disk in bytes.
const BESIDE_EPHEMERAL: u64 = 512 << 20;

pub(super) fn memory(info: &api::MemInfo) -> Result<(), String> {
    if info.memtotal >= SMALLEST_MEMORY {
        return Ok(());
    }
    Err(format!(
        "{} MiB of memory, but the minimum is 512 MiB",
        info.memtotal / 1024
    ))
}

/// A node booted from a CD or the network has no system disk, and passes.
pub(super) fn disks(disks: &[Disk]) -> Result<(), String> {
    let smallest = SMALLEST_EPHEMERAL + BESIDE_EPHEMERAL;
    match disks.iter().find(|disk| disk.system_disk) {
        Some(disk) if disk.size < smallest => Err(format!(
            "its disk {} has {} MiB, but the minimum is {} MiB",
            disk.device_name,
            disk.size >> 20,
            smallest >> 20
        )),
        _ => Ok(()),
    }
}

pub(super) fn services(services: &[api::ServiceInfo]) -> Result<(), String> {
    let why = |service: &api::ServiceInfo| {
        let health = service.health.clone().unwrap_or_default();
        match service.state.as_str() {
            "Running" if health.unknown || health.healthy => None,
            "Running" => Some(format!(
                "{} is not healthy ({})",
                service.id, health.last_message
            )),
            // The service is not needed now. An essential service would keep the node from being ready.
            "Initialized" | "Finished" | "Skipped" => None,
            state => Some(format!("{} is {state}", service.id)),
        }
    };
    let lacking: Vec<String> = services.iter().filter_map(why).collect();
    if lacking.is_empty() {
        return Ok(());
    }
    Err(lacking.join(", "))
}

/// Without `brings_network` the node need not be ready for Kubernetes, which waits for a network plugin.
pub(super) fn boot(status: &MachineStatusSpec, brings_network: bool) -> Result<(), String> {
    let health = status.status.clone().unwrap_or_default();
    match status.stage() {
        MachineStage::Running if health.ready => Ok(()),
        MachineStage::Running => {
            let counts = |unmet: &&UnmetCondition| brings_network || unmet.name != NODE_READY;
            let unmet = health.unmet_conditions.iter().filter(counts);
            let unmet: Vec<String> = unmet
                .map(|unmet| format!("{} ({})", unmet.name, unmet.reason))
                .collect();
            if unmet.is_empty() && !brings_network {
                return Ok(());
            }
            Err(format!("not ready: {}", unmet.join(", ")))
        }
        MachineStage::Maintenance => Err("it waits for a machine config".to_owned()),
        stage => {
            let stage = stage.as_str_name().trim_start_matches("MACHINE_STAGE_");
            Err(format!("it is in the stage {}", stage.to_lowercase()))
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_api::talos::resource::definitions::runtime::MachineStatusStatus;

    use super::*;

    #[test]
    fn too_small_memory_or_disk_is_reported_with_the_minimum() {
        let total = |memtotal| api::MemInfo {
            memtotal,
            ..Default::default()
        };
        memory(&total(480 * 1024)).unwrap();
        let why = memory(&total(250 * 1024)).unwrap_err();
        assert_eq!(why, "250 MiB of memory, but the minimum is 512 MiB");
        let disk = |size, system_disk| Disk {
            size,
            device_name: "/dev/vda".to_owned(),
            system_disk,
            ..Default::default()
        };
        disks(&[]).unwrap();
        disks(&[disk(1 << 20, false), disk(4 << 30, true)]).unwrap();
        let why = disks(&[disk(1 << 30, true)]).unwrap_err();
        assert_eq!(
            why,
            "its disk /dev/vda has 1024 MiB, but the minimum is 2560 MiB"
        );
    }

    #[test]
    fn services_that_do_not_run_are_named() {
        let service = |id: &str, state: &str, healthy, unknown| api::ServiceInfo {
            id: id.to_owned(),
            state: state.to_owned(),
            events: None,
            health: Some(api::ServiceHealth {
                unknown,
                healthy,
                last_message: "no answer".to_owned(),
                last_change: None,
            }),
        };
        let good = [
            service("a", "Running", true, false),
            service("b", "Running", false, true),
            service("c", "Finished", false, true),
            service("d", "Initialized", false, true),
        ];
        services(&good).unwrap();
        let bad = [
            service("a", "Running", true, false),
            service("b", "Running", false, false),
            service("c", "Waiting", false, true),
        ];
        let why = services(&bad).unwrap_err();
        assert_eq!(why, "b is not healthy (no answer), c is Waiting");
    }

    #[test]
    fn boot_is_complete_when_the_node_is_ready() {
        let status = |stage: MachineStage, ready| MachineStatusSpec {
            stage: stage.into(),
            status: Some(MachineStatusStatus {
                ready,
                unmet_conditions: vec![UnmetCondition {
                    name: "network".to_owned(),
                    reason: "no address yet".to_owned(),
                }],
            }),
        };
        boot(&status(MachineStage::Running, true), true).unwrap();
        for (stage, ready, why) in [
            (
                MachineStage::Running,
                false,
                "not ready: network (no address yet)",
            ),
            (
                MachineStage::Maintenance,
                true,
                "it waits for a machine config",
            ),
            (MachineStage::Booting, false, "it is in the stage booting"),
        ] {
            assert_eq!(boot(&status(stage, ready), true).unwrap_err(), why);
        }
        // A status of a newer node with an unknown stage.
        let unknown = MachineStatusSpec {
            stage: 99,
            status: None,
        };
        assert_eq!(
            boot(&unknown, true).unwrap_err(),
            "it is in the stage unknown"
        );
    }

    #[test]
    fn node_without_a_network_plugin_has_booted_before_it_is_ready_for_kubernetes() {
        let status = |names: &[&str]| MachineStatusSpec {
            stage: MachineStage::Running.into(),
            status: Some(MachineStatusStatus {
                ready: false,
                unmet_conditions: names
                    .iter()
                    .map(|&name| UnmetCondition {
                        name: name.to_owned(),
                        reason: "why".to_owned(),
                    })
                    .collect(),
            }),
        };
        let waits = status(&[NODE_READY]);
        boot(&waits, false).unwrap();
        assert_eq!(
            boot(&waits, true).unwrap_err(),
            "not ready: nodeReady (why)"
        );
        let lacks = status(&["services", NODE_READY]);
        assert_eq!(
            boot(&lacks, false).unwrap_err(),
            "not ready: services (why)"
        );
    }
}
