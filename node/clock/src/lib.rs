//! The node's clock: asked of servers or a device, and set or steered.
//!
//! `sntp` is the packet, `agree` says which servers are believed, `discipline` what to do, all pure; `floor` is what
//! the clock stays above; `ask` does the I/O, with proof
//! `protected`, and `servers` a round of questions. The controller that puts them together
//! is `controllers/time.rs`.

pub mod agree;
pub mod ask;
pub mod discipline;
pub mod floor;
pub mod protected;
pub mod servers;
pub mod sntp;
