//! What image and config want of the kernel: parameters, modules and the watchdog; and which modules there are.

pub(super) mod module_status;
pub(super) mod modules;
pub(super) mod param_config;
pub(super) mod param_defaults;
pub(super) mod params;
pub(super) mod watchdog;
