//! The node's clock: queries time servers or a device, and steps or slews the clock.
//!
//! Owns: the NTP packets (`sntp`, authenticated in `protected`), the choice of trusted servers (`agree`), the resulting
//! action (`discipline`), the lower bounds (`floor`), and the notice of jumps that others cause (`jumps`). `ask` does the
//! I/O, and `servers` runs one round of queries.
//! Never does: decide when to query; `node/controllers/src/time.rs` does.
//! Talks to: time servers, clock devices, the kernel's clock.
//! On a laptop: `cargo test -p corten-clock`.

pub mod agree;
pub mod ask;
pub mod discipline;
pub mod error;
pub mod floor;
pub mod jumps;
pub mod protected;
pub mod servers;
pub mod sntp;
