//! The command line.

mod act;
mod config;
mod files;
mod local;
mod look;
#[cfg(test)]
mod tests;
mod tools;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::endpoint::Endpoint;
use crate::output::Format;
use crate::units::parse_duration;

pub(crate) use act::{
    Applying, Bootstrap, Drain, Etcd, EtcdAlarm, EtcdDowngrade, Kubeconfig, Meta, Patch, Reboot,
    RebootMode, Reset, RotateCa, Shutdown, Upgrade, UpgradeReboot, Wait, Wipe, WipeDisk,
    WipeMethod, WipeMode,
};
pub(crate) use config::{
    ApplyConfig, ApplyMode, Gen, GenConfig, GenSecrets, How, Machineconfig, OutputType,
    PatchConfig, Validate, ValidateMode,
};
pub(crate) use files::{Copy, FileKind, List, Netstat, Pcap, Read, Restart, Usage};
pub(crate) use local::{Config, ConfigAdd, ConfigNew, ConfigRemove, GenCa, GenCrt, GenCsr, GenKey};
pub(crate) use look::{
    Cgroups, Containers, DiskFree, Dmesg, Events, Get, Gone, Health, Image, ImageFile, ImageName,
    ImageNamespace, Inspect, Kubernetes, Logs, Memory, Preset, Processes, Service, ServiceAction,
    Sort, Time, Version,
};
pub(crate) use tools::{Completion, Dashboard, Man, Support};

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
    /// Talk to a node that has no config yet: show no certificate, verify none
    #[arg(long, global = true)]
    pub(crate) insecure: bool,
    /// With --insecure: believe only this fingerprint (the node's console shows it)
    #[arg(long, global = true, value_name = "BASE64")]
    pub(crate) cert_fingerprint: Vec<String>,
    /// A cluster behind a proxy
    #[arg(
        long = "cluster",
        id = "proxied_cluster",
        global = true,
        hide = true,
        value_name = "NAME"
    )]
    pub(crate) cluster: Option<String>,
    /// Keys for such a proxy
    #[arg(long, global = true, hide = true, value_name = "DIR")]
    pub(crate) siderov1_keys_dir: Option<PathBuf>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// The client config: contexts, endpoints, nodes
    #[command(subcommand)]
    Config(Config),
    /// Make configs and secrets; talks to no node
    #[command(subcommand)]
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
    #[command(visible_alias = "free")]
    Memory(Memory),
    /// The kernel's messages
    Dmesg(Dmesg),
    /// What a service has written
    Logs(Logs),
    /// What happens on nodes, as it happens
    Events(Events),
    /// Set or delete META values; `get meta` shows them
    #[command(subcommand)]
    Meta(Meta),
    /// Services and their state; with an id, one service and its history
    #[command(visible_alias = "services")]
    Service(Service),
    /// Resources: what a node knows of itself; `get rd` lists their types
    Get(Get),
    /// Mounted filesystems
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
    #[command(subcommand, visible_alias = "images")]
    Image(Image),
    /// Insides of a node
    #[command(subcommand)]
    Inspect(Inspect),
    /// `get disks` shows them
    #[command(hide = true)]
    Disks(Gone),
    /// `get addresses` shows them
    #[command(hide = true)]
    Interfaces(Gone),
    /// `get routes` shows them
    #[command(hide = true)]
    Routes(Gone),
    /// Running processes
    #[command(visible_alias = "ps")]
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
    /// Have nodes install another version
    Upgrade(Upgrade),
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
    /// Change a node's machine config in an editor: VISUAL, EDITOR, or vi
    Edit(Applying),
    /// Give a cluster's node API another authority, without keeping anybody out meanwhile
    #[command(name = "rotate-ca")]
    RotateCa(RotateCa),
    /// Collect what a helper needs to know of nodes in a zip file, without secrets
    #[command(visible_alias = "crashdump")]
    Support(Support),
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

impl Cli {
    /// The flags of every verb, wherever they were given.
    pub(crate) fn globals(&self) -> Global {
        let short = match &self.verb {
            Verb::ApplyConfig(args) => args.short.insecure,
            Verb::Get(args) => args.short.insecure,
            Verb::Version(args) => args.short.insecure,
            Verb::Wipe(Wipe::Disk(args)) => args.short.insecure,
            _ => false,
        };
        Global {
            insecure: self.global.insecure || short,
            ..self.global.clone()
        }
    }
}
