//! What every part of machined stands on.
//!
//! Owns: the console and machined's own log (`console`), what becomes of a panic (`panics`), files that survive a power
//! cut (`durable`), the table of mounts (`mounts`, `mount_table`), threads for what may hang (`bulkhead`), the node's
//! events (`events`), what it runs on and cannot do there (`mode`), the kernel's parameters (`cmdline`) and log,
//! procfs, sysfs and the firmware's variables.
//! Never does: know a service, a volume or a resource.
//! Talks to: the kernel; the sockets of other daemons (`unix`).
//! On a laptop: `cargo test -p corten-base`.

#[cfg(any(test, feature = "testing"))]
pub mod alone;
pub mod bulkhead;
pub mod calendar;
pub mod cmdline;
pub mod console;
pub mod durable;
pub mod efi;
pub mod events;
pub mod https;
pub mod kernel_log;
pub mod mode;
pub mod mount_table;
pub mod mounts;
pub mod panics;
pub mod proc;
pub mod regular;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
pub mod sysfs;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trusted_roots;
pub mod unix;
