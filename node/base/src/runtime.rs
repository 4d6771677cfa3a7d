//! The size of machined's runtime. Tests of what may occupy its threads use the same.

/// Threads of the runtime. Two suffice, because no task is CPU-bound (design, section 4).
pub const WORKERS: usize = 2;
/// Threads for short blocking work on files and the node's disks. They end when idle. Work that may hang for ever has
/// its own threads (`bulkhead.rs`).
pub const BLOCKING_THREADS: usize = 8;
