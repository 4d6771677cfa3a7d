use super::fake::{fake, ok, refused};
use serde_json::json;

#[tokio::test]
async fn node_readiness_follows_the_ready_condition_of_the_kubelet() {
    let (cluster, _) = fake(|_| {
        let node = |name: &str, spec: serde_json::Value, conditions: serde_json::Value| json!({ "metadata": { "name": name }, "spec": spec, "status": { "conditions": conditions } });
        ok(
            &json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": [
            node("c", json!({}), json!([])),
            node("b", json!({ "unschedulable": true }), json!([{ "type": "Ready", "status": "False", "message": "no network" }])),
            node("a", json!({}), json!([{ "type": "DiskPressure" }, { "type": "Ready", "status": "True" }])),
        ] }),
        )
    });
    let nodes = cluster.nodes().await.unwrap();
    let told = nodes.iter().map(|node| {
        let ready = node.ready.as_ref().map_err(String::as_str);
        (node.name.as_str(), ready.err(), node.is_schedulable)
    });
    let expected = [
        ("a", None, true),
        ("b", Some("no network"), false),
        (
            "c",
            Some("its kubelet has not reported its readiness yet"),
            true,
        ),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn readiness_of_one_node_is_read_without_listing_the_others() {
    let (cluster, log) = fake(|seen| match seen.path.rsplit('/').next() {
        Some("a") => ok(&json!({
            "metadata": { "name": "a" },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        })),
        Some("b") => ok(&json!({ "metadata": { "name": "b" } })),
        _ => refused(404, "not found"),
    });
    assert_eq!(cluster.node_ready("a").await.unwrap(), Ok(()));
    cluster.node_ready("b").await.unwrap().unwrap_err();
    let unknown = cluster.node_ready("c").await.unwrap();
    assert_eq!(
        unknown.unwrap_err(),
        "it is not registered with Kubernetes yet"
    );
    cluster.node_ready("../pods").await.unwrap_err();
    let lines: Vec<String> = log.lock().unwrap().iter().map(|seen| seen.line()).collect();
    let expected = ["a", "b", "c"].map(|name| format!("GET /api/v1/nodes/{name}"));
    assert_eq!(lines, expected);
}
