//! What streams cost, however long, many or slow: apid, machined's server and syslogd in processes of their own, whose
//! memory the kernel tells. Bounds are bytes and numbers, never time.
//!
//! `CORTEN_STREAM_SCALE=16` makes files and logs so many times as long: 4 GiB and 1,600,000 lines.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing step is a failing test"
)]

mod at_machined;
mod backend;
#[path = "../../benches/calls/caller.rs"]
mod caller;
mod client;
mod liar;
mod process;
#[path = "../../benches/calls/still.rs"]
mod still;
mod through_apid;

/// How many times as long files and logs are as they are without `CORTEN_STREAM_SCALE`.
fn scale() -> usize {
    let asked = std::env::var("CORTEN_STREAM_SCALE");
    asked.map_or(1, |text| text.parse().unwrap())
}
