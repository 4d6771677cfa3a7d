use serde_json::json;

use super::fake::{fake, lines, ok, refused};
use crate::Workload;

#[tokio::test]
async fn published_cas_are_those_of_the_namespace() {
    let (cluster, log) = fake(|seen| match seen.path.as_str() {
        "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt" => ok(&json!({
            "metadata": { "name": "kube-root-ca.crt" },
            "data": { "ca.crt": "one\ntwo\n" },
        })),
        "/api/v1/namespaces/empty/configmaps/kube-root-ca.crt" => {
            ok(&json!({ "metadata": { "name": "kube-root-ca.crt" }, "data": { "ca.crt": 1 } }))
        }
        _ => refused(404, "not found"),
    });
    let found = cluster.published_cas("kube-system").await;
    assert_eq!(found, Ok(Some("one\ntwo\n".to_owned())));
    for namespace in ["empty", "none"] {
        assert_eq!(cluster.published_cas(namespace).await, Ok(None));
    }
    cluster.published_cas("../x").await.unwrap_err();
    assert_eq!(lines(&log).len(), 3);
}

#[tokio::test]
async fn restart_changes_only_an_annotation_of_the_pods() {
    let (cluster, log) = fake(|seen| match seen.path.rsplit('/').next() {
        Some("kube-proxy" | "coredns") => ok(&json!({ "metadata": { "name": "x" } })),
        Some("broken") => refused(403, "not allowed"),
        _ => refused(404, "not found"),
    });
    let restart = |workload, name| cluster.restart(workload, "kube-system", name, "now");
    assert_eq!(restart(Workload::DaemonSet, "kube-proxy").await, Ok(true));
    assert_eq!(restart(Workload::Deployment, "coredns").await, Ok(true));
    assert_eq!(restart(Workload::DaemonSet, "none").await, Ok(false));
    restart(Workload::DaemonSet, "broken").await.unwrap_err();
    restart(Workload::DaemonSet, "../x").await.unwrap_err();
    let seen = log.lock().unwrap();
    assert_eq!(
        seen[0].line(),
        "PATCH /apis/apps/v1/namespaces/kube-system/daemonsets/kube-proxy"
    );
    let annotations = json!({ "kubectl.kubernetes.io/restartedAt": "now" });
    let template = json!({ "metadata": { "annotations": annotations } });
    assert_eq!(seen[0].body, json!({ "spec": { "template": template } }));
}
