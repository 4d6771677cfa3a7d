//! Access of pods to the API, in both forms.

use super::{bare, doc, document, problems};

const CLUSTER: &str = "cluster: {controlPlane: {endpoint: 'https://192.0.2.1:6443'}}\n";
const ACCESS: &str =
    "{enabled: true, allowedRoles: [os:reader], allowedKubernetesNamespaces: [kube-system]}";

fn old(kind: &str, access: &str) -> String {
    let plain = bare(kind);
    let features = format!("    features: {{kubernetesTalosAPIAccess: {access}}}\n");
    format!("{plain}{features}{CLUSTER}")
}

fn new(fields: &str) -> String {
    let more = doc("KubeTalosAPIAccessConfig", fields);
    format!("{}{CLUSTER}{more}", bare("controlplane"))
}

#[test]
fn access_of_pods_is_read_from_both_forms() {
    let fields = "allowedRoles: [os:reader]\nallowedKubernetesNamespaces: [kube-system]";
    for text in [old("controlplane", ACCESS), new(fields)] {
        let document = document(&text);
        let access = document.pod_access().unwrap();
        assert_eq!(access.roles, ["os:reader"]);
        assert_eq!(access.namespaces, ["kube-system"]);
    }
    let off = document(&old("controlplane", &ACCESS.replace("true", "false")));
    assert_eq!(off.pod_access(), None);
    let without = document(&format!("{}{CLUSTER}", bare("controlplane")));
    assert_eq!(without.pod_access(), None);
    // The document alone turns the access on, for nobody.
    let nobody = document(&new(""));
    assert_eq!(
        nobody.pod_access().map(|access| access.roles.len()),
        Some(0)
    );
}

#[test]
fn unknown_roles_and_invalid_namespaces_are_refused_with_their_position() {
    for (from, to, why) in [
        (
            "os:reader",
            "os:reader, os:root",
            "allowedRoles[1] must be one of os:admin",
        ),
        (
            "os:reader",
            "os:impersonator",
            "allowedRoles[0] must be one of os:admin",
        ),
        (
            "kube-system",
            "'*'",
            "allowedKubernetesNamespaces[0] must be the name",
        ),
        (
            "kube-system",
            "a, Kube",
            "allowedKubernetesNamespaces[1] must be the name",
        ),
        (
            "kube-system",
            "a-",
            "allowedKubernetesNamespaces[0] must be the name",
        ),
    ] {
        let fields = "allowedRoles: [os:reader]\nallowedKubernetesNamespaces: [kube-system]";
        for text in [old("controlplane", ACCESS), new(fields)] {
            let found = problems(&text.replace(from, to));
            assert!(
                found.len() == 1 && found[0].contains(why),
                "{why}: {found:?}"
            );
        }
    }
}

#[test]
fn worker_cannot_give_pods_access() {
    let why = "machine.features.kubernetesTalosAPIAccess must not be enabled on a worker";
    let found = problems(&old("worker", ACCESS));
    assert!(found.len() == 1 && found[0].ends_with(why), "{found:?}");
    let off = ACCESS.replace("true", "false");
    assert_eq!(problems(&old("worker", &off)), [""; 0]);
}
