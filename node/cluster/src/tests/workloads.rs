use serde_json::{Value, json};

use super::fake::{fake, ok, refused};
use crate::{Pods, Workload};

#[tokio::test]
async fn pods_of_a_workload_are_counted() {
    let (cluster, log) = fake(|seen| match seen.path.rsplit('/').next() {
        Some("proxy") => ok(
            &json!({ "metadata": { "name": "proxy" }, "status": { "desiredNumberScheduled": 3, "numberReady": 2 } }),
        ),
        Some("dns") => ok(&json!({ "metadata": { "name": "dns" }, "spec": { "replicas": 2 } })),
        _ => refused(404, "not found"),
    });
    let proxy = cluster
        .pods_of(Workload::DaemonSet, "kube-system", "proxy")
        .await;
    assert_eq!(
        proxy.unwrap(),
        Some(Pods {
            wanted: 3,
            ready: 2,
            late: None,
        })
    );
    let dns = cluster
        .pods_of(Workload::Deployment, "kube-system", "dns")
        .await;
    assert_eq!(
        dns.unwrap(),
        Some(Pods {
            wanted: 2,
            ready: 0,
            late: None,
        })
    );
    let none = cluster
        .pods_of(Workload::Deployment, "kube-system", "x")
        .await;
    assert_eq!(none.unwrap(), None);
    let line = log.lock().unwrap()[0].line();
    assert_eq!(
        line,
        "GET /apis/apps/v1/namespaces/kube-system/daemonsets/proxy"
    );
}

#[tokio::test]
async fn workload_is_rolled_out_when_every_pod_has_the_latest_revision() {
    let (cluster, _) = fake(|seen| {
        let object = |generation: u64, spec: Value, status: Value| {
            let metadata = json!({ "name": "x", "generation": generation });
            ok(&json!({ "metadata": metadata, "spec": spec, "status": status }))
        };
        let set = |seen: u64, updated: u64, available: u64| json!({ "observedGeneration": seen, "desiredNumberScheduled": 3, "updatedNumberScheduled": updated, "numberAvailable": available });
        match seen.path.rsplit('/').next() {
            Some("done") => object(2, json!({}), set(2, 3, 3)),
            Some("unseen") => object(2, json!({}), set(1, 3, 3)),
            Some("old") => object(2, json!({}), set(2, 1, 3)),
            Some("down") => object(2, json!({}), set(2, 3, 2)),
            Some("dns") => object(
                1,
                json!({ "replicas": 2 }),
                json!({ "observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2 }),
            ),
            Some("half") => object(
                1,
                json!({ "replicas": 2 }),
                json!({ "observedGeneration": 1, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 2 }),
            ),
            _ => refused(404, "not found"),
        }
    });
    let of = async |workload: Workload, name: &'static str| {
        cluster
            .rollout(workload, "kube-system", name)
            .await
            .unwrap()
    };
    assert_eq!(of(Workload::DaemonSet, "done").await, Some(Ok(())));
    assert_eq!(of(Workload::Deployment, "dns").await, Some(Ok(())));
    let half = of(Workload::Deployment, "half").await.unwrap();
    assert!(half.unwrap_err().contains("1 old pods"));
    assert_eq!(of(Workload::DaemonSet, "none").await, None);
    for (name, word) in [
        ("unseen", "not observed"),
        ("old", "1 of 3"),
        ("down", "2 of 3"),
    ] {
        let why = of(Workload::DaemonSet, name).await.unwrap().unwrap_err();
        assert!(why.contains(word), "{why}");
    }
}

#[tokio::test]
async fn late_rollout_names_a_pod_and_its_reason() {
    let condition = |kind: &str, status: &str, message: &str| json!({ "type": kind, "status": status, "reason": "R", "message": message });
    let pod = |name: &str, status: Value| json!({ "metadata": { "name": name }, "spec": { "nodeName": "n" }, "status": status });
    let ready = pod(
        "a",
        json!({ "conditions": [condition("Ready", "True", "")] }),
    );
    let cases = [
        (
            json!({ "conditions": [condition("PodScheduled", "False", "no nodes")] }),
            ": pod b on node n is not ready: R: no nodes",
        ),
        (
            json!({
                "conditions": [condition("Ready", "False", "unready"), condition("PodScheduled", "True", "")],
                "initContainerStatuses": [{ "state": { "terminated": {} } }],
                "containerStatuses": [{ "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off" } } }],
            }),
            ": pod b on node n is not ready: CrashLoopBackOff: back-off",
        ),
        (
            json!({ "conditions": [condition("Ready", "False", "unready")], "containerStatuses": [{ "state": { "running": {} } }] }),
            ": pod b on node n is not ready: R: unready",
        ),
        (
            json!({ "conditions": [condition("Ready", "True", "")] }),
            "",
        ),
    ];
    for (status, expected) in cases {
        let pods = [ready.clone(), pod("b", status)];
        let (cluster, log) = fake(move |seen| match seen.path.rsplit('/').next() {
            Some("pods") => {
                ok(&json!({ "kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods }))
            }
            _ => ok(&json!({
                "metadata": { "name": "x", "generation": 1 },
                "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "x" } } },
                "status": { "observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 1 },
            })),
        });
        let state = cluster.rollout(Workload::Deployment, "s", "x").await;
        let why = state.unwrap().unwrap().unwrap_err();
        assert_eq!(why, format!("1 of 2 pods are new and available{expected}"));
        let pods = cluster.pods_of(Workload::Deployment, "s", "x").await;
        let late = pods.unwrap().unwrap().late;
        let late = late.map_or_else(String::new, |late| format!(": {late}"));
        assert_eq!(late, expected);
        let log = log.lock().unwrap();
        assert!(log[1].query.contains("labelSelector=app%3Dx"), "{log:?}");
    }
}

#[tokio::test]
async fn late_rollout_is_told_when_its_pods_cannot_be_listed() {
    let (cluster, _) = fake(|seen| match seen.path.rsplit('/').next() {
        Some("pods") => refused(403, "no right"),
        _ => ok(&json!({
            "metadata": { "name": "x", "generation": 1 },
            "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "x" } } },
            "status": { "observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 1 },
        })),
    });
    let state = cluster.rollout(Workload::Deployment, "s", "x").await;
    let why = state.unwrap().unwrap().unwrap_err();
    assert!(
        why.starts_with("1 of 2 pods are new and available: "),
        "{why}"
    );
    assert!(why.contains("no right"), "{why}");
}
