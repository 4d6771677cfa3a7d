//! A node in a virtual machine: QEMU, whose NIC is a port of the cluster's bridge, and the machine's config.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use gptman::GPT;
use qemu::{Accel, Arch, Disk, Firmware, Machine, Tap, Volume};
use tokio::time::sleep;

use super::network::Network;
use super::place::Place;
use super::plan::{NodePlan, Plan, Role, Shape};

/// Label of the volume with a node's config, and the kernel parameter that makes the node read it.
const VOLUME: &str = "metal-iso";
const PARAMETER: &str = "corten.config=metal-iso";
/// Name of the partition with the container images.
const IMAGES: &str = "IMAGECACHE";
/// Config of a control plane node that does not share the lead, and of one that does, for machines without KVM. A
/// leader is too slow there to renew its lease in time.
const ALONE: &str = "{extraArgs: {leader-elect: 'false'}}";
const PATIENT: &str = "{extraArgs: {leader-elect-lease-duration: 180s, leader-elect-renew-deadline: 150s, \
                       leader-elect-retry-period: 10s}}";
/// Interval of the checks whether QEMU has ended.
const LOOK: Duration = Duration::from_millis(500);

/// Runs the node's machine until it shuts down.
///
/// # Errors
/// QEMU cannot be started, or it fails.
pub(super) async fn run(
    place: &Place,
    plan: &Plan,
    node: &NodePlan,
    shape: Shape,
) -> anyhow::Result<()> {
    let machine = machine(place, plan, node, shape);
    let running = tokio::task::spawn_blocking(|| machine.start()).await??;
    Network::open()?.attach(&node.link, &plan.bridge).await?;
    loop {
        match running.ended() {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(anyhow!("QEMU ended with {status}")),
            None => sleep(LOOK).await,
        }
    }
}

fn machine(place: &Place, plan: &Plan, node: &NodePlan, shape: Shape) -> Machine {
    let memory = match node.role {
        Role::ControlPlane => shape.control_plane_mib,
        Role::Worker => shape.worker_mib,
    };
    let arch = arch(&plan.image);
    let accel = Accel::probe_for(arch).accel;
    let mut parameters = vec![PARAMETER];
    parameters.extend(accel.kernel_parameters());
    Machine::new("machine", place.node(node))
        .arch(arch)
        .accel(accel)
        .firmware(Firmware::Uefi)
        .cpus(shape.cpus)
        .memory_mib(memory)
        .disk(Disk::raw(&plan.image).enlarged(shape.disk_mib))
        .console(place.console(node))
        .kernel_parameters(parameters.join(" "))
        .volume(Volume {
            directory: place.config_directory(node),
            label: VOLUME.to_owned(),
        })
        .tap(Tap {
            link: node.link.clone(),
            mac: node.mac(),
            address: node.address,
        })
}

/// Architecture of an image, by its name; else that of this machine.
fn arch(image: &Path) -> Arch {
    let host = || Arch::from_name(std::env::consts::ARCH);
    Arch::of_image(image).or_else(host).unwrap_or(Arch::X86_64)
}

/// Whether a disk image has a partition with the container images of Kubernetes.
///
/// # Errors
/// The file is no disk image with a partition table.
pub(super) fn has_images(image: &Path) -> anyhow::Result<bool> {
    let table = GPT::find_from(&mut File::open(image)?).context("reading the partition table")?;
    let mut partitions = table.iter().map(|(_, partition)| partition);
    Ok(partitions.any(|partition| partition.partition_name.as_str() == IMAGES))
}

/// The patch of the config of control plane nodes whose processors QEMU emulates.
pub(super) fn patience(plan: &Plan) -> Option<String> {
    if Accel::probe_for(arch(&plan.image)).accel == Accel::Kvm {
        return None;
    }
    let leader = match plan.with_role(Role::ControlPlane).count() {
        1 => ALONE,
        _ => PATIENT,
    };
    Some(format!(
        "cluster: {{controllerManager: {leader}, scheduler: {leader}, etcd: {{extraArgs: {{heartbeat-interval: '1000', \
         election-timeout: '10000'}}}}}}"
    ))
}

/// The patch of the config for one machine. The network has no DHCP server and may have no time server; the machine has
/// the clock of this one.
pub(super) fn patch(plan: &Plan, node: &NodePlan) -> String {
    format!(
        "machine: {{time: {{disabled: true}}, network: {{hostname: {name}, interfaces: [{{deviceSelector: \
         {{hardwareAddr: '{mac}'}}, dhcp: false, addresses: [{address}/{prefix}], routes: [{{network: 0.0.0.0/0, \
         gateway: {gateway}}}]}}]}}}}",
        name = node.name,
        mac = node.mac(),
        address = node.address,
        prefix = plan.prefix,
        gateway = plan.gateway,
    )
}

#[cfg(test)]
mod tests {
    use corten_client::configfile;

    use super::*;
    use crate::plan::{Provisioner, Wish};

    #[test]
    fn partition_with_images_is_found_by_its_name() {
        let image = tempfile::NamedTempFile::new().unwrap();
        has_images(image.path()).unwrap_err();
        let mut disk = image.reopen().unwrap();
        disk.set_len(4 << 20).unwrap();
        let mut table = GPT::new_from(&mut disk, 512, [1; 16]).unwrap();
        let mut add = |number, name: &str| {
            table[number] = gptman::GPTPartitionEntry {
                partition_type_guid: [2; 16],
                unique_partition_guid: [number.to_le_bytes()[0]; 16],
                starting_lba: 2048 + u64::from(number),
                ending_lba: 2048 + u64::from(number),
                attribute_bits: 0,
                partition_name: name.into(),
            };
            table.write_into(&mut disk).unwrap();
            has_images(image.path()).unwrap()
        };
        assert!(!add(1, "EFI"));
        assert!(add(2, IMAGES));
    }

    #[test]
    fn config_of_a_machine_has_its_name_and_address() {
        let plan = Plan::of(Wish {
            name: "lab".to_owned(),
            provisioner: Provisioner::Namespaces,
            image: "/corten-0.1.0-arm64.raw".into(),
            image_cache: None,
            subnet: "10.5.0.0/24".parse().unwrap(),
            control_planes: 1,
            workers: 0,
        });
        let plan = plan.unwrap();
        assert_eq!(arch(&plan.image), Arch::Arm64);
        let patch = patch(&plan, &plan.nodes[0]);
        let config = configfile::patched(b"version: v1alpha1\n".to_vec(), &[patch]).unwrap();
        let config = String::from_utf8(config).unwrap();
        for line in [
            "hostname: lab-controlplane-1",
            "hardwareAddr: \"52:54:00:05:00:02\"",
            "- 10.5.0.2/24",
            "gateway: 10.5.0.1",
        ] {
            assert!(config.contains(line), "{line}: {config}");
        }
    }
}
