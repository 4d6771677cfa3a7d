//! Tests of the whole crate.

mod meta;
mod network_config_tests;
mod seed;
