//! The node's clock: queries time servers or a device, and steps or slews the clock.
//!
//! Owns: NTP packets, the choice of trusted servers, the resulting action, the lower bounds, and the notice of jumps.
//! Never: decides when to query; `node/controllers/src/time.rs` does.

pub mod agree;
pub mod ask;
pub mod discipline;
pub mod error;
pub mod floor;
pub mod jumps;
pub mod protected;
pub mod servers;
pub mod sntp;
