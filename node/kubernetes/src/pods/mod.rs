//! Static pods of a control plane node.

mod api_server;
mod controller_manager;
mod scheduler;

use corten_config::Document;
use corten_config::kinds::KubeStaticPodConfig;
use corten_manifests::{Resources, SHIM_GROUP};
use corten_values::Object;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::addons::resources;
use crate::extra::{Extra, Flags, lines, merged};
use crate::files::{CONFIG, Component, File, SECRETS};
use crate::images::version;
use crate::{ControlPlane, Settings};

/// Directory of the components' secret files on the node.
pub const HOST_SECRETS: &str = "/run/kubernetes/secrets";
/// Directory of their configuration files on the node.
pub const HOST_CONFIG: &str = "/run/kubernetes/config";
/// Directory of kube-apiserver's audit log.
pub const AUDIT_LOG: &str = "/var/log/audit/kube";

/// A pod that the kubelet runs without an API server.
#[derive(Debug, Clone, PartialEq)]
pub struct StaticPod {
    /// Name.
    pub id: &'static str,
    /// Pod object (Kubernetes, Pod v1).
    pub pod: Value,
}

impl StaticPod {
    /// Marks the version of the settings from which the pod is made. Clients that change the settings wait for it.
    pub fn set_version(&mut self, version: &str) {
        self.annotate(CONFIG_VERSION, version);
    }

    fn annotate(&mut self, name: &str, value: &str) {
        let annotations = self.pod.pointer_mut("/metadata/annotations");
        if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
            annotations.insert(name.to_owned(), value.into());
        }
    }
}

/// Limit of a label's value in bytes (Kubernetes, "Labels and Selectors").
const LABEL: usize = 63;
/// Annotation with the version of a component's settings.
const CONFIG_VERSION: &str = "talos.dev/config-version";

/// The pods of the control plane.
#[must_use]
pub fn static_pods(
    settings: &Settings,
    control_plane: &ControlPlane,
    components: &[Component],
) -> Vec<StaticPod> {
    let of = |name: &str| components.iter().find(|component| component.name == name);
    let parts = parts(settings, control_plane);
    let parts = parts.into_iter().filter(|part| !part.extra.is_disabled);
    let group = control_plane.shim_groups.as_ref();
    let group = group.map(|groups| &groups.control_plane);
    let pods = parts.filter_map(|part| {
        let component = of(part.name)?;
        let mut pod = StaticPod {
            id: part.name,
            pod: pod(&part, component),
        };
        if let Some(group) = group {
            pod.annotate(SHIM_GROUP, group);
        }
        Some(pod)
    });
    pods.collect()
}

fn parts(settings: &Settings, control_plane: &ControlPlane) -> [Part; 3] {
    [
        api_server::container(settings, control_plane),
        controller_manager::container(settings, control_plane),
        scheduler::container(control_plane),
    ]
}

/// The container of a component, without its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Name of the component.
    pub id: &'static str,
    /// Image.
    pub image: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Requests and limits.
    pub resources: Resources,
    /// Additions of the config.
    pub extra: Extra,
}

/// The containers of kube-apiserver, kube-controller-manager and kube-scheduler, in this order.
#[must_use]
pub fn programs(settings: &Settings, control_plane: &ControlPlane) -> [Program; 3] {
    parts(settings, control_plane).map(|part| Program {
        id: part.name,
        image: part.image.clone(),
        command: command(&part),
        resources: resources_of(&part),
        extra: part.extra,
    })
}

/// Name of a config's volume in a pod, by its place in the config.
#[must_use]
pub fn volume_name(number: usize) -> String {
    format!("extra-{number}")
}

/// Static pods of the config, with the id `namespace/name`.
#[must_use]
pub fn extra_pods(document: &Document) -> Vec<(String, Value)> {
    let old = document.machine.pods.iter();
    let by_kind = document.all::<KubeStaticPodConfig>();
    let by_kind = by_kind.filter_map(|config| config.pod.as_ref());
    let pods = old.chain(by_kind).map(Object::json);
    pods.map(|pod| {
        let text = |path: &str| pod.pointer(path).and_then(Value::as_str);
        let namespace = text("/metadata/namespace").unwrap_or("default");
        let name = text("/metadata/name").unwrap_or_default();
        (format!("{namespace}/{name}"), pod)
    })
    .collect()
}

/// Component-specific parts of a pod.
struct Part {
    name: &'static str,
    image: String,
    flags: Flags,
    /// Flags whose values the config extends.
    added: &'static [&'static str],
    /// Resource requests: thousandths of a processor, and MiB of memory.
    requests: (u32, u32),
    capabilities: &'static [&'static str],
    probes: Vec<(&'static str, Value)>,
    extra: Extra,
    /// Further directories of the node: name, path, and whether the component writes to it.
    directories: Vec<(&'static str, &'static str, bool)>,
}

/// Version of an image in the form of a label's value, for which Kubernetes has a limit. The kubelet refuses all static
/// pods when a label of one is invalid.
fn label(image: &str) -> &str {
    let version = version(image);
    let version = version.get(..LABEL).unwrap_or(version);
    version.trim_matches(|c: char| !c.is_ascii_alphanumeric())
}

fn command(part: &Part) -> Vec<String> {
    let mut command = vec![format!("/usr/local/bin/{}", part.name)];
    command.extend(lines(merged(
        part.flags.clone(),
        &part.extra.args,
        part.added,
    )));
    command
}

/// Requests and limits of the config, with the component's own requests where the config has none.
fn resources_of(part: &Part) -> Resources {
    let (cpu, memory) = (
        format!("{}m", part.requests.0),
        format!("{}Mi", part.requests.1),
    );
    let usual = [("cpu", cpu.as_str()), ("memory", memory.as_str())];
    let mut resources = resources(&part.extra.resources, usual);
    for (name, usual) in usual {
        let request = resources.requests.entry(name.to_owned()).or_default();
        if request.is_empty() {
            usual.clone_into(request);
        }
    }
    resources
}

fn pod(part: &Part, component: &Component) -> Value {
    let name = part.name;
    let version = label(&part.image);
    let (volumes, mounts) = volumes(part);
    let resources = resources_of(part);
    let mut container = json!({
        "name": name,
        "image": part.image,
        "command": command(part),
        "env": environment(&part.extra, &resources),
        "resources": resources.field("", ""),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"], "add": part.capabilities },
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "volumeMounts": mounts,
    });
    if let Some(fields) = container.as_object_mut() {
        for (probe, value) in &part.probes {
            fields.insert((*probe).to_owned(), value.clone());
        }
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "annotations": {
                "talos.dev/config-file-version": digest(&component.config),
                "talos.dev/secrets-version": digest(&component.secrets),
            },
            "labels": {
                "tier": "control-plane",
                "k8s-app": name,
                "component": name,
                "app.kubernetes.io/name": name,
                "app.kubernetes.io/version": version,
                "app.kubernetes.io/component": "control-plane",
                "app.kubernetes.io/managed-by": "Corten",
            },
        },
        "spec": {
            "priorityClassName": "system-cluster-critical",
            "priority": 2_000_000_000,
            "hostNetwork": true,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": component.uid,
                "runAsGroup": component.uid,
                "fsGroup": component.uid,
            },
            "containers": [container],
            "volumes": volumes,
        },
    })
}

/// Volumes of the pod, and mounts of its container.
fn volumes(part: &Part) -> (Vec<Value>, Vec<Value>) {
    let name = part.name;
    let mut volumes = vec![
        host("secrets", &format!("{HOST_SECRETS}/{name}")),
        host("config", &format!("{HOST_CONFIG}/{name}")),
        json!({ "name": "scratch", "emptyDir": { "medium": "Memory" } }),
    ];
    let mut mounts = vec![
        mount("secrets", &format!("{SECRETS}/{name}"), true),
        mount("config", &format!("{CONFIG}/{name}"), true),
        mount("scratch", "/tmp", false),
        json!({ "name": "scratch", "mountPath": "/var/run/kubernetes", "subPath": "run" }),
    ];
    for (volume, path, writes) in &part.directories {
        volumes.push(host(volume, path));
        mounts.push(mount(volume, path, !writes));
    }
    for (number, volume) in part.extra.volumes.iter().enumerate() {
        let name = volume_name(number);
        volumes.push(host(&name, &volume.host_path));
        mounts.push(mount(&name, &volume.mount_path, volume.readonly));
    }
    (volumes, mounts)
}

/// Environment variables: the component's own and the config's. A memory limit also sets GOMEMLIMIT, so that Go frees
/// memory before the kernel kills the process (Go, `runtime`, GOMEMLIMIT).
fn environment(extra: &Extra, resources: &Resources) -> Vec<Value> {
    let mut variables = vec![json!({
        "name": "POD_IP",
        "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } },
    })];
    let is_given = extra.env.iter().any(|(name, _)| name == "GOMEMLIMIT");
    variables.extend(resources.memory_limit().filter(|_| !is_given));
    // Escaped, because Kubernetes expands `$(NAME)`.
    let own = extra.env.iter();
    let own = own.map(|(name, value)| json!({ "name": name, "value": value.replace('$', "$$") }));
    variables.extend(own);
    variables
}

fn host(name: &str, path: &str) -> Value {
    json!({ "name": name, "hostPath": { "path": path } })
}

fn mount(name: &str, path: &str, read_only: bool) -> Value {
    json!({ "name": name, "mountPath": path, "readOnly": read_only })
}

/// HTTPS probes of a component. A start may take ten minutes: without hardware virtualization, kube-apiserver needs more
/// than five to create its roles.
fn probes(port: u16, live: &str, ready: Option<&str>) -> Vec<(&'static str, Value)> {
    let ask = |path: &str, failures: u32, period: u32| {
        json!({
            "httpGet": { "host": "127.0.0.1", "path": path, "port": port, "scheme": "HTTPS" },
            "failureThreshold": failures,
            "periodSeconds": period,
            "timeoutSeconds": 15,
        })
    };
    let mut probes = vec![
        ("startupProbe", ask(live, 120, 5)),
        ("livenessProbe", ask(live, 8, 10)),
    ];
    if let Some(path) = ready {
        probes.push(("readinessProbe", ask(path, 3, 5)));
    }
    probes
}

/// TCP probes of a component that refuses anonymous HTTP requests.
fn connections(port: u16) -> Vec<(&'static str, Value)> {
    let look = |failures: u32, period: u32| {
        json!({
            "tcpSocket": { "host": "127.0.0.1", "port": port },
            "failureThreshold": failures,
            "periodSeconds": period,
            "timeoutSeconds": 15,
        })
    };
    vec![
        ("startupProbe", look(120, 5)),
        ("livenessProbe", look(8, 10)),
        ("readinessProbe", look(3, 5)),
    ]
}

/// Digests of all components' secret and configuration files that are read only at the start.
#[must_use]
pub fn versions_of_files(components: &[Component]) -> (String, String) {
    let all = |files: fn(&Component) -> &[File]| {
        let digests = components.iter().map(|component| digest(files(component)));
        let whole = digests.fold(Sha256::new(), |whole, one| whole.chain_update(one));
        hex::encode(whole.finalize())
    };
    (all(|one| &one.secrets), all(|one| &one.config))
}

/// Digest of the files that are read only at the start; a change restarts the pod.
fn digest(files: &[File]) -> String {
    let mut digest = Sha256::new();
    for file in files.iter().filter(|file| file.is_read_once) {
        digest.update(file.name);
        digest.update([0]);
        digest.update(file.content.expose());
        digest.update([0]);
    }
    hex::encode(digest.finalize())
}

fn flag(name: &str, value: impl Into<String>) -> (String, String) {
    (name.to_owned(), value.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_of_the_version_is_the_version_in_the_tag_of_any_image() {
        let digest = format!("@sha256:{}", "a".repeat(64));
        let long = "1".repeat(128);
        for (image, expected) in [
            ("example.org/kube-apiserver:v1.37.2", "1.37.2"),
            (&format!("example.org/a:v1.37.2{digest}"), "1.37.2"),
            ("example.org/a:vendor", "vendor"),
            (&format!("example.org:5000/a{digest}"), ""),
            ("example.org:5000/a", ""),
            ("a:_v1.", "v1"),
            (&format!("a:{long}"), &long[..LABEL]),
            ("", ""),
        ] {
            assert_eq!(label(image), expected, "{image}");
        }
    }
}
