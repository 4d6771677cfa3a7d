//! Clusters on this machine (`cluster`) whose nodes are containers made of namespaces, virtual machines, or containers of
//! Docker.
//!
//! Owns: a directory for each cluster (its plan, its secrets, the data of its nodes), its cgroup, its bridge with its
//! ports, and the processes of its nodes. Everything of a cluster belongs to one of them, so `destroy` finds all of it.
//! Never does: start a node of a cluster that it has not made, or change the network of this machine except for the
//! bridge.
//! Talks to: the kernel (netlink, cgroups, mounts); QEMU; `docker`; the nodes and their Kubernetes.
//! On a laptop: `cargo test -p corten-provision`; `sudo cortenctl cluster create --image rootfs.squashfs`.

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
