//! What the config wants of the kernel: parameters, and the watchdog.

pub(super) mod param_config;
pub(super) mod params;
pub(super) mod watchdog;
