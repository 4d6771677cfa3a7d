//! `cluster destroy`: ends and removes everything that belongs to a cluster.

use super::cgroups::Groups;
use super::network::Network;
use super::place::Place;
use super::plan::Plan;
use crate::cli::ClusterName;
use crate::failure::Failure;

pub(super) async fn run(args: &ClusterName) -> Result<(), Failure> {
    super::check_root()?;
    let place = Place::of(args.state.as_deref(), &args.name)?;
    let plan = place.plan()?;
    remove(&plan, &place).await?;
    eprintln!("cluster {} is removed", plan.name);
    Ok(())
}

/// Command line that removes the cluster.
pub(super) fn command(cluster: &ClusterName) -> String {
    let state = cluster.state.as_ref();
    let state = state.map_or_else(String::new, |state| format!(" --state {}", state.display()));
    format!("cortenctl cluster destroy --name {}{state}", cluster.name)
}

/// Removes the parts of a cluster that exist. The directory goes last, so that a failed removal can be repeated.
///
/// # Errors
/// A part cannot be removed; the text names it.
pub(super) async fn remove(plan: &Plan, place: &Place) -> anyhow::Result<()> {
    let groups = Groups::of(plan.cgroup())?;
    tokio::task::spawn_blocking(move || groups.end()).await??;
    let network = Network::open()?;
    for node in &plan.nodes {
        network.remove(&node.link).await?;
    }
    network.remove(&plan.bridge).await?;
    place.remove()
}
