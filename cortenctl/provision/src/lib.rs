//! Clusters on this machine (`cluster`), in containers made of namespaces, virtual machines, or Docker's containers.
//!
//! Owns: a directory, a cgroup, a bridge and the processes for each cluster, so that `destroy` finds all of it.
//! Never: starts a node of a cluster that it has not made, or changes the network of this machine beyond the bridge.

pub mod args;
mod backend;
mod cgroups;
mod configs;
mod create;
mod destroy;
mod docker;
mod network;
mod node;
mod place;
mod plan;
mod show;
mod vm;
mod wait;

use corten_client::failure::Failure;

use crate::args::Cluster;

/// Runs `cluster`.
///
/// # Errors
/// A sentence for the operator: this machine lacks something, or a node does not become ready.
pub async fn run(what: Cluster) -> Result<(), Failure> {
    match what {
        Cluster::Create(args) => create::run(&args).await,
        Cluster::Destroy(args) => destroy::run(&args).await,
        Cluster::Show(args) => show::run(&args),
        Cluster::RunNode(args) => node::outside(args.directory, &args.node).await,
        Cluster::EnterNode(args) => node::inside(args.directory, &args.node).await,
    }
}
