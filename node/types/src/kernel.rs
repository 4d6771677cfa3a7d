//! Kernel parameters, modules and the watchdog.

use std::time::Duration;

use corten_api::talos::resource::definitions::runtime as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::names::{MODULE_STATES, MODULE_TYPES, number};
use super::{column, duration_text, is_default, open};

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

    type Message = wire::KernelParamSpecSpec;

    fn message(&self) -> wire::KernelParamSpecSpec {
        wire::KernelParamSpecSpec {
            value: self.value.clone(),
            ignore_errors: self.ignore_errors,
        }
    }
}

/// A value the image sets at boot, before any the config wants; ids are those of [`KernelParamSpec`].
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

    type Message = wire::KernelParamStatusSpec;

    fn message(&self) -> wire::KernelParamStatusSpec {
        wire::KernelParamStatusSpec {
            current: self.current.clone(),
            default: self.default.clone(),
            unsupported: self.unsupported,
        }
    }
}

/// A module the config wants; its id is the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelModuleSpec {
    /// Of the module. Clients know the field by the name it has in YAML.
    #[serde(rename = "string")]
    pub name: String,
    /// Such as `option=1`.
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

/// A module of the kernel, loaded or built in; its id is the name, with underscores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelModuleStatus {
    /// `built-in` or `dynamic`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The rest; its state is `live`, `loading`, `unloading`, `built-in`.
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

/// A module that was loaded, in the form of earlier clients; its id is that of its [`KernelModuleStatus`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadedKernelModule {
    /// In bytes; 0 for one that is built in.
    pub size: u64,
    /// How many use it.
    pub reference_count: u64,
    /// The modules that use it.
    #[serde(skip_serializing_if = "is_default")]
    pub dependencies: Vec<String>,
    /// In the kernel's words: `Live`, `Loading`, `Unloading`.
    pub state: &'static str,
    /// Where it lies; zeros, as the kernel hides it.
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

/// The watchdog the config wants; id [`WatchdogTimerConfig::ID`]. There is none when it wants none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WatchdogTimerConfig {
    /// Such as `/dev/watchdog0`.
    pub device: String,
    /// Without a sign of life for so long, the machine shall reset.
    #[serde(serialize_with = "duration_text")]
    pub timeout: Duration,
}

impl WatchdogTimerConfig {
    /// There is one.
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

/// The watchdog that is fed; id [`WatchdogTimerStatus::ID`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchdogTimerStatus {
    /// Such as `/dev/watchdog0`.
    pub device: String,
    /// Without a sign of life for so long, the machine resets.
    #[serde(serialize_with = "duration_text")]
    pub timeout: Duration,
    /// How often there is one.
    #[serde(serialize_with = "duration_text")]
    pub feed_interval: Duration,
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

    type Message = wire::WatchdogTimerStatusSpec;

    fn message(&self) -> wire::WatchdogTimerStatusSpec {
        wire::WatchdogTimerStatusSpec {
            device: self.device.clone(),
            timeout: self.timeout.try_into().ok(),
            feed_interval: self.feed_interval.try_into().ok(),
        }
    }
}
