//! Tests of the whole crate.

mod json;
mod meta;
mod network_config_tests;
mod seed;
