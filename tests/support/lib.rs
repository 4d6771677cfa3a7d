//! Shared helpers of the tests: the images, booting a machine and calling its API, and the fault injector inside it.
//!
//! Owns: files under `target/vm` and `target/chaos`. A failure is a panic, so that the test fails with the console.
//! Never: skips a test, decides a promise (each is in its own file), or reads a console where the API can answer.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test support: a failing step is a failing test"
)]

pub mod chaos;
pub mod circles;
pub mod client;
pub mod clock;
pub mod clouds;
pub mod cluster;
pub mod derived;
pub mod disk;
pub mod dns;
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
pub mod policies;
pub mod registry;
pub mod secure_boot;
pub mod sntp;
pub mod tokens;
pub mod upgrades;
pub mod vhd;
pub mod workspace;
pub mod write_log;
pub mod writer;
