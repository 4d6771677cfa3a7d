//! The parts of a cluster outside its directory, by provisioner: this program's own containers and virtual machines, or
//! Docker's containers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use corten_client::failure::Failure;

use super::cgroups::Groups;
use super::docker;
use super::network::Network;
use super::node::Started;
use super::place::Place;
use super::plan::{NodePlan, Parts, Plan, Provisioner};

/// The maker of nodes.
pub(super) enum Backend {
    /// Processes of this program, in cgroups, on a bridge.
    Own {
        groups: Groups,
        network: Network,
        started: Started,
    },
    /// Docker.
    Docker,
}

impl Backend {
    /// The backend of a cluster.
    ///
    /// # Errors
    /// This machine lacks a part that it needs.
    pub(super) fn of(cluster: &str, provisioner: Provisioner) -> anyhow::Result<Backend> {
        match provisioner {
            Provisioner::Docker => Ok(Backend::Docker),
            Provisioner::Namespaces | Provisioner::Qemu(_) => Ok(Backend::Own {
                groups: Groups::of(Parts::of(cluster).cgroup)?,
                network: Network::open()?,
                started: Started::default(),
            }),
        }
    }

    /// Checks that the operator may make and remove clusters.
    ///
    /// # Errors
    /// A right or the program is missing.
    pub(super) fn check_rights(&self) -> Result<(), Failure> {
        match self {
            Backend::Own { .. } => check_root(),
            Backend::Docker => Ok(docker::check()?),
        }
    }

    /// Checks that this machine has no cluster of that name and no network that overlaps.
    ///
    /// # Errors
    /// It has one.
    pub(super) async fn check_free(&self, plan: &Plan) -> Result<(), Failure> {
        if self.exists(&plan.name).await? {
            return Err(Failure::call(format!(
                "this machine has a cluster {name} already, perhaps with another --state; choose another --name, or \
                 remove the rest of it: cortenctl cluster destroy --name {name} --force",
                name = plan.name
            )));
        }
        // Docker checks its networks itself.
        if let Backend::Own { network, .. } = self
            && !network.is_free(plan.gateway, plan.prefix).await?
        {
            return Err(Failure::call(format!(
                "a network of this machine overlaps {}/{}: choose another network with --cidr",
                plan.gateway, plan.prefix
            )));
        }
        Ok(())
    }

    /// Whether this machine has a part of a cluster of that name.
    ///
    /// # Errors
    /// The kernel or Docker refuses.
    pub(super) async fn exists(&self, cluster: &str) -> anyhow::Result<bool> {
        match self {
            Backend::Own {
                groups, network, ..
            } => Ok(groups.exist() || network.has(&Parts::of(cluster).bridge()).await?),
            Backend::Docker => docker::exists(cluster),
        }
    }

    /// The image as nodes are started from it: Docker loads a file, and then knows its name.
    ///
    /// # Errors
    /// Docker refuses the file.
    pub(super) fn image(&self, given: &Path) -> anyhow::Result<PathBuf> {
        match self {
            Backend::Own { .. } => Ok(given.to_owned()),
            Backend::Docker => Ok(docker::image(given)?.into()),
        }
    }

    /// Controllers that this program's own containers need and this machine lacks.
    ///
    /// # Errors
    /// The kernel does not list its controllers.
    pub(super) fn missing_controllers(&self, plan: &Plan) -> anyhow::Result<Vec<&'static str>> {
        match (self, plan.provisioner) {
            (Backend::Own { groups, .. }, Provisioner::Namespaces) => groups.missing(),
            _ => Ok(Vec::new()),
        }
    }

    /// Makes what the nodes share.
    ///
    /// # Errors
    /// The kernel or Docker refuses.
    pub(super) async fn make(&self, place: &Place, plan: &Plan) -> anyhow::Result<()> {
        match self {
            Backend::Own {
                groups, network, ..
            } => {
                network
                    .add_bridge((&plan.bridge, &place.mark()), plan.gateway, plan.prefix)
                    .await?;
                groups.make(plan.nodes.iter().map(|node| &*node.name))
            }
            Backend::Docker => docker::make_network(place, plan),
        }
    }

    /// Starts a node, and returns before it answers.
    ///
    /// # Errors
    /// The node cannot be started.
    pub(super) fn start(&self, place: &Place, plan: &Plan, node: &NodePlan) -> anyhow::Result<()> {
        match self {
            Backend::Own { started, .. } => started.start(place, node),
            Backend::Docker => docker::start(place, plan, node),
        }
    }

    /// Whether a node that was started has ended for good.
    pub(super) fn has_ended(&self, node: &str) -> bool {
        match self {
            Backend::Own { started, .. } => started.has_ended(node),
            // Docker starts it again.
            Backend::Docker => false,
        }
    }

    /// Whether the node runs.
    pub(super) fn runs(&self, node: &str) -> bool {
        match self {
            Backend::Own { groups, .. } => groups.runs(node),
            Backend::Docker => docker::runs(node),
        }
    }

    /// Where the operator finds the node's console: a file, or a command.
    pub(super) fn console(&self, place: &Place, node: &NodePlan) -> String {
        match self {
            Backend::Own { .. } => place.console(node).display().to_string(),
            Backend::Docker => docker::console(&node.name),
        }
    }

    /// The last lines of a node's console.
    ///
    /// # Errors
    /// The node has no console.
    pub(super) fn last_lines(
        &self,
        place: &Place,
        node: &NodePlan,
        count: usize,
    ) -> anyhow::Result<Vec<String>> {
        if let Backend::Docker = self {
            return docker::last_lines(&node.name, count);
        }
        let path = place.console(node);
        let bytes = fs::read(&path).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let from = lines.len().saturating_sub(count);
        let last = lines.into_iter().skip(from);
        Ok(last.map(str::to_owned).collect())
    }

    /// The directory of another cluster of this name, to which its parts on this machine belong.
    ///
    /// # Errors
    /// The kernel or Docker refuses.
    pub(super) async fn other_owner(
        &self,
        cluster: &str,
        place: &Place,
    ) -> anyhow::Result<Option<String>> {
        let owner = match self {
            Backend::Own { network, .. } => network.alias(&Parts::of(cluster).bridge()).await?,
            Backend::Docker => docker::owner(cluster)?,
        };
        Ok(owner.filter(|owner| *owner != place.mark()))
    }

    /// Removes the parts of a cluster that exist. They follow from its name alone, so that no plan can name a part of
    /// another cluster or of this machine.
    ///
    /// # Errors
    /// A part cannot be removed; the text names it.
    pub(super) async fn remove(&self, cluster: &str) -> anyhow::Result<()> {
        match self {
            Backend::Own {
                groups, network, ..
            } => {
                let groups = groups.clone();
                tokio::task::spawn_blocking(move || groups.end()).await??;
                for link in &Parts::of(cluster).links {
                    network.remove(link).await?;
                }
                Ok(())
            }
            Backend::Docker => docker::remove(cluster),
        }
    }
}

/// Namespaces, mounts and links need root.
fn check_root() -> Result<(), Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(Failure::usage(
        "only root makes and removes clusters, except those of Docker: run it with sudo",
    ))
}
