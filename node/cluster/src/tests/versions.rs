use serde_json::{Value, json};

use super::fake::{fake, ok, refused};
use crate::{Requested, StaticPod};

#[tokio::test]
async fn nodes_are_listed_with_addresses_and_kubelet_version() {
    let node =
        |name: &str, status: Value| json!({ "metadata": { "name": name }, "status": status });
    let (cluster, _) = fake(move |_| {
        let status = json!({
            "addresses": [
                { "type": "Hostname", "address": "b" },
                { "type": "InternalIP", "address": "10.0.0.2" },
                { "type": "InternalIP", "address": "no address" },
                { "type": "InternalIP", "address": "fd00::2" },
            ],
            "nodeInfo": { "kubeletVersion": "v1.36.2" },
            "conditions": [{ "type": "Ready", "status": "True" }],
        });
        ok(
            &json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [
            node("b", status), node("a", json!({})),
        ] }),
        )
    });
    let machines = cluster.machines().await.unwrap();
    let [a, b] = machines.as_slice() else {
        panic!("{machines:?}");
    };
    assert!(a.addresses.is_empty() && a.kubelet.is_empty() && a.ready.is_err());
    b.ready.as_ref().unwrap();
    let addresses: Vec<String> = b.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.0.0.2", "fd00::2"]);
    assert_eq!(b.kubelet, "v1.36.2");
}

#[tokio::test]
async fn static_pod_is_ready_when_it_reports_so_and_is_not_terminating() {
    let pod = |deleted: Value, status: Value| {
        json!({
            "metadata": {
                "name": "x",
                "deletionTimestamp": deleted,
                "annotations": { "talos.dev/secrets-version": "0123" },
            },
            "spec": { "containers": [{ "image": "r/kube-apiserver:v1.36.2" }] },
            "status": status,
        })
    };
    let ready = json!({ "conditions": [{ "type": "Ready", "status": "True" }] });
    let waits = json!({
        "conditions": [{ "type": "Ready", "status": "False" }],
        "containerStatuses": [{ "state": { "waiting": { "reason": "ErrImagePull", "message": "not found" } } }],
    });
    let (cluster, log) = fake(move |seen| match seen.path.rsplit('/').next() {
        Some("kube-apiserver-up") => ok(&pod(Value::Null, ready.clone())),
        Some("kube-apiserver-ends") => ok(&pod(json!("2026-01-01T00:00:00Z"), ready.clone())),
        Some("kube-apiserver-waits") => ok(&pod(Value::Null, waits.clone())),
        _ => refused(404, "not found"),
    });
    for (node, ready) in [
        ("up", Ok(())),
        ("ends", Err("its pod is terminating".to_owned())),
        (
            "waits",
            Err("its pod is not ready: ErrImagePull: not found".to_owned()),
        ),
    ] {
        let found = cluster.static_pod("kube-apiserver", node).await.unwrap();
        let expected = StaticPod {
            image: "r/kube-apiserver:v1.36.2".to_owned(),
            secrets: "0123".to_owned(),
            ready,
        };
        assert_eq!(found, Some(expected), "{node}");
    }
    assert_eq!(cluster.static_pod("kube-apiserver", "none").await, Ok(None));
    let line = log.lock().unwrap()[0].line();
    assert_eq!(
        line,
        "GET /api/v1/namespaces/kube-system/pods/kube-apiserver-up"
    );
    cluster
        .static_pod("kube-apiserver", "../x")
        .await
        .unwrap_err();
}

#[tokio::test]
async fn deprecated_apis_in_use_are_read_from_the_metrics() {
    let metric = "apiserver_requested_deprecated_apis";
    let text = format!(
        "# HELP {metric} [STABLE] Gauge\n# TYPE {metric} gauge\n\
         {metric}{{group=\"policy\",removed_release=\"1.37\",resource=\"budgets\",subresource=\"\",version=\"v1beta1\"}} 1\n\
         {metric}{{group=\"policy\",removed_release=\"1.37\",resource=\"budgets\",subresource=\"status\",version=\"v1beta1\"}} 1\n\
         {metric}{{group=\"\",removed_release=\"\",resource=\"componentstatuses\",subresource=\"\",version=\"v1\"}} 1\n\
         {metric}{{group=\"a\",removed_release=\"1.38\",resource=\"b\",subresource=\"\",version=\"v1\"}} 0\n\
         another{{group=\"a\",removed_release=\"1.37\"}} 1\n{metric}{{\n{metric}{{removed_release=\"1\n{metric}{{removed_release=\"x.y\"}} 1\n"
    );
    let (cluster, _) = fake(move |_| (200, text.clone()));
    let expected = Requested {
        api: "policy/v1beta1".to_owned(),
        resource: "budgets".to_owned(),
        removed: (1, 37),
    };
    assert_eq!(cluster.requested_old_apis().await, Ok(vec![expected]));
}
