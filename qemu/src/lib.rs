//! Virtual machines for `make run` and the tests.
//!
//! Owns: QEMU's command line, a machine's directory, console log and sockets, and its processes; none outlives it.
//! Never: changes an image except in [`DiskMode::Direct`], calls the node's API, or needs root without a [`Tap`].

mod accel;
mod answer;
mod arch;
mod args;
mod console;
mod disk;
mod error;
mod firmware;
mod gdb;
mod machine;
mod network;
mod qmp;
mod running;
mod sockets;
mod spawn;
mod tls;

pub use accel::{Accel, Probe};
pub use arch::Arch;
pub use console::Console;
pub use disk::{Bus, Disk, DiskFormat, DiskMode, log_of};
pub use error::VmError;
pub use firmware::Firmware;
pub use gdb::{Gdb, Registers};
pub use machine::{DirectBoot, Machine, Media, Volume};
pub use network::{NetBoot, Segment, Service, Tap, Wire};
pub use qmp::{Event, Qmp};
pub use running::Running;
