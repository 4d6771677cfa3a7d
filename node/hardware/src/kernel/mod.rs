//! Kernel parameters, modules and the watchdog as the image and the config set them; and the present modules.

mod lockups;
pub(super) mod module_status;
pub(super) mod modules;
pub(super) mod param_config;
pub(super) mod param_defaults;
pub(super) mod params;
mod setting;
pub mod sysctls;
pub(super) mod watchdog;
