use serde_json::{Value, json};

use super::fake::{discovery, fake, lines, ok, refused};

const INVENTORY: &str =
    "/api/v1/namespaces/kube-system/configmaps/talos-bootstrap-manifests-inventory";
const MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";

/// An object of the manifests, as the server has it.
fn made_by(manager: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "c", "uid": "u-1", "annotations": annotations,
            "managedFields": [{ "manager": manager, "operation": "Apply" }],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn obsolete_objects_of_the_manifests_are_deleted_and_leave_the_inventory() {
    let entries = [
        "kube-system_empty__ConfigMap",
        "kube-system_old__ConfigMap",
        "kube-system_gone__ConfigMap",
        "kube-system_pinned__ConfigMap",
        "kube-system_foreign__ConfigMap",
        "kube-system_refused__ConfigMap",
        "kube-system_wanted__ConfigMap",
        "kube-system_unserved_example.org_Gadget",
        "_old__Namespace",
    ];
    // The group is gone with its only kind.
    let is_unserved = |path: &str| path.starts_with("/apis/example.org");
    let data: Value = entries
        .map(|entry| (entry.to_owned(), json!("v1")))
        .into_iter()
        .collect();
    let (cluster, log) = fake(move |seen| {
        if is_unserved(&seen.path) {
            return refused(404, "not found");
        }
        if let Some(resources) = discovery(&seen.path) {
            return ok(&resources);
        }
        let name = seen.path.rsplit('/').next().unwrap();
        match (seen.method.as_str(), name) {
            (_, "gone") => refused(404, "not found"),
            ("GET", "pinned") => {
                let keep = json!({ "client.lifecycle.config.k8s.io/deletion": "detach" });
                ok(&made_by("talos", &keep))
            }
            ("GET", "empty") => ok(&json!({ "metadata": { "name": "c", "uid": "u-1" } })),
            ("GET", "foreign") => ok(&made_by("helm", &json!({}))),
            ("DELETE", "refused") => refused(403, "not you"),
            ("GET", _) if seen.path == INVENTORY => {
                ok(&json!({ "metadata": { "name": "i" }, "data": data }))
            }
            ("PATCH", _) => ok(&json!({ "metadata": { "name": "i" } })),
            _ => ok(&made_by("talos", &json!({}))),
        }
    });
    let wanted = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "wanted", "namespace": "kube-system" },
    });
    let pruned = cluster.prune(&[wanted, json!({})]).await.unwrap();
    let names = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(" ");
    let deleted = names(&mut pruned.deleted.iter().map(|one| one.name.clone()));
    assert_eq!(deleted, "empty old");
    let kept = names(&mut pruned.kept.iter().map(|one| one.object.name.clone()));
    assert_eq!(kept, "old foreign pinned");
    let failed = names(&mut pruned.failed.iter().map(|one| one.object.name.clone()));
    assert_eq!(failed, "refused");

    let lines = lines(&log);
    let deletions = lines.iter().filter(|line| line.starts_with("DELETE"));
    let expected = [
        format!("DELETE {MAPS}/empty"),
        format!("DELETE {MAPS}/old"),
        format!("DELETE {MAPS}/refused"),
    ];
    assert!(deletions.eq(&expected), "{lines:?}");
    let log = log.lock().unwrap();
    let body = |method: &str| {
        let mut seen = log.iter().filter(|seen| seen.method == method);
        seen.next().unwrap().body.clone()
    };
    assert_eq!(body("DELETE")["preconditions"], json!({ "uid": "u-1" }));
    // What could not be deleted stays listed.
    let left = json!({
        "_old__Namespace": null,
        "kube-system_empty__ConfigMap": null,
        "kube-system_foreign__ConfigMap": null,
        "kube-system_gone__ConfigMap": null,
        "kube-system_old__ConfigMap": null,
        "kube-system_pinned__ConfigMap": null,
        "kube-system_unserved_example.org_Gadget": null,
    });
    assert_eq!(body("PATCH")["data"], left);
}
