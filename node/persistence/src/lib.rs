//! What a node keeps from one boot to the next, and what it learns about the boot before.
//!
//! Owns: the stored machine configs (`config_store`), the values of META (`meta`), the record of how a boot ended and
//! why it was locked (`last_stop`), and the kernel's reports of processes killed for memory (`oom`).
//! Never does: mount a volume, or decide what the node does with what it finds.
//! Talks to: the files on STATE, the META partition, pstore and the kernel log.
//! On a laptop: `cargo test -p corten-persistence`.

pub mod config_store;
pub mod last_stop;
pub mod meta;
pub mod oom;
