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
    match place.plan() {
        Ok(plan) => check_owner(&place, name, &plan.name)?,
        Err(why) if args.force => {
            eprintln!("warning: {why:#}; what has the names of a cluster {name} is removed");
        }
        Err(why) => {
            let remedy = "--force removes its processes, cgroups and links by their names";
            return Err(why.context(remedy).into());
        }
    }
    remove(name, &place, args.force).await?;
    eprintln!("cluster {name} is removed");
    Ok(())
}

/// Refuses the directory of another cluster, which was renamed or copied: its nodes may still use it.
fn check_owner(place: &Place, name: &str, owner: &str) -> Result<(), Failure> {
    if name == owner {
        return Ok(());
    }
    Err(Failure::call(format!(
        "{} has the plan of a cluster {owner:?}, not of {name}: nothing was removed; destroy {owner:?} with --name and \
         --force, and remove the directory yourself",
        place.path().display()
    )))
}

/// Command line that removes the cluster.
pub(super) fn command(cluster: &ClusterName) -> String {
    let state = cluster.state.as_ref();
    let state = state.map_or_else(String::new, |state| format!(" --state {}", state.display()));
    format!("cortenctl cluster destroy --name {}{state}", cluster.name)
}

/// Removes the parts of a cluster that exist. They follow from its name alone, so that no plan can name a part of another
/// cluster or of this machine. The directory goes last, so that a failed removal can be repeated.
///
/// # Errors
/// A part cannot be removed; the text names it.
pub(super) async fn remove(name: &str, place: &Place, force: bool) -> anyhow::Result<()> {
    let parts = Parts::of(name);
    let groups = Groups::of(parts.cgroup)?;
    tokio::task::spawn_blocking(move || groups.end()).await??;
    let network = Network::open()?;
    for link in &parts.links {
        network.remove(link).await?;
    }
    place
        .remove(force)
        .context("removing the cluster's directory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_of_another_cluster_is_refused() {
        let place = Place::at("/state/lab".into());
        check_owner(&place, "lab", "lab").unwrap();
        let Err(Failure::Call(why)) = check_owner(&place, "lab", "lab2") else {
            panic!("it is not refused");
        };
        assert!(why.to_string().contains("nothing was removed"), "{why}");
    }
}
