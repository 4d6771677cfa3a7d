//! The node's clock: asked of servers or a device, and set or steered.
//!
//! `sntp` is the packet and `discipline` the policy, both pure; `ask` does the I/O. The controller that puts
//! them together is `controllers/time.rs`.

pub mod ask;
pub mod discipline;
pub mod sntp;
