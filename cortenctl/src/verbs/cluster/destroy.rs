//! `cluster destroy`: ends and removes everything that belongs to a cluster.

use anyhow::Context as _;

use super::cgroups::Groups;
use super::network::Network;
use super::place::Place;
use super::plan::Parts;
use crate::cli::{ClusterDestroy, ClusterName};
use crate::failure::Failure;

pub(super) async fn run(args: &ClusterDestroy) -> Result<(), Failure> {
    super::check_root()?;
    let name = &args.cluster.name;
    let place = Place::of(args.cluster.state.as_deref(), name)?;
    let parts = match place.plan() {
        Ok(plan) => Parts::of(&plan),
        Err(why) if args.force => {
            eprintln!("warning: {why:#}; what has the names of a cluster {name} is removed");
            Parts::of_name(name)
        }
        Err(why) => {
            let remedy = "--force removes its processes, cgroups and links by their names";
            return Err(why.context(remedy).into());
        }
    };
    remove(&parts, &place).await?;
    eprintln!("cluster {name} is removed");
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
pub(super) async fn remove(parts: &Parts, place: &Place) -> anyhow::Result<()> {
    let groups = Groups::of(parts.cgroup.clone())?;
    tokio::task::spawn_blocking(move || groups.end()).await??;
    let network = Network::open()?;
    for link in &parts.links {
        network.remove(link).await?;
    }
    place.remove().context("removing the cluster's directory")
}
