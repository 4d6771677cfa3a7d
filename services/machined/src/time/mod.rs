//! The node's clock: asked of servers or a device, and set or steered.
//!
//! `sntp` is the packet and `discipline` the policy, both pure; `floor` is what the clock stays above; `ask` does the
//! I/O. The controller that puts them together is `controllers/time.rs`.

pub mod ask;
pub mod discipline;
pub mod floor;
pub mod sntp;
