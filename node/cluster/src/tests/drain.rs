use std::time::Duration;

use super::fake::{fake, lines, ok, refused};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/pods";

fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({ "metadata": { "namespace": "default", "name": name, "uid": name } });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    pod
}

fn list(pods: &[Value], more: &str) -> Value {
    json!({ "kind": "PodList", "apiVersion": "v1", "metadata": { "continue": more }, "items": pods })
}

#[tokio::test(start_paused = true)]
async fn static_pods_and_daemon_set_pods_are_not_evicted() {
    let mut pods = vec![
        pod(
            "web",
            &json!({ "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true }] }),
        ),
        pod("alone", &json!({})),
        pod(
            "static",
            &json!({ "annotations": { "kubernetes.io/config.mirror": "x" } }),
        ),
        pod(
            "proxy",
            &json!({ "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true }] }),
        ),
    ];
    let (cluster, log) = fake(move |seen| {
        if seen.path == PODS {
            assert!(
                seen.query.contains("fieldSelector=spec.nodeName%3Dn"),
                "{}",
                seen.query
            );
            return ok(&list(&pods, ""));
        }
        pods.retain(|pod| {
            !seen.path.ends_with(&format!(
                "/{}/eviction",
                pod["metadata"]["name"].as_str().unwrap()
            ))
        });
        assert_eq!(seen.body["kind"], "Eviction");
        assert_eq!(seen.body["apiVersion"], "policy/v1");
        assert_eq!(
            seen.body["deleteOptions"]["preconditions"]["uid"],
            seen.body["metadata"]["name"]
        );
        ok(&json!({ "kind": "Status", "status": "Success" }))
    });
    let drained = cluster.drain("n", Duration::from_secs(60)).await.unwrap();
    assert_eq!(drained.gone, ["default/alone", "default/web"]);
    assert_eq!(drained.left, []);
    let evictions = lines(&log)
        .into_iter()
        .filter(|line| line.starts_with("POST"));
    assert_eq!(evictions.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_a_disruption_budget() {
    let (mut tries, mut gone) = (0, false);
    let (cluster, _) = fake(move |seen| {
        if seen.path == PODS {
            let pods = if gone {
                vec![]
            } else {
                vec![pod("web", &json!({}))]
            };
            return ok(&list(&pods, ""));
        }
        tries += 1;
        if tries < 4 {
            return refused(
                429,
                "Cannot evict pod as it would violate the pod's disruption budget.",
            );
        }
        gone = true;
        ok(&json!({ "kind": "Status", "status": "Success" }))
    });
    let drained = cluster.drain("n", Duration::from_secs(60)).await.unwrap();
    assert_eq!((drained.gone.len(), drained.left.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn pods_left_after_the_drain_timeout_are_reported_with_a_reason() {
    let (cluster, log) = fake(|seen| match seen.path.rsplit('/').nth(1) {
        _ if seen.path == PODS => ok(&list(
            &[pod("busy", &json!({})), pod("slow", &json!({}))],
            "",
        )),
        Some("busy") => refused(429, "the budget"),
        _ => ok(&json!({ "kind": "Status", "status": "Success" })),
    });
    let drained = cluster.drain("n", Duration::from_secs(10)).await.unwrap();
    assert_eq!(drained.gone, Vec::<String>::new());
    let left: Vec<_> = drained
        .left
        .iter()
        .map(|left| (left.pod.as_str(), left.reason.as_str()))
        .collect();
    assert_eq!(left[0].0, "default/busy");
    assert!(left[0].1.contains("the budget (code 429)"), "{}", left[0].1);
    assert_eq!(left[1], ("default/slow", "it is still terminating"));
    let lines = lines(&log);
    let evicted = |name: &str| lines.iter().filter(|line| line.contains(name)).count();
    assert!(evicted("/busy/") > 5, "{lines:?}");
    assert_eq!(evicted("/slow/"), 1, "a pod is evicted once");
}

#[tokio::test(start_paused = true)]
async fn long_list_is_read_in_pages_and_an_endless_list_is_refused() {
    let (cluster, _) = fake(|seen| {
        if seen.path != PODS {
            return refused(404, "gone");
        }
        let last = seen.query.contains("continue=more");
        let pods: Vec<Value> = (0..500)
            .map(|i| pod(&format!("{last}-{i}"), &json!({})))
            .collect();
        ok(&list(&pods, if last { "" } else { "more" }))
    });
    let drained = cluster.drain("n", Duration::ZERO).await.unwrap();
    assert_eq!(drained.left.len(), 1000);

    let (cluster, _) = fake(|_| ok(&list(&[], "more")));
    let error = cluster
        .drain("n", Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("the list has too many pages"),
        "{error}"
    );
}
