//! The program as a process, against fake nodes.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

mod bundle;
mod clusters;
mod examples;
mod fake;
mod loopback;
mod paused;
mod support;
mod terminal;
mod transcripts;
