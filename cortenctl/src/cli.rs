//! The command line.

mod files;
mod local;
mod look;
mod refused;
#[cfg(test)]
mod tests;
mod tools;

use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use corten_client::failure::Failure;
use corten_client::flags::{Global, Output};
use corten_generate::args::{Gen, Machineconfig, Validate};
use corten_operate::args::{
    ApplyConfig, Applying, Bootstrap, Conformance, Etcd, Image, Install, Kubeconfig, Meta, Patch,
    Reboot, Reset, RotateCa, Shutdown, Upgrade, UpgradeK8s, Wipe,
};
use corten_provision::args::Cluster;

pub(crate) use files::{Copy, FileKind, List, Netstat, Pcap, Read, Restart, Usage};
pub(crate) use local::{Config, ConfigAdd, ConfigNew, ConfigRemove};
pub(crate) use look::{
    Cgroups, Containers, Dependencies, DiskFree, Dmesg, Events, Get, Health, Inspect, Kubernetes,
    Logs, Memory, Preset, Processes, Service, ServiceAction, Sort, Time, Version,
};
pub(crate) use tools::{Completion, Dashboard, Inject, InjectAccount, Man, Support};

const AFTER: &str = "\
Which node answers:
  The client calls the first endpoint (-e) that it can reach. The endpoint forwards
  the call to the nodes of -n; without -n it answers itself. The context of the
  client config gives both when the command line does not.

Client config, the first that exists:
  --cortenconfig, CORTENCONFIG, TALOSCONFIG, ~/.corten/config, ~/.talos/config,
  /var/run/secrets/talos.dev/config (in a pod with an account)

Exit codes:
  0  every call succeeded
  1  a call or a node failed
  2  the command line is invalid";

/// Version of the client: `CORTEN_VERSION` at build time, otherwise the crate's version and `-dev`. Cargo compiles this
/// crate again when the variable changes.
pub(crate) const VERSION: &str = match option_env!("CORTEN_VERSION") {
    Some(version) => version,
    None => concat!(env!("CARGO_PKG_VERSION"), "-dev"),
};

/// The operator's client of the node API.
#[derive(Debug, Parser)]
#[command(name = "cortenctl", version = VERSION, after_help = AFTER)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The client config: contexts, endpoints, nodes
    #[command(subcommand)]
    Config(Config),
    /// Generate configs and secrets; calls no node
    Gen(Gen),
    /// Generate and patch machine configs; calls no node
    #[command(subcommand, visible_alias = "mc")]
    Machineconfig(Machineconfig),
    /// Validate a machine config with the checks of a node; calls no node
    Validate(Validate),
    /// Add accounts at the node API to Kubernetes manifests
    #[command(subcommand)]
    Inject(Inject),
    /// Send a machine config to a node
    #[command(visible_alias = "apply")]
    ApplyConfig(ApplyConfig),
    /// Versions of this client and of nodes
    Version(Version),
    /// Memory use in MB
    #[command(visible_aliases = ["m", "free"])]
    Memory(Memory),
    /// Kernel log
    Dmesg(Dmesg),
    /// Log of a service
    Logs(Logs),
    /// Stream the events of nodes
    Events(Events),
    /// Set or delete META values; `get meta` shows them
    Meta(Meta),
    /// Services and their state; with an ID, one service and its history
    #[command(visible_alias = "services")]
    Service(Service),
    /// Resources: the state of a node; `get rd` lists their types
    #[command(visible_alias = "g")]
    Get(Get),
    /// Mounted filesystems
    #[command(visible_alias = "mount")]
    Mounts(Output),
    /// Used and free space of volumes
    #[command(name = "diskfree", visible_alias = "df")]
    DiskFree(DiskFree),
    /// List files of a node
    #[command(visible_alias = "ls")]
    List(List),
    /// Disk usage of files and directories
    #[command(visible_alias = "du")]
    Usage(Usage),
    /// Print a file of a node
    #[command(visible_alias = "cat")]
    Read(Read),
    /// Copy files of a node to this machine
    #[command(visible_alias = "cp")]
    Copy(Copy),
    /// Sockets
    #[command(visible_alias = "ss")]
    Netstat(Netstat),
    /// Capture packets on a link, as one line each or as a pcap file
    #[command(visible_alias = "tcpdump")]
    Pcap(Pcap),
    /// Containers
    #[command(visible_alias = "c")]
    Containers(Containers),
    /// Memory and CPU time of containers
    Stats(Containers),
    /// Resource usage and limits of cgroups
    #[command(visible_alias = "cg")]
    Cgroups(Cgroups),
    /// Restart a container
    Restart(Restart),
    /// Time of nodes and of their time server
    Time(Time),
    /// Check the health of the cluster; the node makes the checks
    Health(Health),
    /// Container images
    #[command(visible_alias = "images")]
    Image(Image),
    /// Internals of a node
    #[command(subcommand)]
    Inspect(Inspect),
    /// Running processes
    #[command(visible_aliases = ["p", "ps"])]
    Processes(Processes),
    /// Reboot nodes
    Reboot(Reboot),
    /// Shut nodes down
    Shutdown(Shutdown),
    /// Reset nodes: leave the cluster and wipe disks
    Reset(Box<Reset>),
    /// Wipe disks of running nodes
    #[command(subcommand)]
    Wipe(Wipe),
    /// Install a node that booted from a medium or the network to its disk
    Install(Install),
    /// Upgrade nodes to another version
    Upgrade(Upgrade),
    /// Change the version of Kubernetes, one component of one node at a time
    #[command(name = "upgrade-k8s")]
    UpgradeK8s(Box<UpgradeK8s>),
    /// Boot nodes into their previous version
    Rollback,
    /// Start the first etcd member of a new cluster; once per cluster
    Bootstrap(Bootstrap),
    /// etcd members, alarms and snapshots
    #[command(subcommand)]
    Etcd(Etcd),
    /// Get the cluster administrator's kubeconfig
    Kubeconfig(Kubeconfig),
    /// Run conformance tests in the cluster
    #[command(subcommand)]
    Conformance(Conformance),
    /// Change the machine config of nodes
    Patch(Patch),
    /// Change a node's machine config in an editor: TALOS_EDITOR, VISUAL, EDITOR, or vi
    Edit(Applying),
    /// Replace the machine CA and the Kubernetes CA without interrupting access; writes a new client config
    #[command(name = "rotate-ca")]
    RotateCa(RotateCa),
    /// Collect logs and state of nodes in a zip file, without secrets
    #[command(visible_alias = "crashdump")]
    Support(Support),
    /// Clusters of containers or virtual machines on this machine
    #[command(subcommand)]
    Cluster(Cluster),
    /// Overview of nodes, in the terminal
    Dashboard(Dashboard),
    /// Print the completions of a shell
    Completion(Completion),
    /// Write man pages
    Man(Man),
}

/// The command line, including the refused verbs and flags.
pub(crate) fn command() -> Command {
    refused::with(Cli::command())
}

/// Parses a command line.
///
/// # Errors
/// The line has a verb or flag that only the reference's client supports.
pub(crate) fn read(matches: &ArgMatches) -> Result<Cli, Failure> {
    refused::check(matches)?;
    Cli::from_arg_matches(matches).map_err(|error| Failure::usage(error.to_string()))
}

impl Cli {
    /// The flags of every verb, from every position on the line.
    pub(crate) fn globals(&self) -> Global {
        let short = match &self.verb {
            Verb::ApplyConfig(args) => args.short.insecure,
            Verb::Get(args) => args.short.insecure,
            Verb::Version(args) => args.short.insecure,
            Verb::Memory(args) => args.short.insecure,
            Verb::Dmesg(args) => args.short.insecure,
            Verb::Logs(args) => args.short.insecure,
            Verb::Service(args) => args.short.insecure,
            Verb::Support(args) => args.short.insecure,
            Verb::Meta(args) => args.insecure,
            Verb::Install(args) => args.short.insecure,
            Verb::Wipe(what) => what.is_insecure(),
            _ => false,
        };
        Global {
            insecure: self.global.insecure || short,
            ..self.global.clone()
        }
    }
}
