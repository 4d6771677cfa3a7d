//! The node's clock: asked of servers or a device, and set or steered.
//!
//! Owns: what a time server says (`sntp`, with proof `protected`), which servers are believed (`agree`), what follows
//! (`discipline`), and what the clock stays above (`floor`); all of them pure. `ask` does the I/O, and `servers` one round
//! of questions.
//! Never does: decide when to ask; machined's `controllers/time.rs` does.
//! Talks to: time servers, the devices of clocks, the kernel's clock.
//! On a laptop: `cargo test -p corten-clock`.

pub mod agree;
pub mod ask;
pub mod discipline;
pub mod floor;
pub mod protected;
pub mod servers;
pub mod sntp;
