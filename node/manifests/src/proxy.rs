//! kube-proxy, which implements services.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::access::{account_has_role, service_account};
use crate::object::{ARCHITECTURES, container_variable, daemon_tolerations, only_on, yaml};
use crate::{NAMESPACE, Proxy};

const NAME: &str = "kube-proxy";
/// Length of the digest in the configuration's name, in characters.
const DIGEST: usize = 16;

pub(crate) fn objects(proxy: &Proxy) -> Vec<Value> {
    let config = proxy.config.as_ref().map(config_map);
    let config_name = config.as_ref().and_then(|map| {
        let name = map.pointer("/metadata/name")?;
        name.as_str().map(str::to_owned)
    });
    let mut objects: Vec<Value> = config.into_iter().collect();
    objects.push(daemon_set(proxy, config_name.as_deref()));
    objects.push(service_account(NAME));
    objects.push(account_has_role(NAME, "system:node-proxier", NAME));
    objects
}

fn labels() -> Value {
    json!({ "k8s-app": NAME, "tier": "node" })
}

/// The configuration, named by a digest of its contents: a change creates new pods, and each pod keeps the
/// configuration it was started with.
fn config_map(config: &Value) -> Value {
    let text = yaml(config);
    let mut digest = hex::encode(Sha256::digest(text.as_bytes()));
    digest.truncate(DIGEST);
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("kube-proxy-config-{digest}"),
            "namespace": NAMESPACE,
            "labels": labels(),
        },
        "data": { "config.conf": text },
    })
}

fn daemon_set(proxy: &Proxy, config: Option<&str>) -> Value {
    let mut command = vec!["/usr/local/bin/kube-proxy".to_owned()];
    command.extend(proxy.args.iter().cloned());
    let mut env = vec![
        container_variable("NODE_NAME", "spec.nodeName"),
        container_variable("POD_IP", "status.podIP"),
    ];
    env.extend(proxy.resources.memory_limit());
    let mut mounts = vec![
        json!({ "name": "lib-modules", "mountPath": "/lib/modules", "readOnly": true }),
        json!({ "name": "ssl-certs-host", "mountPath": "/etc/ssl/certs", "readOnly": true }),
        json!({ "name": "kubeconfig", "mountPath": "/etc/kubernetes", "readOnly": true }),
    ];
    let mut volumes = vec![
        json!({ "name": "lib-modules", "hostPath": { "path": "/usr/lib/modules" } }),
        json!({ "name": "ssl-certs-host", "hostPath": { "path": "/etc/ssl/certs" } }),
        json!({ "name": "kubeconfig", "configMap": { "name": "kubeconfig-in-cluster" } }),
    ];
    if let Some(name) = config {
        let mount =
            json!({ "name": "config", "mountPath": "/var/lib/kube-proxy", "readOnly": true });
        mounts.push(mount);
        volumes.push(json!({ "name": "config", "configMap": { "name": name } }));
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": NAME, "namespace": NAMESPACE, "labels": labels() },
        "spec": {
            "selector": { "matchLabels": labels() },
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxUnavailable": 1 },
            },
            "template": {
                "metadata": { "labels": labels() },
                "spec": {
                    "affinity": only_on(ARCHITECTURES),
                    "hostNetwork": true,
                    "priorityClassName": "system-cluster-critical",
                    "serviceAccountName": NAME,
                    "tolerations": daemon_tolerations(),
                    "containers": [{
                        "name": NAME,
                        "image": proxy.image,
                        "command": command,
                        "env": env,
                        "resources": proxy.resources.field("100m", "50Mi"),
                        "securityContext": { "privileged": true },
                        "volumeMounts": mounts,
                    }],
                    "volumes": volumes,
                },
            },
        },
    })
}
