//! The node at run time: logs, events, kernel, certificates, services.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_values::{
    AbsolutePath, Assignment, Endpoint, Expression, FileMode, ModuleName, ModuleParameter,
    PemCertificates, Secret, Url, is_kernel_setting,
};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::hardened;
use crate::v1alpha1::names::{check_variables, names_are};

section! {
    /// A receiver of kernel messages.
    pub struct KmsgLogConfig [check_kmsg] {
        Acted "name" name: String = "Name of the receiver", required;
        Acted "url" url: Url = "URL of the receiver: `tcp://host:port` or `udp://host:port`", required;
    }
}

fn check_kmsg(_: &KmsgLogConfig, node: &Node, reader: &mut Reader<'_>) {
    corten_values::check_receiver(node, "url", reader);
}

section! {
    /// A receiver of the node's events: gRPC without TLS, service `events.EventSinkService`.
    pub struct EventSinkConfig {
        Acted "endpoint" endpoint: Endpoint = "Host and port", required;
    }
}

section! {
    /// The hardware watchdog.
    pub struct WatchdogTimerConfig [check_watchdog] {
        Acted "device" device: AbsolutePath = "Device of the watchdog, such as `/dev/watchdog0`", required;
        Acted "timeout" timeout: Option<Duration> = "Timeout without a sign of life, after which the machine resets; 10 s or more";
    }
}

fn check_watchdog(config: &WatchdogTimerConfig, node: &Node, reader: &mut Reader<'_>) {
    if config
        .timeout
        .is_some_and(|timeout| timeout < Duration::from_secs(10))
    {
        reader.wrong_in(node, "timeout", "must be 10s or more");
    }
}

section! {
    /// Further CAs that every program of the node trusts.
    pub struct TrustedRootsConfig {
        Acted "name" name: String = "Name of the set", required;
        Acted "certificates" certificates: PemCertificates = "Certificates of the CAs", required;
    }
}

section! {
    /// Environment variables of containerd, the kubelet and extensions' services, such as those of a proxy.
    pub struct EnvironmentConfig [check_environment] {
        Acted "variables" variables: BTreeMap<String, String> = "Environment variables", secret;
    }
}

fn check_environment(_: &EnvironmentConfig, node: &Node, reader: &mut Reader<'_>) {
    check_variables(node, "variables", reader);
}

section! {
    /// Files and variables of an extension's service.
    pub struct ExtensionServiceConfig {
        Acted "name" name: String = "Name of the service", required;
        Acted "configFiles" config_files: Vec<ExtensionFile> = "Files mounted into the service's container", by(&["mountPath"]);
        Acted "environment" environment: Vec<Assignment> = "Environment variables", secret;
    }
}

section! {
    /// A file for an extension's service.
    pub struct ExtensionFile {
        Acted "content" content: Secret = "Content";
        Acted "mountPath" mount_path: AbsolutePath = "Path of the file", required;
    }
}

section! {
    /// A file in `/etc`.
    pub struct EtcFileConfig [check_etc_file] {
        Acted "name" name: String = "Path below `/etc`", required;
        Acted "mode" mode: Option<FileMode> = "Permissions";
        Acted "contents" contents: Secret = "Content";
    }
}

fn check_etc_file(file: &EtcFileConfig, node: &Node, reader: &mut Reader<'_>) {
    let bad = |part: &str| matches!(part, "" | "." | "..");
    if !file.name.is_empty() && (file.name.split('/').any(bad) || file.name.contains('\0')) {
        reader.wrong_in(node, "name", "must be a path below /etc");
    }
}

section! {
    /// A kernel module to load.
    pub struct KernelModuleConfig {
        Acted "name" name: ModuleName = "Name of the module", required;
        Acted "parameters" parameters: Vec<ModuleParameter> = "Parameters, such as `option=1`";
    }
}

section! {
    /// Kernel parameters.
    pub struct SysctlConfig [check_params] {
        Acted "params" params: BTreeMap<String, String> = "Values by name", required;
    }
}

fn check_params(_: &SysctlConfig, node: &Node, reader: &mut Reader<'_>) {
    names_are(node, "params", is_kernel_setting, reader);
    hardened::check(node, "params", reader);
}

section! {
    /// Values under `/sys`.
    pub struct SysfsConfig [check_sysfs] {
        Acted "params" params: BTreeMap<String, String> = "Values by name", required;
    }
}

fn check_sysfs(_: &SysfsConfig, node: &Node, reader: &mut Reader<'_>) {
    names_are(node, "params", is_kernel_setting, reader);
}

section! {
    /// Device rules.
    pub struct UdevRulesConfig {
        Acted "rules" rules: Vec<String> = "Lines of a udev rule file", required;
    }
}

section! {
    /// The reaction to memory pressure.
    pub struct OOMConfig {
        Acted "triggerExpression" trigger_expression: Option<Expression> = "Expression for the condition under which a process is killed";
        Acted "cgroupRankingExpression" cgroup_ranking_expression: Option<Expression> = "Expression for the order in which cgroups are killed";
        Acted "strictCgroupClassOrdering" strict_cgroup_class_ordering: Option<bool> = "Whether a cgroup of a better class is never killed before one of a worse class";
        Acted "sampleInterval" sample_interval: Option<Duration> = "Interval of samples";
    }
}

section! {
    /// The isolation of programs on the node.
    pub struct SecurityProfileConfig {
        Acted "workloadIsolation" workload_isolation: bool = "Whether workloads are kept out of the host's namespaces";
    }
}

section! {
    /// The interval at which filesystems discard unused blocks.
    pub struct FilesystemTrimConfig {
        Acted "interval" interval: Duration = "Interval, such as 168h; 0s: never", required;
    }
}

section! {
    /// The interval at which mounted filesystems are checked.
    pub struct FilesystemScrubConfig {
        Acted "interval" interval: Duration = "Interval", required;
    }
}
