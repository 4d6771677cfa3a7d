//! The command line of `corten-qemu`.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use qemu::{Arch, Segment};

#[derive(Parser)]
#[command(version, about = "Start Corten images in QEMU")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Start a machine with its console on this terminal
    Run(Box<RunArgs>),
    /// Print the accelerator for this host, and the reason
    Probe,
}

#[derive(Args)]
pub(crate) struct RunArgs {
    /// Architecture: x86_64 (amd64) or arm64 (aarch64) [default: that of the image's
    /// name, or x86_64]
    #[arg(long, value_parser = arch)]
    pub(crate) arch: Option<Arch>,
    /// Disk image, not changed; raw unless its name ends in .qcow2
    #[arg(long)]
    pub(crate) image: Vec<PathBuf>,
    /// ISO in a CD drive
    #[arg(long)]
    pub(crate) iso: Option<PathBuf>,
    /// ISO or raw image on a USB stick
    #[arg(long)]
    pub(crate) usb: Option<PathBuf>,
    /// Directory with a boot script for network boot (see --bootfile)
    #[arg(long, value_name = "DIR")]
    pub(crate) pxe: Option<PathBuf>,
    /// File in the --pxe directory that iPXE fetches first
    #[arg(long, default_value = "boot.ipxe")]
    pub(crate) bootfile: String,
    /// Kernel to start directly
    #[arg(long)]
    pub(crate) kernel: Option<PathBuf>,
    /// Initramfs for --kernel
    #[arg(long, requires = "kernel")]
    pub(crate) initrd: Option<PathBuf>,
    /// Kernel parameters for --kernel [default: the console]
    #[arg(long)]
    pub(crate) append: Option<String>,
    /// Firmware
    #[arg(long, value_enum, default_value = "uefi")]
    pub(crate) firmware: FirmwareArg,
    /// Memory in MiB
    #[arg(long, default_value_t = 2048)]
    pub(crate) memory: u32,
    /// Virtual CPUs
    #[arg(long, default_value_t = 2)]
    pub(crate) cpus: u32,
    /// Local port of the node's API [default: 50000, or a free port if 50000 is in
    /// use]
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Forward a local port to a port of the node, such as 6443:6443
    #[arg(long, value_name = "LOCAL:NODE", value_parser = forward)]
    pub(crate) forward: Vec<(u16, u16)>,
    /// Second network card, on a network that machines of this host share: the
    /// port of the network and the card's hardware address, such as
    /// 16444,52:54:00:00:03:01
    #[arg(long, value_name = "PORT,MAC", value_parser = segment)]
    pub(crate) segment: Option<Segment>,
    /// Accelerator [default: probed]
    #[arg(long, value_parser = ["kvm", "tcg"])]
    pub(crate) accel: Option<String>,
    /// Keep the guest's writes in an overlay in the machine's directory
    #[arg(long)]
    pub(crate) overlay: bool,
    /// Size of the disk in MiB, with an overlay; a node keeps its config
    /// and data behind the image
    #[arg(long, value_name = "MIB", requires = "image")]
    pub(crate) disk_size: Option<u64>,
    /// Directory for the machine's files
    #[arg(long, default_value = "target/vm")]
    pub(crate) dir: PathBuf,
    /// Name of the machine
    #[arg(long, default_value = "run")]
    pub(crate) name: String,
    /// Client config of the machine, for the printed commands
    #[arg(long, value_name = "FILE")]
    pub(crate) client_config: Option<PathBuf>,
    /// Shell command to run once the API answers, with `CORTEN_API` set to
    /// its address
    #[arg(long, value_name = "COMMAND")]
    pub(crate) when_up: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FirmwareArg {
    Bios,
    Uefi,
    SecureBoot,
}

fn arch(name: &str) -> Result<Arch, String> {
    Arch::from_name(name).ok_or_else(|| "use x86_64 (amd64) or arm64 (aarch64)".to_owned())
}

fn forward(text: &str) -> Result<(u16, u16), String> {
    let ports = text.split_once(':');
    let ports = ports.and_then(|(local, node)| Some((local.parse().ok()?, node.parse().ok()?)));
    ports.ok_or_else(|| "use two ports, such as 6443:6443".to_owned())
}

fn segment(text: &str) -> Result<Segment, String> {
    let parts = text.split_once(',').and_then(|(port, mac)| {
        let mut octets = mac.split(':');
        let is_octet =
            |octet: &str| octet.len() == 2 && octet.bytes().all(|b| b.is_ascii_hexdigit());
        let is_mac = octets.clone().count() == 6 && octets.all(is_octet);
        Some((port.parse().ok()?, is_mac.then(|| mac.to_owned())?))
    });
    parts
        .map(|(port, mac)| Segment { port, mac })
        .ok_or_else(|| {
            "use a port and a hardware address, such as 16444,52:54:00:00:03:01".to_owned()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_needs_a_port_and_a_hardware_address() {
        let expected = Segment {
            port: 16444,
            mac: "52:54:00:00:03:01".to_owned(),
        };
        assert_eq!(segment("16444,52:54:00:00:03:01"), Ok(expected));
        // A further comma would start another QEMU option.
        for wrong in [
            "16444",
            "x,52:54:00:00:03:01",
            "1,52:54:00:00:03",
            "1,52:54:00:00:03:01,id=x",
            "1,52:54:00:00:03:+1",
        ] {
            segment(wrong).unwrap_err();
        }
    }
}
