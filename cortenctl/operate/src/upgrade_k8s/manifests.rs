//! Reads the manifests of a node, and the state of what they make.

use corten_cluster::{Failed, Identity, Machine, Workload};
use serde_json::Value;

use super::component::Component;
use super::version::Version;

/// Namespace of kube-proxy.
pub(super) const NAMESPACE: &str = "kube-system";
/// Number of refused objects that an error names; the others are counted.
const NAMED: usize = 5;

/// The error that names the objects with which an operation failed, if there are any.
pub(super) fn all_done(done: &str, failed: &[Failed]) -> Result<(), String> {
    if failed.is_empty() {
        return Ok(());
    }
    let named = failed.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|one| format!("{}: {}", one.object, one.reason))
        .collect();
    Err(format!(
        "{} objects were not {done}: {}",
        failed.len(),
        named.join("; ")
    ))
}

/// Checks that a node is ready with this version of the kubelet. An image without a version in its tag skips the check
/// of the version.
pub(super) fn is_new(machine: Option<Machine>, wanted: Option<&Version>) -> Result<(), String> {
    let machine = machine.ok_or("the Kubernetes API does not list the node")?;
    match wanted {
        Some(wanted) if Version::parse(&machine.kubelet).as_ref() != Some(wanted) => {
            Err(format!("the kubelet reports version {}", machine.kubelet))
        }
        _ => machine.ready,
    }
}

/// Whether an object is the DaemonSet of kube-proxy.
pub(super) fn is_proxy(object: &Identity) -> bool {
    let proxy = ("DaemonSet", NAMESPACE, Component::Proxy.name());
    (&*object.kind, &*object.namespace, &*object.name) == proxy
}

pub(super) fn has_proxy(objects: &[Value], image: &str) -> bool {
    let name = Component::Proxy.name();
    objects.iter().any(|object| {
        object.get("kind") == Some(&Value::from("DaemonSet"))
            && object.pointer("/metadata/name") == Some(&Value::from(name))
            && object.pointer("/spec/template/spec/containers/0/image") == Some(&Value::from(image))
    })
}

pub(super) fn workloads(objects: &[Value]) -> Vec<(Workload, String, String)> {
    let text = |object: &Value, path: &str| {
        let text = object.pointer(path).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    let found = objects.iter().filter_map(|object| {
        if text(object, "/apiVersion")? != "apps/v1" {
            return None;
        }
        let workload = match text(object, "/kind")?.as_str() {
            "Deployment" => Workload::Deployment,
            "DaemonSet" => Workload::DaemonSet,
            _ => return None,
        };
        let namespace = text(object, "/metadata/namespace");
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Some((workload, namespace, text(object, "/metadata/name")?))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kubelet_is_upgraded_when_its_node_is_ready_and_reports_the_version() {
        let machine = |kubelet: &str, ready| Machine {
            name: "a".to_owned(),
            addresses: Vec::new(),
            kubelet: kubelet.to_owned(),
            ready,
        };
        let wanted = Version::parse("1.37.2").unwrap();
        assert_eq!(
            is_new(Some(machine("v1.37.2", Ok(()))), Some(&wanted)),
            Ok(())
        );
        assert_eq!(is_new(Some(machine("v1.36.4", Ok(()))), None), Ok(()));
        let old = is_new(Some(machine("v1.36.4", Ok(()))), Some(&wanted));
        assert_eq!(old.unwrap_err(), "the kubelet reports version v1.36.4");
        let not_ready = machine("v1.37.2", Err("no network".to_owned()));
        assert_eq!(
            is_new(Some(not_ready), Some(&wanted)).unwrap_err(),
            "no network"
        );
        is_new(None, Some(&wanted)).unwrap_err();
    }

    #[test]
    fn workloads_and_the_kube_proxy_image_are_found_in_manifests() {
        let object = |kind: &str, name: &str| {
            let container = json!({ "image": format!("r/{name}:v1") });
            json!({
                "apiVersion": "apps/v1", "kind": kind,
                "metadata": { "name": name, "namespace": "kube-system" },
                "spec": { "template": { "spec": { "containers": [container] } } },
            })
        };
        let objects = [
            object("DaemonSet", "kube-proxy"),
            object("Deployment", "coredns"),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" } }),
            Value::Null,
        ];
        let named = |name: &str| ("kube-system".to_owned(), name.to_owned());
        let found = workloads(&objects).into_iter();
        let found: Vec<_> = found
            .map(|(_, namespace, name)| (namespace, name))
            .collect();
        assert_eq!(found, [named("kube-proxy"), named("coredns")]);
        assert!(has_proxy(&objects, "r/kube-proxy:v1"));
        assert!(!has_proxy(&objects, "r/kube-proxy:v2"));
        assert!(!has_proxy(&objects[1..], "r/kube-proxy:v1"));
    }
}
