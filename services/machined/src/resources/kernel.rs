//! Kernel parameters, modules and the watchdog.

use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, open};

const NAMESPACE: &str = "runtime";

/// A value the config wants; its id is `proc.sys.` and the parameter's name, or `sys.` and the path below
/// `/sys` with dots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelParamSpec {
    /// What is written.
    pub value: String,
    /// A kernel without it is no fault.
    pub ignore_errors: bool,
}

impl Spec for KernelParamSpec {
    const DEFINITION: Definition = open("KernelParamSpecs.runtime.talos.dev", NAMESPACE, &[], &[]);
}

/// What became of a [`KernelParamSpec`]; same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelParamStatus {
    /// What the kernel says now.
    pub current: String,
    /// What it said before; it comes back when the config no longer has the parameter.
    pub default: String,
    /// The kernel does not have it, or does not take the value.
    pub unsupported: bool,
}

impl Spec for KernelParamStatus {
    const DEFINITION: Definition = open(
        "KernelParamStatuses.runtime.talos.dev",
        NAMESPACE,
        &["sysctls", "kernelparameters", "kernelparams"],
        &[
            column("Current", ".current"),
            column("Default", ".default"),
            column("Unsupported", ".unsupported"),
        ],
    );
}

/// A module the config wants; its id is the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelModuleSpec {
    /// Of the module.
    pub name: String,
    /// Such as `option=1`.
    pub parameters: Vec<String>,
}

impl Spec for KernelModuleSpec {
    const DEFINITION: Definition = open("KernelModuleSpecs.runtime.talos.dev", NAMESPACE, &[], &[]);
}

/// The watchdog that is fed; id [`WatchdogTimerStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchdogTimerStatus {
    /// Such as `/dev/watchdog0`.
    pub device: String,
    /// Without a sign of life for so long, the machine resets.
    pub timeout: String,
    /// How often there is one.
    pub feed_interval: String,
}

impl WatchdogTimerStatus {
    /// There is one.
    pub const ID: &str = "timer";
}

impl Spec for WatchdogTimerStatus {
    const DEFINITION: Definition = open(
        "WatchdogTimerStatuses.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[
            column("Device", ".device"),
            column("Timeout", ".timeout"),
            column("Feed Interval", ".feedInterval"),
        ],
    );
}
