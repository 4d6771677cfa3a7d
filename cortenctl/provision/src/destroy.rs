//! `cluster destroy`: ends and removes everything that belongs to a cluster.

use anyhow::Context as _;
use corten_client::failure::Failure;

use super::backend::Backend;
use super::place::Place;
use super::plan::Provisioner;
use crate::args::{ClusterDestroy, ClusterName};

pub(super) async fn run(args: &ClusterDestroy) -> Result<(), Failure> {
    let name = &args.cluster.name;
    let place = Place::of(args.cluster.state.as_deref(), name)?;
    let provisioner = match place.plan() {
        Ok(plan) => {
            check_owner(&place, name, &plan.name)?;
            plan.provisioner
        }
        Err(why) if args.force => {
            eprintln!("warning: {why:#}; what has the names of a cluster {name} is removed");
            let docker = Backend::Docker;
            if docker.check_rights().is_ok() {
                docker.remove(name).await?;
            }
            Provisioner::Namespaces
        }
        Err(why) => {
            let remedy =
                "--force removes its processes, cgroups and links, and its containers of Docker";
            return Err(why.context(remedy).into());
        }
    };
    let backend = Backend::of(name, provisioner)?;
    // Without a plan, the cluster may have been one of Docker's alone, which needs no rights of root.
    if !args.force || backend.exists(name).await? {
        backend.check_rights()?;
    }
    remove(&backend, name, &place, args.force).await?;
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

/// Removes the parts of a cluster that exist. The directory goes last, so that a failed removal can be repeated. The
/// parts of another cluster of this name stay, except with `force`.
///
/// # Errors
/// A part cannot be removed; the text names it.
pub(super) async fn remove(
    backend: &Backend,
    name: &str,
    place: &Place,
    force: bool,
) -> anyhow::Result<()> {
    match backend.other_owner(name, place).await? {
        Some(owner) if !force => eprintln!(
            "warning: the nodes of the cluster {name} that run on this machine belong to {owner}: they stay"
        ),
        _ => backend.remove(name).await?,
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
