//! Kernel parameters, modules and the watchdog.

use std::time::Duration;

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::names::{MODULE_STATES, MODULE_TYPES, number};
use super::{column, duration_text, is_default, open};

const NAMESPACE: &str = "runtime";

/// A kernel parameter the config sets; its id is `proc.sys.` and the parameter's name, or `sys.` and the path below
/// `/sys` with dots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelParamSpec {
    /// Value to write.
    pub value: String,
    /// Whether a kernel without the parameter is acceptable.
    pub ignore_errors: bool,
}

impl Spec for KernelParamSpec {
    const DEFINITION: Definition = open("KernelParamSpecs.runtime.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::KernelParamSpecSpec;

    fn message(&self) -> wire::KernelParamSpecSpec {
        wire::KernelParamSpecSpec {
            value: self.value.clone(),
            ignore_errors: self.ignore_errors,
        }
    }
}

/// A kernel parameter the image sets at boot, before those of the config; same ids as [`KernelParamSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelParamDefaultSpec(pub KernelParamSpec);

impl Spec for KernelParamDefaultSpec {
    const DEFINITION: Definition = open(
        "KernelParamDefaultSpecs.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[],
    );

    type Message = wire::KernelParamSpecSpec;

    fn message(&self) -> wire::KernelParamSpecSpec {
        self.0.message()
    }
}

/// Result of a [`KernelParamSpec`]; same id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelParamStatus {
    /// Current value in the kernel.
    pub current: String,
    /// Previous value; the node restores it when the config drops the parameter.
    pub default: String,
    /// Whether the kernel lacks the parameter or rejects the value.
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

    type Message = wire::KernelParamStatusSpec;

    fn message(&self) -> wire::KernelParamStatusSpec {
        wire::KernelParamStatusSpec {
            current: self.current.clone(),
            default: self.default.clone(),
            unsupported: self.unsupported,
        }
    }
}

/// A kernel module the config loads; its id is the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelModuleSpec {
    /// Name of the module. Clients know the field by its YAML name.
    #[serde(rename = "string")]
    pub name: String,
    /// Module parameters, such as `option=1`.
    pub parameters: Vec<String>,
}

impl Spec for KernelModuleSpec {
    const DEFINITION: Definition = open("KernelModuleSpecs.runtime.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::KernelModuleSpecSpec;

    fn message(&self) -> wire::KernelModuleSpecSpec {
        wire::KernelModuleSpecSpec {
            name: self.name.clone(),
            parameters: self.parameters.clone(),
        }
    }
}

/// A kernel module, loaded or built in; its id is the name, with underscores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelModuleStatus {
    /// `built-in` or `dynamic`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Details of the module; its state is `live`, `loading`, `unloading`, `built-in`.
    #[serde(flatten)]
    pub module: LoadedKernelModule,
}

impl Spec for KernelModuleStatus {
    const DEFINITION: Definition = open(
        "KernelModuleStatuses.runtime.talos.dev",
        NAMESPACE,
        &["module", "modules"],
        &[column("Type", ".type"), column("State", ".state")],
    );

    type Message = wire::KernelModuleStatusSpec;

    fn message(&self) -> wire::KernelModuleStatusSpec {
        let module = self.module.message();
        wire::KernelModuleStatusSpec {
            r#type: number(self.kind, MODULE_TYPES).unwrap_or_default(),
            size: module.size,
            reference_count: module.reference_count,
            dependencies: module.dependencies,
            state: number(self.module.state, MODULE_STATES).unwrap_or_default(),
            address: module.address,
        }
    }
}

/// A loaded module in the form of earlier clients; its id is that of its [`KernelModuleStatus`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedKernelModule {
    /// Size in bytes; 0 for a built-in module.
    pub size: u64,
    /// Number of users.
    pub reference_count: u64,
    /// Modules that use this module.
    #[serde(skip_serializing_if = "is_default")]
    pub dependencies: Vec<String>,
    /// The kernel's state: `Live`, `Loading`, `Unloading`.
    pub state: &'static str,
    /// Load address; always zeros, because the kernel hides it.
    pub address: String,
}

impl Spec for LoadedKernelModule {
    const DEFINITION: Definition = open(
        "LoadedKernelModules.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[column("State", ".state")],
    );

    type Message = wire::LoadedKernelModuleSpec;

    fn message(&self) -> wire::LoadedKernelModuleSpec {
        wire::LoadedKernelModuleSpec {
            size: self.size.try_into().unwrap_or(i64::MAX),
            reference_count: self.reference_count.try_into().unwrap_or(i64::MAX),
            dependencies: self.dependencies.clone(),
            state: self.state.to_owned(),
            address: self.address.clone(),
        }
    }
}

/// Watchdog settings from the config; id [`WatchdogTimerConfig::ID`]. Without such settings there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WatchdogTimerConfig {
    /// Watchdog device, such as `/dev/watchdog0`.
    pub device: String,
    /// Time without feeding after which the watchdog is to reset the machine.
    #[serde(serialize_with = "duration_text")]
    pub timeout: Duration,
}

impl WatchdogTimerConfig {
    /// Id of the only resource of this type.
    pub const ID: &str = "timer";
}

impl Spec for WatchdogTimerConfig {
    const DEFINITION: Definition = open(
        "WatchdogTimerConfigs.runtime.talos.dev",
        NAMESPACE,
        &[],
        &[column("Device", ".device"), column("Timeout", ".timeout")],
    );

    type Message = wire::WatchdogTimerConfigSpec;

    fn message(&self) -> wire::WatchdogTimerConfigSpec {
        wire::WatchdogTimerConfigSpec {
            device: self.device.clone(),
            timeout: self.timeout.try_into().ok(),
        }
    }
}

/// The active watchdog; id [`WatchdogTimerStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchdogTimerStatus {
    /// Watchdog device, such as `/dev/watchdog0`.
    pub device: String,
    /// Time without feeding after which the watchdog resets the machine.
    #[serde(serialize_with = "duration_text")]
    pub timeout: Duration,
    /// Interval between feedings.
    #[serde(serialize_with = "duration_text")]
    pub feed_interval: Duration,
}

impl WatchdogTimerStatus {
    /// Id of the only resource of this type.
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

    type Message = wire::WatchdogTimerStatusSpec;

    fn message(&self) -> wire::WatchdogTimerStatusSpec {
        wire::WatchdogTimerStatusSpec {
            device: self.device.clone(),
            timeout: self.timeout.try_into().ok(),
            feed_interval: self.feed_interval.try_into().ok(),
        }
    }
}
