//! The arguments of the verbs.

mod config;
mod conformance;
mod image;
mod upgrade_k8s;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use corten_client::flags::{Output, Short};
use corten_client::units::parse_duration;

pub use config::{ApplyConfig, ApplyMode, How};
pub use conformance::{Conformance, ConformanceKubernetes, ConformanceMode};
pub use image::{Image, ImageBundle, ImageFile, ImageList, ImageName, ImageNamespace, ImageVerb};
pub use upgrade_k8s::UpgradeK8s;

/// Whether a verb returns when the node accepts the work or when the work is done.
#[derive(Debug, Clone, Copy, Args)]
pub struct Wait {
    /// Return when the work is done: the node is ready, or gone; false: when the node accepts it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub wait: bool,
    /// With --wait: the timeout
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Style of the progress output; every value means lines
    #[arg(long, hide = true, value_enum, default_value = "auto")]
    pub(crate) progress: ProgressMode,
}

/// How pods move to other nodes.
#[derive(Debug, Clone, Copy, Args)]
pub struct Move {
    /// With --drain: timeout for the pods to leave the node
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(crate) drain_timeout: Duration,
}

/// Style of the progress output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// Chosen by the client
    Auto,
    /// Lines
    Plain,
}

/// `reboot`.
#[derive(Debug, Args)]
pub struct Reboot {
    /// How the node reboots
    #[arg(short, long, value_enum, default_value = "default")]
    pub(crate) mode: RebootMode,
    /// Drain the node first
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) drain: bool,
    #[command(flatten)]
    pub(crate) moving: Move,
    /// Whether to wait for the end of the reboot.
    #[command(flatten)]
    pub wait: Wait,
}

/// How a node reboots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RebootMode {
    /// Stop services first
    Default,
    /// The same as default on Corten; on nodes with kexec, through the firmware
    Powercycle,
    /// Wait for no service, and do not check the quorum of etcd
    Force,
}

/// `shutdown`.
#[derive(Debug, Args)]
pub struct Shutdown {
    /// Neither drain the node nor check the quorum of etcd first
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

/// `reset`.
#[derive(Debug, Args)]
pub struct Reset {
    /// Leave the cluster first
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) graceful: bool,
    /// Reboot afterwards instead of powering off
    #[arg(long)]
    pub(crate) reboot: bool,
    /// Disks to wipe; without labels the whole system disk is wiped
    #[arg(long, value_enum, default_value = "all")]
    pub(crate) wipe_mode: WipeMode,
    /// Wipe only these volumes of the system disk, such as STATE,EPHEMERAL
    #[arg(long, value_delimiter = ',', value_name = "LABEL")]
    pub(crate) system_labels_to_wipe: Vec<String>,
    /// Other disks to wipe, such as /dev/vdb
    #[arg(long, value_delimiter = ',', value_name = "DEVICE")]
    pub(crate) user_disks_to_wipe: Vec<String>,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

/// Disks that a reset wipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WipeMode {
    /// The system disk and --user-disks-to-wipe
    All,
    /// The system disk
    SystemDisk,
    /// Only --user-disks-to-wipe
    UserDisks,
}

/// `wipe`.
#[derive(Debug, Subcommand)]
pub enum Wipe {
    /// Disks and partitions that are not in use
    Disk(WipeDisk),
    /// A logical volume of LVM
    Lv(WipeLvm),
    /// A volume group of LVM, and all logical volumes in it
    Vg(WipeLvm),
    /// The LVM label of a physical volume that belongs to no group
    Pv(WipeLvm),
    /// An MD array (software RAID), and the superblocks of its member devices
    Md(WipeLvm),
}

impl Wipe {
    /// Whether the line has the short form of `--insecure`.
    pub fn is_insecure(&self) -> bool {
        match self {
            Wipe::Disk(WipeDisk { short, .. })
            | Wipe::Lv(WipeLvm { short, .. })
            | Wipe::Vg(WipeLvm { short, .. })
            | Wipe::Pv(WipeLvm { short, .. })
            | Wipe::Md(WipeLvm { short, .. }) => short.insecure,
        }
    }
}

/// `wipe lv`, `wipe vg`, `wipe pv` and `wipe md`.
#[derive(Debug, Args)]
pub struct WipeLvm {
    /// A logical volume as vg0/lv0, a group as vg0, otherwise a device path such as /dev/sda1
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// `wipe disk`.
#[derive(Debug, Args)]
pub struct WipeDisk {
    /// Device names as in `get discoveredvolumes`, such as vdb or vdb1
    #[arg(required = true, value_name = "DEVICE")]
    pub(crate) devices: Vec<String>,
    /// How much of a device is wiped
    #[arg(long, value_enum, ignore_case = true, default_value = "FAST")]
    pub(crate) method: WipeMethod,
    /// Also remove a partition from the partition table
    #[arg(long)]
    pub(crate) drop_partition: bool,
    /// Wipe a device that holds a volume
    #[arg(long, hide = true)]
    pub(crate) skip_volume_check: bool,
    /// Wipe a device that is part of another device, such as a RAID
    #[arg(long, hide = true)]
    pub(crate) skip_secondary_check: bool,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// How much of a device is wiped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WipeMethod {
    /// Signatures only: file system headers and partition tables
    #[value(name = "FAST")]
    Fast,
    /// Every byte; a large disk may take hours
    #[value(name = "ZEROES")]
    Zeroes,
}

/// `install`.
#[derive(Debug, Args)]
pub struct Install {
    /// Device path of the disk; `get disks` lists the disks
    #[arg(long, value_name = "DEVICE")]
    pub(crate) disk: String,
    /// Image of the installer, in a registry or on the node [default: the medium that the machine booted from]
    #[arg(long, conflicts_with = "file")]
    pub(crate) image: Option<String>,
    /// Installer file (`mkimage build --output installer`) to send to the node
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Wipe the disk first if it is not empty
    #[arg(long)]
    pub(crate) wipe: bool,
    /// The short form of `--insecure`.
    #[command(flatten)]
    pub short: Short,
}

/// `upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    /// Image of the installer, in a registry or on the node
    #[arg(short, long, required_unless_present = "file", conflicts_with = "file")]
    pub(crate) image: Option<String>,
    /// Installer file (`mkimage build --output installer`) to send to the node
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How the node reboots into the new version
    #[arg(short = 'm', long, value_enum, default_value = "default")]
    pub(crate) reboot_mode: UpgradeReboot,
    /// Install now, and leave the reboot to the operator
    #[arg(short, long, visible_alias = "no-reboot")]
    pub(crate) stage: bool,
    /// Skip the etcd quorum check, the lock against upgrades of other control plane nodes, and minVersion
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Keep the data on EPHEMERAL; always on
    #[arg(short, long, hide = true)]
    pub(crate) preserve: bool,
    /// Use the call of older nodes
    #[arg(long, hide = true)]
    pub(crate) legacy: bool,
    /// Only print the nodes and their order
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Number of workers to upgrade at once; control plane nodes are upgraded one at a time
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(crate) max_unavailable: NonZeroUsize,
    /// Drain the node before the reboot
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) drain: bool,
    #[command(flatten)]
    pub(crate) moving: Move,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

/// How a node reboots after an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UpgradeReboot {
    /// With kexec on nodes that have it; Corten has none
    Default,
    /// The same as default on Corten; on nodes with kexec, through the firmware
    Powercycle,
}

/// `bootstrap`.
#[derive(Debug, Args)]
pub struct Bootstrap {
    /// Restore this snapshot of etcd
    #[arg(long, value_name = "FILE")]
    pub(crate) recover_from: Option<PathBuf>,
    /// Accept a snapshot without a checksum, copied from a disk
    #[arg(long, requires = "recover_from")]
    pub(crate) recover_skip_hash_check: bool,
}

/// `kubeconfig`.
#[derive(Debug, Args)]
pub struct Kubeconfig {
    /// File to write, or the directory of a file `kubeconfig`; - is standard output.
    /// [default: the file of KUBECONFIG, or ~/.kube/config; with --merge=false ./kubeconfig]
    pub(crate) path: Option<PathBuf>,
    /// Overwrite entries with the same name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Name of the context (default: admin@CLUSTER)
    #[arg(long, value_name = "NAME")]
    pub(crate) force_context_name: Option<String>,
    /// Merge into the file instead of replacing it
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) merge: bool,
}

/// `etcd`.
#[derive(Debug, Subcommand)]
pub enum Etcd {
    /// Alarms of members
    #[command(subcommand)]
    Alarm(EtcdAlarm),
    /// Defragment the database; the member serves no requests meanwhile
    Defrag,
    /// Downgrade to an older version
    #[command(subcommand)]
    Downgrade(EtcdDowngrade),
    /// Move the leadership to another member
    ForfeitLeadership(Output),
    /// Remove the node's own member from etcd
    Leave,
    /// List the members
    Members(Output),
    /// Remove a member that has failed permanently
    RemoveMember {
        /// Hexadecimal ID of the member, as in `etcd members`
        #[arg(value_parser = parse_member)]
        id: u64,
    },
    /// Save a snapshot of etcd; it contains every secret of the cluster
    Snapshot {
        /// The file to write
        path: PathBuf,
    },
    /// Show the status of each member
    Status(Output),
}

/// `etcd alarm`.
#[derive(Debug, Subcommand)]
pub enum EtcdAlarm {
    /// List the alarms
    List(Output),
    /// Clear the alarms
    Disarm(Output),
}

/// `etcd downgrade`.
#[derive(Debug, Subcommand)]
pub enum EtcdDowngrade {
    /// Check whether the downgrade is possible
    Validate {
        /// The older version
        version: String,
        /// The output format.
        #[command(flatten)]
        output: Output,
    },
    /// Start the downgrade
    Enable {
        /// The older version
        version: String,
        /// The output format.
        #[command(flatten)]
        output: Output,
    },
    /// Cancel the downgrade
    Cancel(Output),
}

fn parse_member(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| "give the hexadecimal ID that `etcd members` lists".to_owned())
}

/// How a changed machine config is applied.
#[derive(Debug, Clone, Args)]
pub struct Applying {
    /// The resource: only machineconfig can be changed
    #[arg(value_name = "TYPE", value_parser = ["machineconfig", "machineconfigs", "mc"])]
    pub(crate) kind: String,
    /// ID of the active machine config; the default
    #[arg(hide = true, value_parser = ["v1alpha1"])]
    pub(crate) id: Option<String>,
    /// Namespace of machine configs; the default
    #[arg(long, hide = true, value_name = "NAME", value_parser = ["config"])]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// `rotate-ca`.
#[derive(Debug, Args)]
pub struct RotateCa {
    /// All control plane nodes
    #[arg(long, alias = "init-node", value_delimiter = ',', value_name = "HOST")]
    pub control_plane_nodes: Vec<String>,
    /// All workers
    #[arg(long, value_delimiter = ',', value_name = "HOST")]
    pub(crate) worker_nodes: Vec<String>,
    /// Only print the nodes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) dry_run: bool,
    /// Rotate the machine CA
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) talos: bool,
    /// Rotate the Kubernetes CA [default: true if the nodes run Kubernetes]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub(crate) kubernetes: Option<bool>,
    /// URL of the Kubernetes API, instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    pub(crate) k8s_endpoint: Option<String>,
    /// File for the new client config
    #[arg(short, long, value_name = "FILE", default_value = "cortenconfig")]
    pub(crate) output: PathBuf,
    /// Replace the context in an existing file
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `patch`.
#[derive(Debug, Args)]
pub struct Patch {
    #[command(flatten)]
    pub(crate) applying: Applying,
    /// Documents to merge or a JSON patch: text, or @FILE; applied in order
    #[arg(
        short,
        long,
        value_name = "PATCH",
        required_unless_present = "patch_file",
        allow_hyphen_values = true
    )]
    pub(crate) patch: Vec<String>,
    /// Patch file
    #[arg(long, value_name = "FILE")]
    pub(crate) patch_file: Option<PathBuf>,
}

/// `meta`.
#[derive(Debug, Args)]
pub struct Meta {
    /// The same as --insecure
    #[arg(short = 'i', hide = true, global = true, id = "short_insecure")]
    pub insecure: bool,
    #[command(subcommand)]
    pub(crate) verb: MetaVerb,
}

/// The verbs of `meta`.
#[derive(Debug, Subcommand)]
pub enum MetaVerb {
    /// Set a value
    Write {
        /// Key from 1 to 255, as 10 or 0x0a
        #[arg(value_parser = parse_tag)]
        key: u8,
        /// The value
        value: String,
    },
    /// Delete a value
    Delete {
        /// Key from 1 to 255, as 10 or 0x0a
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
