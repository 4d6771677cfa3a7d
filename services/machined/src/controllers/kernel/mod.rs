//! What the config wants of the kernel: parameters, modules and the watchdog.

pub(super) mod modules;
pub(super) mod param_config;
pub(super) mod params;
pub(super) mod watchdog;
