use futures_util::TryStreamExt as _;
use serde_json::json;

use super::fake::{discovery, fake, ok, refused};
use crate::{Container, ContainerState, Identity};

const SUITE: Container<'_> = Container {
    namespace: "conformance",
    pod: "e2e",
    name: "suite",
};

#[tokio::test]
async fn state_of_a_container_has_its_exit_code_or_why_it_waits() {
    let statuses = [
        (
            json!({ "conditions": [{ "message": "0/1 nodes are available" }] }),
            ContainerState::Waits("0/1 nodes are available".to_owned()),
        ),
        (
            json!({ "containerStatuses": [{ "name": "suite",
                "state": { "waiting": { "reason": "ErrImagePull", "message": "no such host" } } }] }),
            ContainerState::Waits("ErrImagePull: no such host".to_owned()),
        ),
        (
            json!({ "containerStatuses": [
                { "name": "other", "state": { "terminated": { "exitCode": 7 } } },
                { "name": "suite", "state": { "running": {} } },
            ] }),
            ContainerState::Runs,
        ),
        (
            json!({ "containerStatuses": [{ "name": "suite",
                "state": { "terminated": { "exitCode": 1 } } }] }),
            ContainerState::Ended(1),
        ),
    ];
    for (status, expected) in statuses {
        let pod = json!({ "metadata": { "name": "e2e" }, "status": status });
        let (cluster, log) = fake(move |_| ok(&pod));
        assert_eq!(cluster.container(SUITE).await.unwrap(), Some(expected));
        let line = log.lock().unwrap()[0].line();
        assert_eq!(line, "GET /api/v1/namespaces/conformance/pods/e2e");
    }
    let (cluster, _) = fake(|_| refused(404, "not found"));
    assert_eq!(cluster.container(SUITE).await.unwrap(), None);
    let outside = Container {
        pod: "../../nodes/n",
        ..SUITE
    };
    cluster.container(outside).await.unwrap_err();
}

#[tokio::test]
async fn log_of_a_container_is_read_line_by_line_from_a_time() {
    let (cluster, log) = fake(|_| (200, "1Z one\n2Z two".to_owned()));
    let lines = cluster.log(SUITE, Some("2026-11-29T08:00:00.000000001Z"));
    let lines: Vec<String> = lines.await.unwrap().try_collect().await.unwrap();
    assert_eq!(lines, ["1Z one", "2Z two"]);
    let seen = log.lock().unwrap()[0].clone();
    assert_eq!(seen.path, "/api/v1/namespaces/conformance/pods/e2e/log");
    assert_eq!(
        seen.query,
        "container=suite&follow=true&timestamps=true&sinceTime=2026-11-29T08:00:00.000000001Z"
    );
    let (cluster, _) = fake(|_| refused(400, "container is waiting to start"));
    let waits = cluster.log(SUITE, None).await.map(drop).unwrap_err();
    assert!(waits.to_string().contains("waiting to start"), "{waits}");
}

#[tokio::test]
async fn nodes_and_pods_are_listed_in_full() {
    let (cluster, log) = fake(|seen| {
        let kind = match seen.path.ends_with("nodes") {
            true => "NodeList",
            false => "PodList",
        };
        let item = json!({ "metadata": { "name": "one" }, "spec": { "x": 1 } });
        ok(&json!({ "kind": kind, "apiVersion": "v1", "metadata": {}, "items": [item] }))
    });
    let nodes = cluster.nodes_in_full().await.unwrap();
    assert_eq!(nodes[0]["spec"]["x"], 1);
    let pods = cluster.pods_in_full("kube-system").await.unwrap();
    assert_eq!(pods[0]["metadata"]["name"], "one");
    cluster.pods_in_full("..").await.unwrap_err();
    let lines = super::fake::lines(&log);
    assert_eq!(
        lines,
        [
            "GET /api/v1/nodes",
            "GET /api/v1/namespaces/kube-system/pods"
        ]
    );
}

#[tokio::test]
async fn version_is_that_of_the_api_server() {
    let info = json!({ "major": "1", "minor": "37", "gitVersion": "v1.37.2", "gitCommit": "",
        "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": "" });
    let (cluster, _) = fake(move |_| ok(&info));
    assert_eq!(cluster.version().await.unwrap(), "v1.37.2");
}

#[tokio::test]
async fn object_exists_until_the_server_no_longer_knows_it() {
    let (cluster, _) = fake(|seen| {
        if let Some(kinds) = discovery(&seen.path) {
            return ok(&kinds);
        }
        match seen.path.ends_with("/conformance") {
            true => ok(
                &json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": { "name": "conformance" } }),
            ),
            false => refused(404, "not found"),
        }
    });
    let namespace = |name: &str| Identity {
        group: String::new(),
        version: "v1".to_owned(),
        kind: "Namespace".to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    };
    assert!(cluster.exists(namespace("conformance")).await.unwrap());
    assert!(!cluster.exists(namespace("other")).await.unwrap());
    cluster.exists(namespace("..")).await.unwrap_err();
}
