//! Foundations shared by all parts of machined.
//!
//! Owns: console, panics, durable files, mounts, threads for work that may hang, events, readers of the kernel's files.
//! Never: knows a service, a volume or a resource.

#[cfg(any(test, feature = "testing"))]
pub mod alone;
pub mod bulkhead;
pub mod calendar;
pub mod cmdline;
pub mod complaints;
pub mod console;
pub mod container_proc;
pub mod durable;
pub mod efi;
pub mod events;
pub mod https;
pub mod kernel_log;
pub mod lookups;
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
