//! Shared helpers of the tests: the images, booting a machine and calling its API, and the fault
//! injector inside it.
//!
//! Owns: files under `target/vm` and `target/chaos`.
//! Never does: skip a test, decide a promise (each is in its own file), or read a console where the
//! API can answer.
//! Talks to: `cortenctl` and the agent of `tests/chaos`, both as programs, and the `qemu` crate.
//! On a laptop: `make image`, then `cargo test -p tests --test boot -- --ignored raw_uefi`.
//!
//! The functions here panic instead of returning errors: a failure in a test's preparation fails
//! the test, and [`qemu::Running`] then keeps and prints the console.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test support: a failing step is a failing test"
)]

pub mod chaos;
pub mod circles;
pub mod client;
pub mod clouds;
pub mod cluster;
pub mod derived;
pub mod disk;
pub mod docs;
pub mod edges;
pub mod extension;
pub mod ginkgo;
pub mod images;
pub mod initramfs;
pub mod kubectl;
pub mod lockup;
pub mod metadata;
pub mod moments;
pub mod nfs;
pub mod node;
pub mod node_edges;
pub mod ovf;
pub mod registry;
pub mod secure_boot;
pub mod sntp;
pub mod tokens;
pub mod upgrades;
pub mod vhd;
pub mod workspace;
pub mod write_log;
pub mod writer;
