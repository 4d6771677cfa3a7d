//! The hardware of a node: what controllers show of it, and how config and image set it up.
//!
//! Owns: disks, processors, PCI devices, firmware tables, the kernel's parameters and modules, udevd's messages.
//! Never: loads a module or names a device (udevd does), or knows another controller of the node.

mod block;
mod cores;
mod devices;
mod kernel;
mod pci;
mod pci_bus;
pub mod power_button;
mod rebind;
mod security;
mod smbios;
mod system;
pub mod uevents;

use corten_base::mode::{Ability, Mode};
use corten_base::mount_table::Mount;
use corten_config::Document;
use corten_resources::controller::{GraphError, Runtime};
use corten_supervisor::supervisor::Supervisor;
use corten_volumes::Progress;
use corten_volumes::user::OpenedVolumes;
use tokio::sync::watch;

use crate::uevents::Uevents;
pub use kernel::sysctls;

/// The parts of machined that these controllers read.
#[derive(Debug, Clone)]
pub struct Sources {
    /// The machine config, once there is one.
    pub config: watch::Receiver<Option<Document>>,
    /// Runs programs of the image; `None` if only the graph is built.
    pub supervisor: Option<Supervisor>,
    /// Progress of the node's own volumes.
    pub volumes: watch::Receiver<Progress>,
    /// Keys that opened encrypted user volumes.
    pub user_volumes: OpenedVolumes,
    /// The mount table.
    pub mounts: watch::Receiver<Vec<Mount>>,
    /// Device events from udevd.
    pub uevents: Uevents,
}

/// Adds all controllers of this crate.
///
/// # Errors
/// Two controllers write the same resource type.
pub fn add(runtime: &mut Runtime, sources: &Sources) -> Result<(), GraphError> {
    machine(runtime, sources)?;
    kernel(runtime, sources)
}

fn machine(runtime: &mut Runtime, sources: &Sources) -> Result<(), GraphError> {
    runtime.add(devices::Devices)?;
    runtime.add(system::SystemInfo { root: "/".into() })?;
    runtime.add(cores::Cores {
        proc: "/proc".into(),
        changes: sources.uevents.follow("cpu"),
    })?;
    runtime.add(pci::PciDevices {
        sysfs: "/sys".into(),
        changes: sources.uevents.follow("pci"),
    })?;
    if Mode::now().can(Ability::Devices) {
        rebind::add(runtime, sources)?;
    }
    if Mode::now().can(Ability::Disks) {
        block::add(runtime, sources)?;
    }
    runtime.add(block::mounts::Mounts {
        mounts: sources.mounts.clone(),
    })?;
    runtime.add(block::swap::Swaps {
        proc: "/proc".into(),
    })?;
    runtime.add(security::Security {
        root: "/".into(),
        mounts: sources.mounts.clone(),
    })
}

fn kernel(runtime: &mut Runtime, sources: &Sources) -> Result<(), GraphError> {
    runtime.add(kernel::param_config::ParamConfig {
        config: sources.config.clone(),
    })?;
    runtime.add(kernel::param_defaults::ParamDefaults::default())?;
    runtime.add(kernel::params::Params::default())?;
    if Mode::now().can(Ability::Modules) {
        runtime.add(kernel::modules::ModuleConfig {
            config: sources.config.clone(),
        })?;
        runtime.add(kernel::modules::Modules {
            loader: sources.supervisor.clone(),
            sys_module: "/sys/module".into(),
        })?;
    }
    runtime.add(kernel::module_status::ModuleStatuses {
        root: "/".into(),
        changes: sources.uevents.follow("module"),
    })?;
    if Mode::now().can(Ability::Watchdogs) {
        runtime.add(kernel::watchdog::WatchdogTimer {
            config: sources.config.clone(),
            supervisor: sources.supervisor.clone(),
        })?;
    }
    Ok(())
}
