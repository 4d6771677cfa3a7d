//! A node in a virtual machine: QEMU, whose NIC is a port of the cluster's bridge, and the machine's config.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use qemu::{Arch, Disk, Firmware, Machine, Tap, Volume};
use tokio::time::sleep;

use super::network::Network;
use super::node::Subject;
use super::plan::{NodePlan, Plan, Role, Shape};

/// Label of the volume with a node's config, and the kernel parameter that makes the node read it.
const VOLUME: &str = "metal-iso";
const PARAMETER: &str = "corten.config=metal-iso";
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
    Machine::new("machine", place.node(node))
        .arch(arch(&plan.image))
        .firmware(Firmware::Uefi)
        .cpus(shape.cpus)
        .memory_mib(memory)
        .disk(Disk::raw(&plan.image).enlarged(shape.disk_mib))
        .console(place.console(node))
        .kernel_parameters(PARAMETER)
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
