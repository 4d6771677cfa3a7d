//! Virtual machines for `make run` and the tests.
//!
//! Owns: the QEMU command line, the machine's working directory, its console log, its QMP and
//! debugger sockets, and the life of its processes. A machine never outlives the program that
//! started it.
//!
//! Never does: change an image whose disk is not [`DiskMode::Direct`], speak the node's API (only
//! `cortenctl` does; this crate only tests whether a TLS server answers), need root without a
//! [`Tap`], or use `/dev/kvm` before a guest has run on it.
//!
//! Talks to: `qemu-system-*` and `qemu-img` of the host, and the host's firmware files (SeaBIOS,
//! OVMF, AAVMF, iPXE) as Debian 12 and 13 install them.
//!
//! On a laptop: `cargo run -p qemu -- run --image _out/corten.raw`, or from a test:
//!
//! ```no_run
//! # use std::time::Duration;
//! use qemu::{Disk, Firmware, Machine};
//! let machine = Machine::new("try", "target/vm")
//!     .firmware(Firmware::Uefi)
//!     .disk(Disk::raw("_out/corten.raw"))
//!     .start()?;
//! machine.wait_tls(Duration::from_secs(120))?;
//! println!("API at {}", machine.api());
//! # Ok::<(), qemu::VmError>(())
//! ```

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
