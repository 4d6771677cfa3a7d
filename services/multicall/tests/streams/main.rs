//! Memory of streams, however long, many or slow: apid, machined's server and syslogd run in processes of their own,
//! and the kernel reports their memory. Bounds are bytes and counts, never time.
//!
//! `CORTEN_STREAM_SCALE=16` makes files and logs 16 times as long: 4 GiB and 1,600,000 lines.
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

/// Factor of the length of files and logs.
fn scale() -> usize {
    let asked = std::env::var("CORTEN_STREAM_SCALE");
    asked.map_or(1, |text| text.parse().unwrap())
}
