//! A node in a virtual machine: QEMU, whose NIC is a port of the cluster's bridge, and the machine's config.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use qemu::{Accel, Arch, Disk, Firmware, Machine, Tap, Volume};
use tokio::time::sleep;

use super::network::Network;
use super::node::Subject;
use super::plan::{NodePlan, Plan, Role, Shape};

/// Label of the volume with a node's config, and the kernel parameter that makes the node read it.
const VOLUME: &str = "metal-iso";
const PARAMETER: &str = "corten.config=metal-iso";
/// Size of the partition table at the begin of a disk, in bytes (UEFI 2.10, 5.3: 34 blocks), and the name of the
/// partition with the container images.
const TABLE: u64 = 34 * 512;
const IMAGES: &str = "IMAGECACHE";
/// Config of a control plane node that does not share the lead, and of one that does, for machines without KVM: a leader
/// is too slow there to renew its lease in time.
const ALONE: &str = "{extraArgs: {leader-elect: 'false'}}";
const PATIENT: &str = "{extraArgs: {leader-elect-lease-duration: 180s, leader-elect-renew-deadline: 150s, \
                       leader-elect-retry-period: 10s}}";
/// Interval of the checks whether QEMU has ended.
const LOOK: Duration = Duration::from_millis(500);

/// Runs the node's machine until it shuts down.
///
/// # Errors
/// QEMU cannot be started, or it fails.
pub(super) async fn run(subject: Subject, shape: Shape) -> anyhow::Result<()> {
    let (link, bridge) = (subject.node.link.clone(), subject.plan.bridge.clone());
    // QEMU inherits the cgroup.
    subject
        .groups
        .enter_node(&subject.node.name)
        .context("entering the cgroup")?;
    let machine = machine(&subject, shape);
    let running = tokio::task::spawn_blocking(|| machine.start()).await??;
    Network::open()?.attach(&link, &bridge).await?;
    loop {
        match running.ended() {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(anyhow!("QEMU ended with {status}")),
            None => sleep(LOOK).await,
        }
    }
}

fn machine(subject: &Subject, shape: Shape) -> Machine {
    let Subject {
        place, plan, node, ..
    } = subject;
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
/// The image cannot be read.
pub(super) fn has_images(image: &Path) -> io::Result<bool> {
    let mut table = Vec::new();
    File::open(image)?.take(TABLE).read_to_end(&mut table)?;
    let name: Vec<u8> = IMAGES.encode_utf16().flat_map(u16::to_le_bytes).collect();
    Ok(table.windows(name.len()).any(|bytes| bytes == name))
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
    use super::*;
    use crate::configfile;
    use crate::verbs::cluster::plan::{Provisioner, Wish};

    #[test]
    fn partition_with_images_is_found_by_its_name() {
        let mut table = vec![0; 20_000];
        let image = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(image.path(), &table).unwrap();
        assert!(!has_images(image.path()).unwrap());
        // Name of the second entry (UEFI 2.10, table 5.7).
        let at = 1024 + 128 + 56;
        for (place, unit) in table[at..].chunks_mut(2).zip(IMAGES.encode_utf16()) {
            place.copy_from_slice(&unit.to_le_bytes());
        }
        std::fs::write(image.path(), &table).unwrap();
        assert!(has_images(image.path()).unwrap());
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
