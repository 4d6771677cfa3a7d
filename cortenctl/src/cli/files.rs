//! Verbs about a node's files and its network.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use corten_client::flags::Output;
use corten_client::format::Format;
use corten_client::units::parse_duration;

use super::Kubernetes;

/// `list`.
#[derive(Debug, Args)]
pub(crate) struct List {
    /// The directory
    #[arg(default_value = "/")]
    pub(crate) path: String,
    /// Show mode, owner, size, time and label
    #[arg(short, long)]
    pub(crate) long: bool,
    /// Sizes with units, such as 1.5 kB
    #[arg(short = 'H', long)]
    pub(crate) humanize: bool,
    /// Include subdirectories
    #[arg(short, long)]
    pub(crate) recurse: bool,
    /// Depth in levels; 0 is one level, and with --recurse all
    #[arg(short, long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) depth: i32,
    /// Only these file types; may be repeated
    #[arg(short = 't', long = "type", value_enum, value_delimiter = ',')]
    pub(crate) kinds: Vec<FileKind>,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// A kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileKind {
    /// A regular file
    #[value(name = "f")]
    Regular,
    /// A directory
    #[value(name = "d")]
    Directory,
    /// A symbolic link
    #[value(name = "l", alias = "L")]
    Link,
}

/// `usage`.
#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// Directories or files to add up
    #[arg(default_value = "/")]
    pub(crate) paths: Vec<String>,
    /// Also list files
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Sizes with units, such as 1.5 kB
    #[arg(short = 'H', long)]
    pub(crate) humanize: bool,
    /// Depth below the paths to list, in levels
    #[arg(short, long, value_name = "N", default_value_t = 0,
          value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) depth: i32,
    /// Only entries of at least this size; a negative size is a maximum
    #[arg(
        short,
        long,
        value_name = "BYTES",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub(crate) threshold: i64,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// `read`.
#[derive(Debug, Args)]
pub(crate) struct Read {
    /// The file
    pub(crate) path: String,
}

/// `copy`.
#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// The file or directory on the node
    pub(crate) source: String,
    /// Directory to unpack into; - writes the tar.gz to standard output
    pub(crate) target: PathBuf,
}

/// `netstat`.
#[derive(Debug, Args)]
pub(crate) struct Netstat {
    /// Only sockets of this pod, which has its own network namespace
    #[arg(value_name = "NAMESPACE/POD", conflicts_with = "pods")]
    pub(crate) pod: Option<String>,
    /// Listening sockets and connections
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Listening sockets only
    #[arg(short, long, conflicts_with = "all")]
    pub(crate) listening: bool,
    /// Show user and inode
    #[arg(short = 'x', long)]
    pub(crate) extend: bool,
    /// Show the process
    #[arg(short, long)]
    pub(crate) programs: bool,
    /// Show timers
    #[arg(short = 'o', long)]
    pub(crate) timers: bool,
    /// Include sockets of pods, with the pod's name
    #[arg(short = 'k', long)]
    pub(crate) pods: bool,
    /// TCP
    #[arg(short, long)]
    pub(crate) tcp: bool,
    /// UDP
    #[arg(short, long)]
    pub(crate) udp: bool,
    /// UDP-Lite
    #[arg(short = 'U', long)]
    pub(crate) udplite: bool,
    /// Raw sockets
    #[arg(short = 'w', long)]
    pub(crate) raw: bool,
    /// IPv4 only
    #[arg(short = '4', long)]
    pub(crate) ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', long)]
    pub(crate) ipv6: bool,
    /// Print the requested socket types
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Output format: table, yaml, json or jsonpath=EXPRESSION
    #[arg(long, value_name = "FORM", default_value = "table")]
    pub(crate) output: Format,
}

/// `pcap`.
#[derive(Debug, Args)]
pub(crate) struct Pcap {
    /// The link to listen on
    #[arg(short, long, value_name = "LINK", default_value = "eth0")]
    pub(crate) interface: String,
    /// Include packets for other nodes (promiscuous mode)
    #[arg(long)]
    pub(crate) promiscuous: bool,
    /// Captured bytes of each packet
    #[arg(short, long, value_name = "BYTES", default_value_t = 4096)]
    pub(crate) snaplen: u32,
    /// Filter for packets, as `tcpdump -dd` prints it
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) bpf_filter: Option<String>,
    /// Stop after 10s, 1m, ...
    #[arg(long, value_parser = parse_duration)]
    pub(crate) duration: Option<Duration>,
    /// File to write in pcap format, - is standard output [default: one line for each]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `restart`.
#[derive(Debug, Args)]
pub(crate) struct Restart {
    /// The container, as `containers` lists it
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) kubernetes: Kubernetes,
}
