//! Foundations shared by all parts of machined.
//!
//! Owns: the console and machined's own log (`console`), panic handling (`panics`), files that survive a power cut
//! (`durable`), mounts (`mounts`, `mount_table`), threads for work that may hang (`bulkhead`), events (`events`), the
//! limits of a node in a container (`mode`) and the files of its `/proc` (`container_proc`), and readers of the kernel
//! command line (`cmdline`) and log, procfs, sysfs and EFI variables.
//! Never does: know a service, a volume or a resource.
//! Talks to: the kernel; the sockets of other daemons (`unix`).
//! On a laptop: `cargo test -p corten-base`.

#[cfg(any(test, feature = "testing"))]
pub mod alone;
pub mod bulkhead;
pub mod calendar;
pub mod cmdline;
pub mod console;
pub mod container_proc;
pub mod durable;
pub mod efi;
pub mod events;
pub mod https;
pub mod kernel_log;
pub mod mode;
pub mod mount_table;
pub mod mounts;
pub mod os_release;
pub mod panics;
pub mod proc;
pub mod regular;
pub mod runtime;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
pub mod sysfs;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trusted_roots;
pub mod unix;
