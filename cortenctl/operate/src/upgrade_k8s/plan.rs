//! Plans the changes of an upgrade and their order, and checks the versions.

use std::collections::BTreeMap;

use corten_client::table::Table;
use corten_config::images::RELEASES;

use super::component::Component;
use super::gates::is_gone;
use super::version::{self, Version};

/// Maximum minor versions that a kubelet may be older than its API server (Kubernetes, "Version Skew Policy").
const OLDEST_KUBELET: u64 = 3;

/// A node: its name in Kubernetes, and the address of its API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) address: String,
}

/// State of a node before the upgrade.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) place: Place,
    pub(super) is_control_plane: bool,
    /// The version that its kubelet reports.
    pub(super) kubelet: Option<Version>,
    /// The images in its config.
    pub(super) images: BTreeMap<Component, String>,
    /// The feature gates in its config.
    pub(super) gates: BTreeMap<Component, Vec<String>>,
    /// Problems of the node, as sentences.
    pub(super) troubles: Vec<String>,
}

/// Target of an upgrade.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) from: Option<Version>,
    pub(super) to: Version,
    pub(super) downgrade: bool,
    /// Whether to upgrade kubelets.
    pub(super) kubelets: bool,
    /// Replacement image names without tags.
    pub(super) names: BTreeMap<Component, String>,
}

/// A change of the image of one component on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) place: Place,
    pub(super) component: Component,
    pub(super) from: String,
    pub(super) to: String,
}

/// Plan of an upgrade.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// The lowest running version.
    pub(super) from: Version,
    pub(super) to: Version,
    pub(super) steps: Vec<Step>,
    /// Images that nodes pull. Every node pulls kube-proxy.
    pub(super) pulls: Vec<(Place, Component, String)>,
    /// The control plane node whose manifests are applied.
    pub(super) manifests: Place,
    /// The image of kube-proxy that these manifests have after the steps, also if an earlier run set it.
    pub(super) proxy: Option<String>,
    /// The nodes whose configs have an image of kube-proxy.
    pub(super) proxies: Vec<Place>,
}

impl Plan {
    /// Orders the steps by component; for each component, control plane nodes come first.
    ///
    /// # Errors
    /// The versions do not allow the upgrade, or an image cannot be named; a sentence.
    pub(super) fn new(members: &[Member], wanted: &Wanted) -> Result<Plan, String> {
        let first = members.iter().find(|member| member.is_control_plane);
        let first = first.ok_or("the cluster has no control plane node")?;
        // A kubelet may be several minor versions older than the control plane: `problems` judges it.
        let (control_plane, kubelets) = versions(members);
        let kubelets = kubelets.into_iter().filter(|_| wanted.kubelets);
        let found: Vec<Version> = control_plane.iter().cloned().chain(kubelets).collect();
        let from = |found: &[Version]| wanted.from.clone().or_else(|| found.iter().min().cloned());
        let unknown =
            "no image of the cluster has a version in its tag: name the version with --from";
        let oldest = from(&control_plane).ok_or(unknown)?;
        let lowest = from(&found).ok_or(unknown)?;
        let highest = found.iter().max().unwrap_or(&lowest).max(&lowest);
        check_path(&oldest, highest, wanted)?;
        let steps = steps(members, wanted, wanted.to.release() < highest.release())?;
        let has_proxy = |member: &&Member| member.images.contains_key(&Component::Proxy);
        let proxy = steps.iter().find(|step| step.component == Component::Proxy);
        let proxy = proxy.map(|step| &step.to);
        Ok(Plan {
            proxy: proxy
                .or_else(|| first.images.get(&Component::Proxy))
                .cloned(),
            proxies: { members.iter().filter(has_proxy) }
                .map(|member| member.place.clone())
                .collect(),
            pulls: pulls(members, &steps),
            steps,
            manifests: first.place.clone(),
            from: lowest,
            to: wanted.to.clone(),
        })
    }

    /// The plan as a table for the operator.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new(&["STEP", "NODE", "COMPONENT", "FROM", "TO"]);
        for (number, step) in self.steps.iter().enumerate() {
            let (number, node) = ((number + 1).to_string(), step.place.name.as_str());
            let component = step.component.name();
            table.row([number.as_str(), node, component, &step.from, &step.to]);
        }
        let last = (self.steps.len() + 1).to_string();
        let node = self.manifests.name.as_str();
        table.row([last.as_str(), node, "bootstrap manifests", "", ""]);
        table.render()
    }
}

/// Versions of the components that control plane nodes run, and those of the kubelets.
fn versions(members: &[Member]) -> (Vec<Version>, Vec<Version>) {
    let (mut control_plane, mut kubelets) = (Vec::new(), Vec::new());
    for member in members {
        kubelets.extend(member.kubelet.clone());
        for (component, image) in &member.images {
            match component {
                Component::Kubelet => kubelets.extend(version::of_image(image)),
                _ => control_plane.extend(version::of_image(image)),
            }
        }
    }
    (control_plane, kubelets)
}

fn steps(members: &[Member], wanted: &Wanted, is_downgrade: bool) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    let mut components = Component::ALL;
    if is_downgrade {
        // No component may be newer than kube-apiserver.
        components.reverse();
    }
    for component in components {
        if component == Component::Kubelet && !wanted.kubelets {
            continue;
        }
        let (first, others): (Vec<&Member>, Vec<&Member>) =
            members.iter().partition(|member| member.is_control_plane);
        for member in first.into_iter().chain(others) {
            let Some(old) = member.images.get(&component) else {
                continue;
            };
            let name = wanted.names.get(&component).map(String::as_str);
            let to = version::image(old, name, &wanted.to).map_err(|why| {
                format!(
                    "{} of node {}: {why}; name the image with --{}-image",
                    component.name(),
                    member.place.name,
                    flag(component)
                )
            })?;
            if to != *old {
                steps.push(Step {
                    place: member.place.clone(),
                    component,
                    from: old.clone(),
                    to,
                });
            }
        }
    }
    Ok(steps)
}

fn pulls(members: &[Member], steps: &[Step]) -> Vec<(Place, Component, String)> {
    let mut pulls = Vec::new();
    for step in steps {
        let proxy = step.component == Component::Proxy;
        let others = members
            .iter()
            .filter(|member| proxy && !member.is_control_plane);
        let places = std::iter::once(&step.place).chain(others.map(|member| &member.place));
        for place in places {
            let pull = (place.clone(), step.component, step.to.clone());
            if !pulls.contains(&pull) {
                pulls.push(pull);
            }
        }
    }
    pulls
}

fn flag(component: Component) -> &'static str {
    match component {
        Component::ApiServer => "apiserver",
        Component::ControllerManager => "controller-manager",
        Component::Scheduler => "scheduler",
        Component::Proxy => "proxy",
        Component::Kubelet => "kubelet",
    }
}

/// Allows one minor version at a time, and no downgrade without the flag.
fn check_path(lowest: &Version, highest: &Version, wanted: &Wanted) -> Result<(), String> {
    let to = &wanted.to;
    if highest > to && !wanted.downgrade {
        return Err(format!(
            "the cluster has version {highest}, which is newer than {to}: Kubernetes does not support \
             downgrades; --downgrade allows it anyway"
        ));
    }
    if lowest.major != to.major || highest.major != to.major {
        return Err(format!(
            "Kubernetes does not support an upgrade from {lowest} to {to}"
        ));
    }
    if to.minor > lowest.minor + 1 {
        return Err(format!(
            "{to} is {} minor versions above {lowest}, and Kubernetes changes by one at a time: upgrade to {}.{} first",
            to.minor - lowest.minor,
            lowest.major,
            lowest.minor + 1
        ));
    }
    if to.minor + 1 < highest.minor {
        return Err(format!(
            "{to} is {} minor versions below {highest}: restore a snapshot of etcd from that time instead",
            highest.minor - to.minor
        ));
    }
    Ok(())
}

/// Problems that forbid an upgrade now, as sentences.
pub(super) fn problems(
    members: &[Member],
    requested: &[corten_cluster::Requested],
    wanted: &Wanted,
) -> Vec<String> {
    let mut found = Vec::new();
    if !RELEASES.contains(&wanted.to.release()) {
        let ((major, oldest), (_, newest)) = (RELEASES.start(), RELEASES.end());
        found.push(format!(
            "nodes of this version run Kubernetes {major}.{oldest} to {major}.{newest}, and {} is none of them",
            wanted.to
        ));
    }
    for member in members {
        let name = &member.place.name;
        let troubles = member.troubles.iter();
        found.extend(troubles.map(|why| format!("node {name}: {why}")));
        let to = &wanted.to;
        for (component, gates) in &member.gates {
            let stays = *component == Component::Kubelet && !wanted.kubelets;
            let gone = gates.iter().filter(|gate| !stays && is_gone(gate, to));
            found.extend(gone.map(|gate| {
                format!(
                    "node {name}: {} of {to} does not start with the feature gate {gate}: remove it from the config",
                    component.name()
                )
            }));
        }
        let Some(kubelet) = &member.kubelet else {
            continue;
        };
        if !wanted.kubelets && kubelet.release() > to.release() {
            found.push(format!(
                "node {name}: its kubelet has version {kubelet}, and may not be newer than kube-apiserver"
            ));
        } else if to.minor.saturating_sub(kubelet.minor) > OLDEST_KUBELET {
            found.push(format!(
                "node {name}: its kubelet has version {kubelet}, and may be {OLDEST_KUBELET} minor versions older than \
                 kube-apiserver at most"
            ));
        }
    }
    let gone = requested
        .iter()
        .filter(|one| one.removed <= wanted.to.release());
    found.extend(gone.map(|one| {
        format!(
            "clients have requested {} of {} since kube-apiserver started, and version {}.{} removes them: \
             update these clients",
            one.resource, one.api, one.removed.0, one.removed.1
        )
    }));
    found
}
