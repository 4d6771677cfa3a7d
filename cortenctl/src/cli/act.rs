//! Verbs that make nodes do something.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::{How, Output, Short, parse_duration};

/// Whether a verb returns when the work is accepted or when it is done.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Wait {
    /// Return when it is done, and the node is back; false: once it is accepted
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
    /// With --wait: how long at most
    #[arg(long, value_name = "DURATION", default_value = "30m", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// What progress looks like: lines, whichever is chosen
    #[arg(long, hide = true, value_enum, default_value = "auto")]
    pub(crate) progress: ProgressMode,
}

/// How pods move to other nodes.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Move {
    /// With --drain: how long pods may take to leave
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub(crate) drain_timeout: Duration,
}

/// What progress looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// As the client likes
    Auto,
    /// Lines
    Plain,
}

/// `reboot`.
#[derive(Debug, Args)]
pub(crate) struct Reboot {
    /// How
    #[arg(short, long, value_enum, default_value = "default")]
    pub(crate) mode: RebootMode,
    /// Move the pods to other nodes first, and wait
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) drain: bool,
    #[command(flatten)]
    pub(crate) moving: Move,
    #[command(flatten)]
    pub(crate) wait: Wait,
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
    #[command(flatten)]
    pub(crate) wait: Wait,
}

/// `reset`.
#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// Leave the cluster first
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) graceful: bool,
    /// Reboot afterwards instead of halting
    #[arg(long)]
    pub(crate) reboot: bool,
    /// Which disks; without labels the system disk is wiped whole
    #[arg(long, value_enum, default_value = "all")]
    pub(crate) wipe_mode: WipeMode,
    /// Of the system disk only these volumes, such as STATE,EPHEMERAL
    #[arg(long, value_delimiter = ',', value_name = "LABEL")]
    pub(crate) system_labels_to_wipe: Vec<String>,
    /// These other disks, such as /dev/vdb
    #[arg(long, value_delimiter = ',', value_name = "DEVICE")]
    pub(crate) user_disks_to_wipe: Vec<String>,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

/// What a reset wipes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WipeMode {
    /// The system disk, and the other disks named
    All,
    /// The system disk
    SystemDisk,
    /// The other disks named
    UserDisks,
}

/// `wipe`.
#[derive(Debug, Subcommand)]
pub(crate) enum Wipe {
    /// Disks and partitions that no volume is on and nothing else uses
    Disk(WipeDisk),
    /// A logical volume of LVM
    Lv(WipeLvm),
    /// A volume group of LVM, and all logical volumes in it
    Vg(WipeLvm),
    /// What makes a device a physical volume of LVM, if no group has it
    Pv(WipeLvm),
    /// An array of MD (software RAID), and what makes its devices members
    Md(WipeLvm),
}

/// `wipe lv`, `wipe vg`, `wipe pv` and `wipe md`.
#[derive(Debug, Args)]
pub(crate) struct WipeLvm {
    /// A logical volume as vg0/lv0, a group as vg0, else a device's whole path such as /dev/sda1
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// `wipe disk`.
#[derive(Debug, Args)]
pub(crate) struct WipeDisk {
    /// Names as `get discoveredvolumes` lists them, such as vdb or vdb1
    #[arg(required = true, value_name = "DEVICE")]
    pub(crate) devices: Vec<String>,
    /// How
    #[arg(long, value_enum, ignore_case = true, default_value = "FAST")]
    pub(crate) method: WipeMethod,
    /// Take a partition out of its disk's table, too
    #[arg(long)]
    pub(crate) drop_partition: bool,
    /// Even if a volume is on it
    #[arg(long, hide = true)]
    pub(crate) skip_volume_check: bool,
    /// Even if it is a part of another device, such as a RAID
    #[arg(long, hide = true)]
    pub(crate) skip_secondary_check: bool,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// How much of a device is wiped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WipeMethod {
    /// What says what lies on it: beginnings and partition tables
    #[value(name = "FAST")]
    Fast,
    /// Every byte; of a large disk it may take hours
    #[value(name = "ZEROES")]
    Zeroes,
}

/// `install`.
#[derive(Debug, Args)]
pub(crate) struct Install {
    /// The disk, as the node names it; `get disks` lists them
    #[arg(long, value_name = "DEVICE")]
    pub(crate) disk: String,
    /// The installer's image, in a registry or on the node; without it what the machine was started from
    #[arg(long, conflicts_with = "file")]
    pub(crate) image: Option<String>,
    /// The installer as a file (`mkimage build --output installer`), which is sent to the node
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Also a disk that holds something, which is wiped first
    #[arg(long)]
    pub(crate) wipe: bool,
    #[command(flatten)]
    pub(crate) short: Short,
}

/// `upgrade`.
#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// The installer's image, in a registry or on the node
    #[arg(short, long, required_unless_present = "file", conflicts_with = "file")]
    pub(crate) image: Option<String>,
    /// The installer as a file (`mkimage build --output installer`), which is sent to the node
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// How the node reboots into it
    #[arg(short = 'm', long, value_enum, default_value = "default")]
    pub(crate) reboot_mode: UpgradeReboot,
    /// Only at the next reboot
    #[arg(short, long, visible_alias = "no-reboot")]
    pub(crate) stage: bool,
    /// Without looking at the health of etcd
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Keep what is on EPHEMERAL; nodes always do
    #[arg(short, long, hide = true)]
    pub(crate) preserve: bool,
    /// By the call that nodes of older versions know
    #[arg(long, hide = true)]
    pub(crate) legacy: bool,
    /// Only print what would be done: which node, in which order
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// So many workers at once; control plane nodes always go one at a time
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(crate) max_unavailable: NonZeroUsize,
    /// Move the pods to other nodes before the reboot
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
pub(crate) enum UpgradeReboot {
    /// With kexec where the node can
    Default,
    /// Through the firmware
    Powercycle,
}

/// `bootstrap`.
#[derive(Debug, Args)]
pub(crate) struct Bootstrap {
    /// Begin with this snapshot of etcd
    #[arg(long, value_name = "FILE")]
    pub(crate) recover_from: Option<PathBuf>,
    /// Take a snapshot that was copied from a disk and has no checksum
    #[arg(long, requires = "recover_from")]
    pub(crate) recover_skip_hash_check: bool,
}

/// `kubeconfig`.
#[derive(Debug, Args)]
pub(crate) struct Kubeconfig {
    /// The file, or the directory of a file `kubeconfig`; - is standard output.
    /// Without it that of KUBECONFIG, or ~/.kube/config
    pub(crate) path: Option<PathBuf>,
    /// Overwrite what is there under the same name
    #[arg(short, long)]
    pub(crate) force: bool,
    /// The context's name instead of admin@CLUSTER
    #[arg(long, value_name = "NAME")]
    pub(crate) force_context_name: Option<String>,
    /// Put it to what is in the file instead of replacing the file
    #[arg(short, long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) merge: bool,
}

/// `etcd`.
#[derive(Debug, Subcommand)]
pub(crate) enum Etcd {
    /// Alarms of members
    #[command(subcommand)]
    Alarm(EtcdAlarm),
    /// Give space back to the file system; a member stands still meanwhile
    Defrag,
    /// Change to an older version
    #[command(subcommand)]
    Downgrade(EtcdDowngrade),
    /// Let another member lead
    ForfeitLeadership(Output),
    /// Have the node leave etcd
    Leave,
    /// List the members
    Members(Output),
    /// Remove a member that is gone for good
    RemoveMember {
        /// Its id, hexadecimal, as `etcd members` lists it
        #[arg(value_parser = parse_member)]
        id: u64,
    },
    /// Save what etcd holds: it has every secret of the cluster
    Snapshot {
        /// The file to write
        path: PathBuf,
    },
    /// How each member is
    Status(Output),
}

/// `etcd alarm`.
#[derive(Debug, Subcommand)]
pub(crate) enum EtcdAlarm {
    /// List them
    List(Output),
    /// Take them back
    Disarm(Output),
}

/// `etcd downgrade`.
#[derive(Debug, Subcommand)]
pub(crate) enum EtcdDowngrade {
    /// Whether it is possible
    Validate {
        /// The older version
        version: String,
        #[command(flatten)]
        output: Output,
    },
    /// Begin it
    Enable {
        /// The older version
        version: String,
        #[command(flatten)]
        output: Output,
    },
    /// Take it back
    Cancel(Output),
}

fn parse_member(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| "give the hexadecimal id that `etcd members` lists".to_owned())
}

/// How a changed machine config is applied.
#[derive(Debug, Clone, Args)]
pub(crate) struct Applying {
    /// The resource: only machineconfig can be changed
    #[arg(value_name = "TYPE", value_parser = ["machineconfig", "machineconfigs", "mc"])]
    pub(crate) kind: String,
    /// The active one, as if it were not given
    #[arg(hide = true, value_parser = ["v1alpha1"])]
    pub(crate) id: Option<String>,
    /// Where machine configs are, as if it were not given
    #[arg(long, hide = true, value_name = "NAME", value_parser = ["config"])]
    pub(crate) namespace: Option<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// `rotate-ca`.
#[derive(Debug, Args)]
pub(crate) struct RotateCa {
    /// Every control plane node
    #[arg(long, alias = "init-node", value_delimiter = ',', value_name = "HOST")]
    pub(crate) control_plane_nodes: Vec<String>,
    /// Every worker
    #[arg(long, value_delimiter = ',', value_name = "HOST")]
    pub(crate) worker_nodes: Vec<String>,
    /// Only say which nodes are concerned
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) dry_run: bool,
    /// The authority of the node API
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) talos: bool,
    /// The authority of Kubernetes
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) kubernetes: bool,
    /// Where the client config goes that opens the cluster from then on
    #[arg(short, long, value_name = "FILE", default_value = "cortenconfig")]
    pub(crate) output: PathBuf,
    /// Overwrite that file
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// `patch`.
#[derive(Debug, Args)]
pub(crate) struct Patch {
    #[command(flatten)]
    pub(crate) applying: Applying,
    /// Documents to merge or a JSON patch: text, or @FILE; applied in order
    #[arg(
        short,
        long,
        value_name = "PATCH",
        required_unless_present = "patch_file"
    )]
    pub(crate) patch: Vec<String>,
    /// The same from a file
    #[arg(long, value_name = "FILE")]
    pub(crate) patch_file: Option<PathBuf>,
}

/// `meta`.
#[derive(Debug, Args)]
pub(crate) struct Meta {
    /// The same as --insecure
    #[arg(short = 'i', hide = true, global = true, id = "short_insecure")]
    pub(crate) insecure: bool,
    #[command(subcommand)]
    pub(crate) verb: MetaVerb,
}

/// What to do with META.
#[derive(Debug, Subcommand)]
pub(crate) enum MetaVerb {
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
