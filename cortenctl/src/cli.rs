//! The command line.

mod config;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::endpoint::Endpoint;
use crate::table::Format;
use crate::units::parse_duration;

pub(crate) use config::{
    ApplyConfig, ApplyMode, Gen, GenConfig, GenSecrets, Machineconfig, PatchConfig, Validate,
    ValidateMode,
};

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
    #[arg(short, long, global = true)]
    pub(crate) insecure: bool,
    /// With --insecure: believe only this fingerprint (the node's console shows it)
    #[arg(long, global = true, value_name = "BASE64")]
    pub(crate) cert_fingerprint: Vec<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
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
    Memory(Output),
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
    /// Running processes
    #[command(visible_alias = "ps")]
    Processes(Processes),
    /// Reboot nodes; returns once they have accepted
    Reboot(Reboot),
    /// Shut nodes down; returns once they have accepted
    Shutdown(Shutdown),
}

/// `version`.
#[derive(Debug, Args)]
pub(crate) struct Version {
    /// Only this client; calls no node
    #[arg(long)]
    pub(crate) client: bool,
    /// Only the tags
    #[arg(long)]
    pub(crate) short: bool,
}

/// The form of the output.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// The form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// `dmesg`.
#[derive(Debug, Args)]
pub(crate) struct Dmesg {
    /// Go on as messages come
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only messages that come from now on; goes with --follow
    #[arg(long, requires = "follow")]
    pub(crate) tail: bool,
    /// What the boot before this one left
    #[arg(long, conflicts_with = "follow")]
    pub(crate) previous: bool,
}

/// `logs`.
#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// The service, as `service` lists it
    pub(crate) id: String,
    /// Go on as lines come
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last N lines; -1 is all there are
    #[arg(long, value_name = "N", default_value_t = -1, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..))]
    pub(crate) tail: i32,
    /// What the boot before this one left; `kernel` is its dmesg
    #[arg(long, conflicts_with = "follow")]
    pub(crate) previous: bool,
}

/// `events`.
#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Begin with the last N that are kept; -1 is all
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true,
          value_parser = clap::value_parser!(i32).range(-1..), conflicts_with_all = ["since", "duration"])]
    pub(crate) tail: i32,
    /// Begin after the event with this id
    #[arg(long, value_name = "ID", conflicts_with = "duration")]
    pub(crate) since: Option<String>,
    /// Begin with those of the last 5m, 1h, ...
    #[arg(long, value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// Only those of one action, by the id its answer gave
    #[arg(long, value_name = "ID")]
    pub(crate) actor_id: Option<String>,
}

/// `meta`.
#[derive(Debug, Subcommand)]
pub(crate) enum Meta {
    /// Set a value
    Write {
        /// From 1 to 255, as 10 or 0x0a
        #[arg(value_parser = parse_tag)]
        key: u8,
        /// The value
        value: String,
    },
    /// Delete a value
    Delete {
        /// From 1 to 255, as 10 or 0x0a
        #[arg(value_parser = parse_tag)]
        key: u8,
    },
}

fn parse_tag(text: &str) -> Result<u8, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    number
        .filter(|number| *number != 0)
        .ok_or_else(|| "give a number from 1 to 255, as 10 or 0x0a".to_owned())
}

/// `service`.
#[derive(Debug, Args)]
pub(crate) struct Service {
    /// The service; without it all are listed
    pub(crate) id: Option<String>,
    /// What to do with it
    #[arg(value_enum, default_value = "status")]
    pub(crate) action: ServiceAction,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What to do with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServiceAction {
    /// Show it
    Status,
    /// Start it
    Start,
    /// Stop it
    Stop,
    /// Stop and start it
    Restart,
}

/// `get`.
#[derive(Debug, Args)]
pub(crate) struct Get {
    /// The type, by any of its names
    #[arg(value_name = "TYPE")]
    pub(crate) kind: String,
    /// One resource; without it all are listed
    pub(crate) id: Option<String>,
    /// Where to look instead of the type's own namespace
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Go on as resources change
    #[arg(short, long)]
    pub(crate) watch: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `processes`.
#[derive(Debug, Args)]
pub(crate) struct Processes {
    /// The column to sort by, largest first
    #[arg(short, long, value_enum, default_value = "rss")]
    pub(crate) sort: Sort,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// What processes are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sort {
    /// Resident memory
    Rss,
    /// Time on the processor
    Cpu,
}

/// `reboot`.
#[derive(Debug, Args)]
pub(crate) struct Reboot {
    /// How
    #[arg(short, long, value_enum, default_value = "default")]
    pub(crate) mode: RebootMode,
}

/// How a node reboots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RebootMode {
    /// Services are stopped first
    Default,
    /// As default, and through the firmware rather than kexec
    Powercycle,
    /// Without waiting for services
    Force,
}

/// `shutdown`.
#[derive(Debug, Args)]
pub(crate) struct Shutdown {
    /// Without leaving the cluster in order
    #[arg(long)]
    pub(crate) force: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("cortenctl").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nodes_and_endpoints_repeat_and_split_at_commas() {
        let cli = parse("-e a,b:1 memory -n x -n y,z --talosconfig /f").unwrap();
        let hosts: Vec<&str> = cli.global.endpoints.iter().map(Endpoint::host).collect();
        // Given before the verb.
        assert_eq!(hosts, ["a", "b"]);
        assert_eq!(cli.global.nodes, ["x", "y", "z"]);
        assert_eq!(cli.global.cortenconfig, Some("/f".into()));
    }

    #[test]
    fn aliases_and_short_flags_of_existing_scripts() {
        for line in [
            "gen config c https://h:6443 -o /d --additional-sans a,b --force",
            "gen config c https://h:6443 --output /d",
            "apply-config -i -n 10.0.0.1 -f c.yaml -m no-reboot --cert-fingerprint x",
            "apply -f c.yaml -p @a.yaml --config-patch machine:{} --dry-run",
            "gen config c https://h:6443 --config-patch @a --config-patch-worker @b --config-patch-control-plane @c --with-secrets s.yaml",
            "gen secrets -o s.yaml --force",
            "machineconfig patch c.yaml -p @a.yaml --patch x:1 -o out.yaml",
            "mc patch -p @a.yaml -",
            "validate -c c.yaml -m cloud --strict",
            "validate --config c.yaml --mode metal",
            "services",
            "get members",
            "get addresses --namespace network -o yaml -w",
            "get machinestatus machine -o json",
            "service etcd status",
            "ps -s cpu",
            "free -o json",
            "dmesg -f --tail",
            "logs apid -f --tail 10",
            "logs apid --tail -1",
            "events --tail -1",
            "events --duration 5m --actor-id x",
            "events --since 9m4e2mr0ui3e8a215n4g",
            "meta write 0x0a x",
            "meta delete 12",
            "logs apid --previous --tail 5",
            "dmesg --previous",
            "reboot -m powercycle",
            "version --short --client",
        ] {
            assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
        }
    }

    #[test]
    fn wrong_lines_exit_with_2() {
        for line in [
            "",
            "nonsense",
            "apply-config",
            "machineconfig patch c.yaml",
            "validate -c c.yaml -m boat",
            "logs",
            "logs a --tail -2",
            "memory -e a:b:c",
            "dmesg --tail",
            "events --tail 1 --since x",
            "meta write 0 x",
            "meta delete 256",
            "dmesg --previous -f",
            "logs a --previous -f",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }
}
