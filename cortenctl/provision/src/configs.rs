//! The configs of a cluster's nodes.

use std::fs;

use anyhow::Context as _;
use corten_client::configfile;
use corten_client::failure::Failure;
use corten_generate::args::{GenConfig, KubernetesImages, OutputType};

use super::place::Place;
use super::plan::{NodePlan, Plan, Provisioner, Role};
use super::vm;
use crate::args::ClusterCreate;

/// Directories of a container.
const DIRECTORIES: [&str; 3] = ["root", "state", "var"];
/// Config patches that all nodes need.
fn patches(plan: &Plan) -> Vec<String> {
    // The kernel has one conntrack table for the machine and all containers; a container may not resize it.
    let proxy = "cluster: {proxy: {extraArgs: {conntrack-max-per-core: '0'}}}";
    let alone = "cluster: {allowSchedulingOnControlPlanes: true}";
    let is_alone = plan.with_role(Role::Worker).next().is_none();
    let is_container = !matches!(plan.provisioner, Provisioner::Qemu(_));
    let patches = [is_container.then_some(proxy), is_alone.then_some(alone)].into_iter();
    patches.flatten().map(str::to_owned).collect()
}

/// Config patches that control plane nodes need.
fn patches_of_control_plane(plan: &Plan) -> Vec<String> {
    match plan.provisioner {
        Provisioner::Qemu(_) => vm::patience(plan).into_iter().collect(),
        Provisioner::Namespaces | Provisioner::Docker => Vec::new(),
    }
}

/// Writes the configs of the cluster and of its nodes, and the client config.
///
/// # Errors
/// A patch is invalid, or a file cannot be written.
pub(super) fn write(
    (args, images): (&ClusterCreate, KubernetesImages),
    plan: &Plan,
    place: &Place,
) -> Result<(), Failure> {
    let names = plan
        .with_role(Role::ControlPlane)
        .map(|node| node.address.to_string());
    corten_generate::config(&GenConfig {
        cluster: plan.name.clone(),
        endpoint: plan.endpoint()?,
        output: None,
        output_dir: Some(place.path().to_owned()),
        output_types: vec![
            OutputType::ControlPlane,
            OutputType::Worker,
            OutputType::ClientConfig,
        ],
        additional_sans: names.collect(),
        install_disk: match plan.provisioner {
            Provisioner::Namespaces | Provisioner::Docker => "/dev/null",
            Provisioner::Qemu(_) => "/dev/vda",
        }
        .to_owned(),
        install_image: None,
        kubernetes_version: args.kubernetes_version.clone(),
        kubernetes_images: images,
        talos_version: None,
        form: "v1alpha1".to_owned(),
        with_cluster_discovery: Some(false),
        registry_mirror: Vec::new(),
        dns_domain: "cluster.local".to_owned(),
        // The operator's patches come last, so they win.
        config_patch: [patches(plan), args.config_patch.clone()].concat(),
        config_patch_control_plane: [
            patches_of_control_plane(plan),
            args.config_patch_control_plane.clone(),
        ]
        .concat(),
        config_patch_worker: args.config_patch_worker.clone(),
        with_secrets: None,
        force: false,
    })?;
    for one in &plan.nodes {
        write_one(plan, place, one)?;
    }
    Ok(())
}

/// Writes the config of one node, from that of its role, and makes the node's directories.
fn write_one(plan: &Plan, place: &Place, node: &NodePlan) -> Result<(), Failure> {
    let (directories, patches) = match plan.provisioner {
        Provisioner::Namespaces => (&DIRECTORIES[..], Vec::new()),
        Provisioner::Qemu(_) => (&[][..], vec![vm::patch(plan, node)]),
        Provisioner::Docker => (&[][..], Vec::new()),
    };
    let own = place.node(node);
    let directories = directories.iter().map(|name| own.join(name));
    for path in directories.chain([place.config_directory(node)]) {
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
    }
    let config = place.path().join(format!("{}.yaml", node.role.name()));
    let config = configfile::patched(configfile::read(&config)?, &patches)?;
    let text = String::from_utf8_lossy(&config);
    Ok(corten_client::files::write(
        &place.config(node),
        &text,
        false,
    )?)
}
