//! The machine's hardware. Values the firmware does not report are empty, or 0 if numeric.

use corten_api::machine as api;
use corten_api::talos::resource::definitions::hardware as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::{column, is_default, open};

const NAMESPACE: &str = "hardware";

/// The machine (SMBIOS type 1); id [`SystemInformation::ID`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SystemInformation {
    pub manufacturer: String,
    pub product_name: String,
    pub version: String,
    pub bios_version: String,
    pub serialnumber: String,
    pub uuid: String,
    /// Event that powered it on: `Power Switch`, `AC Power Restored`, ...
    #[serde(skip_serializing_if = "is_default")]
    pub wake_up_type: &'static str,
    pub sku_number: String,
}

impl SystemInformation {
    /// Id of the only resource of this type.
    pub const ID: &str = "systeminformation";
}

impl Spec for SystemInformation {
    const DEFINITION: Definition = open(
        "SystemInformations.hardware.talos.dev",
        NAMESPACE,
        &["systeminformation"],
        &[
            column("Manufacturer", ".manufacturer"),
            column("ProductName", ".productName"),
            column("Version", ".version"),
            column("SerialNumber", ".serialnumber"),
            column("UUID", ".uuid"),
            column("WakeUpType", ".wakeUpType"),
            column("SKUNumber", ".skuNumber"),
        ],
    );

    type Message = wire::SystemInformationSpec;

    fn message(&self) -> wire::SystemInformationSpec {
        wire::SystemInformationSpec {
            manufacturer: self.manufacturer.clone(),
            product_name: self.product_name.clone(),
            version: self.version.clone(),
            serial_number: self.serialnumber.clone(),
            uuid: self.uuid.clone(),
            wake_up_type: self.wake_up_type.to_owned(),
            sku_number: self.sku_number.clone(),
            bios_version: self.bios_version.clone(),
        }
    }
}

/// A processor socket and its processor (SMBIOS type 4); its id is the socket's name with `-` for blanks. An empty
/// socket has an empty spec.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Processor {
    /// Name of the socket.
    #[serde(skip_serializing_if = "is_default")]
    pub socket: String,
    #[serde(skip_serializing_if = "is_default")]
    pub manufacturer: String,
    #[serde(skip_serializing_if = "is_default")]
    pub product_name: String,
    /// Maximum speed in MHz.
    #[serde(skip_serializing_if = "is_default")]
    pub max_speed_mhz: u32,
    /// Speed at boot in MHz.
    #[serde(skip_serializing_if = "is_default")]
    pub boot_speed_mhz: u32,
    /// SMBIOS status bits: bit 6 means populated, bits 2-0 are the processor's state.
    #[serde(skip_serializing_if = "is_default")]
    pub status: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub serial_number: String,
    #[serde(skip_serializing_if = "is_default")]
    pub asset_tag: String,
    #[serde(skip_serializing_if = "is_default")]
    pub part_number: String,
    #[serde(skip_serializing_if = "is_default")]
    pub core_count: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub core_enabled: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub thread_count: u32,
}

impl Spec for Processor {
    const DEFINITION: Definition = open(
        "Processors.hardware.talos.dev",
        NAMESPACE,
        &["cpus", "cpu"],
        &[
            column("Manufacturer", ".manufacturer"),
            column("Model", ".productName"),
            column("Cores", ".coreCount"),
            column("Threads", ".threadCount"),
        ],
    );

    type Message = wire::ProcessorSpec;

    fn message(&self) -> wire::ProcessorSpec {
        wire::ProcessorSpec {
            socket: self.socket.clone(),
            manufacturer: self.manufacturer.clone(),
            product_name: self.product_name.clone(),
            max_speed: self.max_speed_mhz,
            boot_speed: self.boot_speed_mhz,
            status: self.status,
            serial_number: self.serial_number.clone(),
            asset_tag: self.asset_tag.clone(),
            part_number: self.part_number.clone(),
            core_count: self.core_count,
            core_enabled: self.core_enabled,
            thread_count: self.thread_count,
        }
    }
}

/// A core as the kernel reports it; its id is `socket-core`. If the kernel reports neither (arm64), the id is the
/// number of the core's only logical processor.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CpuCore {
    /// The kernel's socket number.
    #[serde(skip_serializing_if = "is_default")]
    pub socket: String,
    /// Number of the core in its socket.
    #[serde(rename = "coreID", skip_serializing_if = "is_default")]
    pub core_id: String,
    /// The kernel's numbers of its logical processors, sorted; several if the core runs several threads.
    #[serde(rename = "logicalCPUs")]
    pub logical_cpus: Vec<u32>,
    #[serde(rename = "vendorID", skip_serializing_if = "is_default")]
    pub vendor_id: String,
    #[serde(skip_serializing_if = "is_default")]
    pub cpu_family: String,
    #[serde(skip_serializing_if = "is_default")]
    pub model: String,
    #[serde(skip_serializing_if = "is_default")]
    pub model_name: String,
    #[serde(skip_serializing_if = "is_default")]
    pub stepping: String,
    #[serde(skip_serializing_if = "is_default")]
    pub microcode: String,
    /// Cache size with its unit.
    #[serde(skip_serializing_if = "is_default")]
    pub cache_size: String,
    #[serde(skip_serializing_if = "is_default")]
    pub cores_per_socket: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub threads_per_socket: u32,
    /// Processor features by the kernel's names.
    #[serde(skip_serializing_if = "is_default")]
    pub flags: Vec<String>,
    /// Processor bugs by the kernel's names.
    #[serde(skip_serializing_if = "is_default")]
    pub bugs: Vec<String>,
    #[serde(skip_serializing_if = "is_default")]
    pub bogo_mips: f64,
    /// Widths of physical and virtual addresses.
    #[serde(skip_serializing_if = "is_default")]
    pub address_sizes: String,
}

impl From<api::CpuInfo> for CpuCore {
    /// Builds the core of one logical processor.
    fn from(cpu: api::CpuInfo) -> CpuCore {
        CpuCore {
            socket: cpu.physical_id,
            core_id: cpu.core_id,
            logical_cpus: vec![cpu.processor],
            vendor_id: cpu.vendor_id,
            cpu_family: cpu.cpu_family,
            model: cpu.model,
            model_name: cpu.model_name,
            stepping: cpu.stepping,
            microcode: cpu.microcode,
            cache_size: cpu.cache_size,
            cores_per_socket: cpu.cpu_cores,
            threads_per_socket: cpu.siblings,
            flags: cpu.flags,
            bugs: cpu.bugs,
            bogo_mips: cpu.bogo_mips,
            address_sizes: cpu.address_sizes,
        }
    }
}

impl Spec for CpuCore {
    const DEFINITION: Definition = open(
        "CPUCores.hardware.talos.dev",
        NAMESPACE,
        &["cpucore", "cpucores"],
        &[
            column("Socket", ".socket"),
            column("Core", ".coreID"),
            column("Model", ".modelName"),
            column("Logical CPUs", ".logicalCPUs"),
        ],
    );

    type Message = wire::CpuCoreSpec;

    fn message(&self) -> wire::CpuCoreSpec {
        wire::CpuCoreSpec {
            socket: self.socket.clone(),
            core_id: self.core_id.clone(),
            logical_cp_us: self.logical_cpus.clone(),
            vendor_id: self.vendor_id.clone(),
            cpu_family: self.cpu_family.clone(),
            model: self.model.clone(),
            model_name: self.model_name.clone(),
            stepping: self.stepping.clone(),
            microcode: self.microcode.clone(),
            cache_size: self.cache_size.clone(),
            cores_per_socket: self.cores_per_socket,
            threads_per_socket: self.threads_per_socket,
            flags: self.flags.clone(),
            bugs: self.bugs.clone(),
            bogo_mips: self.bogo_mips,
            address_sizes: self.address_sizes.clone(),
        }
    }
}

/// A memory socket and its module (SMBIOS type 17). Its id is the socket's and the bank's names with `-` for blanks. If
/// the firmware reports no modules, the single id `UNKNOWN` stands for all memory. An empty socket has an empty spec.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryModule {
    /// Size in MiB.
    #[serde(rename = "sizeMiB", skip_serializing_if = "is_default")]
    pub size_mib: u32,
    /// Name of the socket.
    #[serde(skip_serializing_if = "is_default")]
    pub device_locator: String,
    /// Name of the bank.
    #[serde(skip_serializing_if = "is_default")]
    pub bank_locator: String,
    /// Speed in megatransfers per second (MT/s).
    #[serde(skip_serializing_if = "is_default")]
    pub speed: u32,
    #[serde(skip_serializing_if = "is_default")]
    pub manufacturer: String,
    #[serde(skip_serializing_if = "is_default")]
    pub serial_number: String,
    #[serde(skip_serializing_if = "is_default")]
    pub asset_tag: String,
    #[serde(skip_serializing_if = "is_default")]
    pub product_name: String,
}

impl Spec for MemoryModule {
    const DEFINITION: Definition = open(
        "MemoryModules.hardware.talos.dev",
        NAMESPACE,
        &["memorymodules", "ram"],
        &[
            column("Manufacturer", ".manufacturer"),
            column("Model", ".productName"),
            column("SizeMiB", ".sizeMiB"),
        ],
    );

    type Message = wire::MemoryModuleSpec;

    fn message(&self) -> wire::MemoryModuleSpec {
        wire::MemoryModuleSpec {
            size: self.size_mib,
            device_locator: self.device_locator.clone(),
            bank_locator: self.bank_locator.clone(),
            speed: self.speed,
            manufacturer: self.manufacturer.clone(),
            serial_number: self.serial_number.clone(),
            asset_tag: self.asset_tag.clone(),
            product_name: self.product_name.clone(),
        }
    }
}

/// A device on a PCI bus; its id is its address (`0000:00:1f.2`). Numbers are hexadecimal with the prefix `0x`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PciDevice {
    /// Name of the class.
    #[serde(skip_serializing_if = "is_default")]
    pub class: &'static str,
    /// Class, two digits.
    pub class_id: String,
    /// Subclass, two digits.
    pub subclass_id: String,
    /// Vendor, four digits.
    pub vendor_id: String,
    /// Product, four digits.
    pub product_id: String,
    /// Name of the bound driver; empty if none is bound.
    #[serde(skip_serializing_if = "is_default")]
    pub driver: String,
}

impl Spec for PciDevice {
    const DEFINITION: Definition = open(
        "PCIDevices.hardware.talos.dev",
        NAMESPACE,
        &["devices", "device"],
        &[
            column("Class", ".class"),
            column("Subclass", ".subclass"),
            column("Vendor", ".vendor"),
            column("Product", ".product"),
        ],
    );

    type Message = wire::PciDeviceSpec;

    fn message(&self) -> wire::PciDeviceSpec {
        wire::PciDeviceSpec {
            class: self.class.to_owned(),
            class_id: self.class_id.clone(),
            subclass_id: self.subclass_id.clone(),
            vendor_id: self.vendor_id.clone(),
            product_id: self.product_id.clone(),
            driver: self.driver.clone(),
        }
    }
}
