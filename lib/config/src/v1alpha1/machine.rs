//! `machine`, and its smaller sections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use corten_values::{
    AbsolutePath, AcceptedCa, ExtensionImage, FileMode, KeyPair, MatchSize, ModuleName,
    ModuleParameter, Object, Secret, TimeSource, Url, is_file_name, is_kernel_setting,
};
use corten_yaml::read::Reader;
use corten_yaml::table::Support;
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};

use super::names::{check_variables, names_are};
use super::{
    Features, InterfaceNetwork, Kubelet, LegacyRegistries, MachineDisk, SystemDiskEncryption,
    check_annotations, check_labels, check_map, check_taints,
};
use crate::cri::rules::{PART_FILE, check_overrides, check_part};
use crate::hardened;

choices! {
    /// Role of a node in its cluster.
    pub enum MachineType {
        ControlPlane = "controlplane",
        Worker = "worker",
        Init = "init",
    }
}

impl MachineType {
    /// Whether the node runs the control plane. `init` is an old name for its first node.
    #[must_use]
    pub fn is_control_plane(self) -> bool {
        self != MachineType::Worker
    }
}

section! {
    /// `machine`.
    pub struct Machine [check] {
        Acted "type" kind: MachineType = "Role of the node in its cluster", required;
        Acted "token" token: Secret = "Token with which a joining node authenticates to trustd";
        Acted "ca" ca: Option<KeyPair> = "CA of the API; with its key on control plane nodes";
        Acted "acceptedCAs" accepted_cas: Vec<AcceptedCa> = "Additional CAs of accepted clients";
        Acted "certSANs" cert_sans: Vec<String> = "Additional names in the certificate of the API";
        Acted "controlPlane" control_plane: MachineControlPlane = "Components of the control plane to leave out";
        Acted "kubelet" kubelet: Kubelet = "Settings of the kubelet";
        Acted "pods" pods: Vec<Object> = "Static pods";
        Acted "network" network: InterfaceNetwork = "Names, links and resolvers of the node";
        Later "disks" disks: Vec<MachineDisk> = "Disks to partition and mount";
        Acted "install" install: Install = "System extensions, and the disk to install to";
        Acted "files" files: Vec<MachineFile> = "Files to write at boot, below `/var`; and `/etc/cri/conf.d/20-customization.part`, a part of containerd's configuration";
        Acted "env" env: BTreeMap<String, String> = "Environment variables of containerd, the kubelet and extensions' services", secret;
        Acted "time" time: Time = "Time servers";
        Acted "sysctls" sysctls: BTreeMap<String, String> = "Kernel parameters, which override the node's own";
        Acted "sysfs" sysfs: BTreeMap<String, String> = "Values under `/sys`";
        Acted "registries" registries: LegacyRegistries = "Mirrors and credentials of image registries";
        Acted "systemDiskEncryption" system_disk_encryption: SystemDiskEncryption = "Encryption of the node's own volumes";
        Acted "features" features: Features = "Optional features of the node";
        Acted "udev" udev: Udev = "Device rules";
        Acted "logging" logging: Logging = "Destinations of logs";
        Acted "kernel" kernel: Kernel = "Kernel modules";
        Acted "seccompProfiles" seccomp_profiles: Vec<SeccompProfile> = "Seccomp profiles for pods", by(&["name"]);
        Acted "baseRuntimeSpecOverrides" base_runtime_spec_overrides: Option<Object> = "Overrides of the base specification of pods' containers";
        Acted "nodeLabels" node_labels: BTreeMap<String, String> = "Labels of the Kubernetes node";
        Acted "nodeAnnotations" node_annotations: BTreeMap<String, String> = "Annotations of the Kubernetes node";
        Acted "nodeTaints" node_taints: BTreeMap<String, String> = "Taints of the Kubernetes node";
    }
}

fn check(machine: &Machine, node: &Node, reader: &mut Reader<'_>) {
    let known = |text| matches!(text, "controlplane" | "init" | "worker");
    let kind = node.get("type").and_then(Node::text).is_some_and(known);
    let has = |part: fn(&KeyPair) -> bool| machine.ca.as_ref().is_some_and(part);
    if kind && machine.kind.is_control_plane() {
        if !has(|ca| !ca.crt.is_empty() && !ca.key.is_empty()) && well_formed(node) {
            reader.wrong_in(node, "ca", "must have crt and key on a control plane node");
        }
    } else if kind && has(|ca| !ca.key.is_empty()) {
        reader.wrong_in(node, "ca", "must not have a key on a worker");
    } else if kind
        && !has(|ca| !ca.crt.is_empty())
        && machine.accepted_cas.is_empty()
        && well_formed(node)
    {
        reader.wrong_in(node, "ca", "must have crt on a worker without acceptedCAs");
    }
    for (field, good) in [
        ("sysctls", is_kernel_setting as fn(&str) -> bool),
        ("sysfs", is_kernel_setting),
    ] {
        names_are(node, field, good, reader);
    }
    check_variables(node, "env", reader);
    hardened::check(node, "sysctls", reader);
    check_labels(node, "nodeLabels", reader);
    check_annotations(node, "nodeAnnotations", reader);
    check_taints(node, "nodeTaints", reader);
    check_overrides(node, "baseRuntimeSpecOverrides", reader);
    check_files(node, reader);
    check_profiles(node, reader);
}

/// Reports two seccomp profiles with one name, which is that of their file.
fn check_profiles(node: &Node, reader: &mut Reader<'_>) {
    let profiles = node.get("seccompProfiles").map(Node::items);
    let names = profiles.unwrap_or_default().iter();
    let mut seen = BTreeSet::new();
    reader.within("seccompProfiles", |reader| {
        for name in names.filter_map(|profile| profile.get("name")) {
            if !seen.insert(name.text()) {
                let what = "must have one profile of each name: rename this one";
                reader.wrong(name.mark, what);
            }
        }
    });
}

/// Reports a duplicate containerd part: only one of them would count.
fn check_files(node: &Node, reader: &mut Reader<'_>) {
    let files = node.get("files").map(Node::items).unwrap_or_default();
    let paths = files.iter().filter_map(|file| file.get("path"));
    let mut parts = paths.filter(|path| path.text() == Some(PART_FILE));
    let _ = parts.next();
    reader.within("files", |reader| {
        for path in parts {
            let what = format!("has {PART_FILE} twice; merge the two entries");
            reader.wrong(path.mark, &what);
        }
    });
}

/// Whether `machine.ca` has no problem yet, so that it is reported only once.
fn well_formed(node: &Node) -> bool {
    node.get("ca")
        .is_none_or(|ca| ca.get("crt").is_none() || ca.get("key").is_none())
}

section! {
    /// `machine.controlPlane`.
    pub struct MachineControlPlane {
        Acted "controllerManager" controller_manager: Disabled = "Settings of kube-controller-manager on this node";
        Acted "scheduler" scheduler: Disabled = "Settings of kube-scheduler on this node";
    }
}

section! {
    /// A component that can be disabled.
    pub struct Disabled {
        Acted "disabled" disabled: bool = "Whether the component is left out";
    }
}

section! {
    /// `machine.install`.
    pub struct Install [check_install] {
        Acted "disk" disk: Option<AbsolutePath> = "Device of the disk";
        Acted "diskSelector" disk_selector: Option<DiskSelector> = "Selector of the disk, in place of its device; the first of several matches";
        Later "extraKernelArgs" extra_kernel_args: Vec<String> = "Kernel parameters of the installed system",
            remedy(" (the command line is a part of the signed image: build it with `mkimage build --kernel-argument`)");
        Acted "image" image: Option<String> = "Installer image; absent: the medium that the machine was started from";
        Acted "extensions" extensions: Vec<InstallExtension> = "System extensions, loaded while the node runs; later ones override earlier ones";
        Held "bootloader" bootloader: Option<bool> = "Whether a boot loader is installed";
        Acted "wipe" wipe: bool = "Whether a disk that holds data may be overwritten";
        Acted "legacyBIOSSupport" legacy_bios_support: bool = "Whether the MBR marks its partition as active: some BIOS firmware starts no other disk";
        Held "grubUseUKICmdline" grub_use_uki_cmdline: Option<bool> = "Whether the kernel parameters come from the boot image";
    }
}

fn check_install(install: &Install, node: &Node, reader: &mut Reader<'_>) {
    if !install.extra_kernel_args.is_empty() && install.grub_use_uki_cmdline == Some(true) {
        reader.wrong_in(node, "extraKernelArgs", "excludes grubUseUKICmdline");
    }
}

section! {
    /// `machine.install.diskSelector`.
    pub struct DiskSelector {
        Acted "size" size: Option<MatchSize> = "Condition on the size, such as `>= 100GB`";
        Later "name" name: Option<String> = "Pattern of the device's name";
        Acted "model" model: Option<String> = "Pattern of the model";
        Acted "serial" serial: Option<String> = "Pattern of the serial number";
        Acted "modalias" modalias: Option<String> = "Pattern of the modalias";
        Later "uuid" uuid: Option<String> = "Pattern of the UUID";
        Acted "wwid" wwid: Option<String> = "Pattern of the world-wide id";
        Acted "type" kind: Option<DiskType> = "Storage type of the disk";
        Acted "busPath" bus_path: Option<String> = "Pattern of the bus path";
    }
}

choices! {
    /// Storage type of a disk.
    pub enum DiskType { Ssd = "ssd", Hdd = "hdd", Nvme = "nvme", Sd = "sd", }
}

section! {
    /// A system extension.
    pub struct InstallExtension {
        Acted "image" image: ExtensionImage = "Image of the extension: in a registry, or an archive on the volume with this label", required;
    }
}

section! {
    /// A file to write.
    pub struct MachineFile [check_file] {
        Acted "content" content: Secret = "Content";
        Acted "permissions" permissions: Option<FileMode> = "Permissions; absent: 0o600";
        Acted "path" path: AbsolutePath = "Path of the file", required;
        Acted "op" op: FileOperation = "Operation: create or replace the file (`create`), append once to an existing file (`append`), replace an existing file (`overwrite`)";
    }
}

fn check_file(file: &MachineFile, node: &Node, reader: &mut Reader<'_>) {
    if &*file.path == PART_FILE {
        return check_part(node, reader);
    }
    let below = file.path.strip_prefix("/var/");
    let is_below = below.is_some_and(|path| path.split('/').any(|step| !matches!(step, "" | ".")));
    // The reference also mounts appended or overwritten files outside of /var over the files of the image. This is
    // known, and not supported here.
    let is_known = file.op != FileOperation::Create && reader.reads(Support::Later);
    if !file.path.is_empty() && !is_below && !is_known {
        reader.wrong_in(
            node,
            "path",
            "must be below /var; all else is part of the image",
        );
    }
}

choices! {
    /// Operation on a file.
    pub enum FileOperation { Create = "create", Append = "append", Overwrite = "overwrite", }
}

section! {
    /// `machine.time`.
    pub struct Time {
        Acted "disabled" disabled: bool = "Whether time synchronisation is disabled";
        Acted "servers" servers: Vec<TimeSource> = "Time servers, or PTP devices; all are queried, and more than half of those that answer must agree";
        Acted "bootTimeout" boot_timeout: Option<Duration> = "Timeout of the boot's wait for the clock; 0: no timeout";
    }
}

section! {
    /// `machine.udev`.
    pub struct Udev {
        Acted "rules" rules: Vec<String> = "Lines of a udev rule file";
    }
}

section! {
    /// `machine.logging`.
    pub struct Logging {
        Acted "destinations" destinations: Vec<LogDestination> = "Destinations of services' logs";
    }
}

section! {
    /// A receiver of logs.
    pub struct LogDestination [check_log_destination] {
        Acted "endpoint" endpoint: Url = "URL of the receiver: `tcp://host:port` or `udp://host:port`", required;
        Acted "format" format: LogFormat = "Format of the messages";
        Acted "extraTags" extra_tags: BTreeMap<String, String> = "Fields added to each message";
    }
}

fn check_log_destination(_: &LogDestination, node: &Node, reader: &mut Reader<'_>) {
    corten_values::check_receiver(node, "endpoint", reader);
}

choices! {
    /// The form of forwarded logs.
    pub enum LogFormat { JsonLines = "json_lines", }
}

section! {
    /// `machine.kernel`.
    pub struct Kernel {
        Acted "modules" modules: Vec<LegacyModule> = "Modules to load";
    }
}

section! {
    /// A kernel module.
    pub struct LegacyModule {
        Acted "name" name: ModuleName = "Name", required;
        Acted "parameters" parameters: Vec<ModuleParameter> = "Parameters, such as `option=1`";
    }
}

section! {
    /// A seccomp profile for pods.
    pub struct SeccompProfile [check_profile] {
        Acted "name" name: String = "Name of its file in `/var/lib/kubelet/seccomp/profiles`", required;
        Acted "value" value: Option<Object> = "Fields of the profile", required;
    }
}

fn check_profile(profile: &SeccompProfile, node: &Node, reader: &mut Reader<'_>) {
    if node.given("name") && !is_file_name(&profile.name) {
        let what =
            "must be the name of a file: letters, digits, `_`, `-` and `.`, which is not first";
        reader.wrong_in(node, "name", what);
    }
    check_map(node, "value", "a seccomp profile's", reader);
}
