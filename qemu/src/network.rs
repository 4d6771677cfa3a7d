//! The networks of a machine: plain values.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

/// One end of a cable between two machines. Frames go from socket to socket, and are lost while the
/// other machine does not run, as on a real cable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wire {
    /// Socket of this end, which QEMU creates. At most 107 bytes (`sockaddr_un`, unix(7)).
    pub local: PathBuf,
    /// Socket of the other end.
    pub remote: PathBuf,
    /// Hardware address of this machine's NIC, such as `52:54:00:00:01:01`.
    pub mac: String,
}

/// A NIC on a network that any number of machines of this host share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Id of the network: a UDP port of the loopback interface, whose multicast carries the frames.
    pub port: u16,
    /// Hardware address of this machine's NIC, such as `52:54:00:00:01:01`.
    pub mac: String,
}

/// A TCP server of this host's loopback interface that has an address of its own in the guest's network. An example is
/// the metadata service of a cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Address and port for the guest; the address must be in [`Machine::subnet`](crate::Machine::subnet).
    pub guest: SocketAddrV4,
    /// Port of the server on this host.
    pub local: u16,
}

/// A NIC whose frames go to a link of this host, such as a port of a bridge. Needs root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tap {
    /// Name of the link, which exists as long as QEMU runs. At most 15 bytes.
    pub link: String,
    /// Hardware address of the guest's NIC, such as `52:54:00:00:01:01`.
    pub mac: String,
    /// Address of the guest, for [`Running::api`](crate::Running::api).
    pub address: Ipv4Addr,
}

/// Network boot: QEMU answers DHCP and TFTP. The NIC's option ROM (iPXE) loads and runs the boot
/// file, or UEFI does on a machine without such a ROM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetBoot {
    /// Directory served by TFTP.
    pub tftp: PathBuf,
    /// File named in the DHCP answer, relative to `tftp`.
    pub bootfile: String,
}
