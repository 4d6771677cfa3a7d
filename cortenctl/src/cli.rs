//! The command line.

mod act;
mod cluster;
mod config;
mod files;
mod local;
mod look;
mod refused;
#[cfg(test)]
mod tests;
mod tools;
mod upgrade_k8s;

use std::path::PathBuf;

use clap::{
    ArgMatches, Args, Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand,
};

use crate::clientconfig::ForwardThrough;
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::output::Format;
use crate::units::parse_duration;

pub(crate) use act::{
    Applying, Bootstrap, Etcd, EtcdAlarm, EtcdDowngrade, Install, Kubeconfig, Meta, MetaVerb, Move,
    Patch, Reboot, RebootMode, Reset, RotateCa, Shutdown, Upgrade, UpgradeReboot, Wait, Wipe,
    WipeDisk, WipeLvm, WipeMethod, WipeMode,
};
pub(crate) use cluster::{Cluster, ClusterCreate, ClusterName, ClusterShow, Provisioner, WaitFor};
pub(crate) use config::{
    ApplyConfig, ApplyMode, Gen, GenConfig, GenSecrets, GenVerb, How, KubernetesImages,
    Machineconfig, OutputType, PatchConfig, Validate, ValidateMode,
};
pub(crate) use files::{Copy, FileKind, List, Netstat, Pcap, Read, Restart, Usage};
pub(crate) use local::{Config, ConfigAdd, ConfigNew, ConfigRemove, GenCa, GenCrt, GenCsr, GenKey};
pub(crate) use look::{
    Cgroups, Containers, Dependencies, DiskFree, Dmesg, Events, Get, Health, Image, ImageFile,
    ImageName, ImageNamespace, ImageVerb, Inspect, Kubernetes, Logs, Memory, Preset, Processes,
    Service, ServiceAction, Sort, Time, Version,
};
pub(crate) use tools::{Completion, Dashboard, Man, Support};
pub(crate) use upgrade_k8s::UpgradeK8s;

const AFTER: &str = "\
Which node answers:
  -e names who takes the call, -n who answers it. Without -n the first endpoint
  that can be reached answers itself. Both come from the context of the client
  config unless given.

Client config, first found wins:
  --cortenconfig, CORTENCONFIG, ~/.corten/config, TALOSCONFIG, ~/.talos/config

Exit codes:
  0  everything answered
  1  a call or a node failed
  2  the command line is wrong";

/// The operator's client of the node API.
#[derive(Debug, Parser)]
#[command(name = "cortenctl", version = corten_api::VERSION, after_help = AFTER)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Flags of every verb.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which cluster, which nodes")]
pub(crate) struct Global {
    /// Nodes that take the call, tried in turn [port: 50000]
    #[arg(
        short,
        long,
        global = true,
        value_delimiter = ',',
        value_name = "HOST[:PORT]"
    )]
    pub(crate) endpoints: Vec<Endpoint>,
    /// Nodes that answer it; the endpoint forwards to them
    #[arg(short, long, global = true, value_delimiter = ',', value_name = "HOST")]
    pub(crate) nodes: Vec<String>,
    /// The client config file
    #[arg(
        long,
        visible_alias = "talosconfig",
        global = true,
        value_name = "FILE"
    )]
    pub(crate) cortenconfig: Option<PathBuf>,
    /// The context of the client config
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Endpoints that may hand the call on to other nodes [default: the context's, or control-plane]
    #[arg(long, global = true, value_name = "WHICH", value_enum)]
    pub(crate) forward_through: Option<ForwardThrough>,
    /// Talk to a node that has no config yet, or that is locked: verify no certificate
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
    /// With --insecure: believe only this fingerprint (the node's console shows it)
    #[arg(long, global = true, value_name = "BASE64")]
    pub(crate) cert_fingerprint: Vec<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The client config: contexts, endpoints, nodes
    #[command(subcommand)]
    Config(Config),
    /// Make configs and secrets; talks to no node
    Gen(Gen),
    /// Change machine configs; talks to no node
    #[command(subcommand, visible_alias = "mc")]
    Machineconfig(Machineconfig),
    /// Check a machine config as a node would; talks to no node
    Validate(Validate),
    /// Give a node its machine config
    #[command(visible_alias = "apply")]
    ApplyConfig(ApplyConfig),
    /// The versions of this client and of nodes
    Version(Version),
    /// Memory use in MB
    #[command(visible_aliases = ["m", "free"])]
    Memory(Memory),
    /// The kernel's messages
    Dmesg(Dmesg),
    /// What a service has written
    Logs(Logs),
    /// What happens on nodes, as it happens
    Events(Events),
    /// Set or delete META values; `get meta` shows them
    Meta(Meta),
    /// Services and their state; with an id, one service and its history
    #[command(visible_alias = "services")]
    Service(Service),
    /// Resources: what a node knows of itself; `get rd` lists their types
    #[command(visible_alias = "g")]
    Get(Get),
    /// Mounted filesystems
    #[command(visible_alias = "mount")]
    Mounts(Output),
    /// How full the file systems of volumes are
    #[command(name = "diskfree", visible_alias = "df")]
    DiskFree(DiskFree),
    /// Files of a node
    #[command(visible_alias = "ls")]
    List(List),
    /// What files take on the disk
    #[command(visible_alias = "du")]
    Usage(Usage),
    /// What a file of a node holds
    #[command(visible_alias = "cat")]
    Read(Read),
    /// Copy files of a node to this machine
    #[command(visible_alias = "cp")]
    Copy(Copy),
    /// Sockets
    #[command(visible_alias = "ss")]
    Netstat(Netstat),
    /// Packets on a link, a line each or as a pcap file
    #[command(visible_alias = "tcpdump")]
    Pcap(Pcap),
    /// Containers
    #[command(visible_alias = "c")]
    Containers(Containers),
    /// What containers use
    Stats(Containers),
    /// What groups of processes use and may use
    #[command(visible_alias = "cg")]
    Cgroups(Cgroups),
    /// Start a container anew
    Restart(Restart),
    /// The time of nodes and of their time server
    Time(Time),
    /// Whether the cluster is healthy, as a control plane node sees it
    Health(Health),
    /// Images of containers
    #[command(visible_alias = "images")]
    Image(Image),
    /// Insides of a node
    #[command(subcommand)]
    Inspect(Inspect),
    /// Running processes
    #[command(visible_aliases = ["p", "ps"])]
    Processes(Processes),
    /// Reboot nodes
    Reboot(Reboot),
    /// Shut nodes down
    Shutdown(Shutdown),
    /// Wipe nodes
    Reset(Box<Reset>),
    /// Wipe disks of nodes that go on running
    #[command(subcommand)]
    Wipe(Wipe),
    /// Install nodes that were started from a medium or the network to a disk
    Install(Install),
    /// Have nodes install another version
    Upgrade(Upgrade),
    /// Change the version of Kubernetes, one component and one node after the other
    #[command(name = "upgrade-k8s")]
    UpgradeK8s(Box<UpgradeK8s>),
    /// Have nodes boot the version before
    Rollback,
    /// Start the cluster's first etcd member, once in its life
    Bootstrap(Bootstrap),
    /// etcd, the cluster's data
    #[command(subcommand)]
    Etcd(Etcd),
    /// Get the cluster administrator's config for kubectl
    Kubeconfig(Kubeconfig),
    /// Change the machine config of nodes
    Patch(Patch),
    /// Change a node's machine config in an editor: TALOS_EDITOR, VISUAL, EDITOR, or vi
    Edit(Applying),
    /// Give a cluster's node API another authority, without keeping anybody out meanwhile
    #[command(name = "rotate-ca")]
    RotateCa(RotateCa),
    /// Collect what a helper needs to know of nodes in a zip file, without secrets
    #[command(visible_alias = "crashdump")]
    Support(Support),
    /// Clusters on this machine, of nodes in containers
    #[command(subcommand)]
    Cluster(Cluster),
    /// Nodes at a glance, in the terminal
    Dashboard(Dashboard),
    /// A shell's completions, on standard output
    Completion(Completion),
    /// Write man pages
    Man(Man),
}

/// The form of the output.
#[derive(Debug, Default, Args)]
pub(crate) struct Output {
    /// The form of the output: table, yaml, json or jsonpath=EXPRESSION
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub(crate) output: Format,
}

/// The short form of `--insecure`, of verbs a node without a config answers.
/// Elsewhere the letter means something else.
#[derive(Debug, Args)]
pub(crate) struct Short {
    /// The same as --insecure
    #[arg(short = 'i', hide = true, id = "short_insecure")]
    pub(crate) insecure: bool,
}

/// The command line, with what is refused in it.
pub(crate) fn command() -> Command {
    refused::with(Cli::command())
}

/// What a command line asks for.
///
/// # Errors
/// It asks for something that only the reference's client does.
pub(crate) fn read(matches: &ArgMatches) -> Result<Cli, Failure> {
    refused::check(matches)?;
    Cli::from_arg_matches(matches).map_err(|error| Failure::usage(error.to_string()))
}

impl Cli {
    /// The flags of every verb, wherever they were given.
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
            Verb::Wipe(Wipe::Disk(args)) => args.short.insecure,
            Verb::Wipe(
                Wipe::Lv(WipeLvm { short, .. })
                | Wipe::Vg(WipeLvm { short, .. })
                | Wipe::Pv(WipeLvm { short, .. })
                | Wipe::Md(WipeLvm { short, .. }),
            ) => short.insecure,
            _ => false,
        };
        Global {
            insecure: self.global.insecure || short,
            ..self.global.clone()
        }
    }
}
