use std::time::Duration;

use super::fake::{Answer, fake, refused};
use crate::{Cluster, Existing, Metadata, Workload};
use serde_json::json;

fn answers() -> Vec<Answer> {
    let texts = [
        "",
        "null",
        "true",
        "[]",
        "{}",
        "{",
        "\u{0}",
        "\"ok\"",
        "not ok",
        r#"{"kind":"Status","code":70000}"#,
        r#"{"kind":"Status","code":0,"message":""}"#,
        r#"{"metadata":[]}"#,
        r#"{"metadata":{"name":1}}"#,
        r#"{"metadata":{"resourceVersion":"1","annotations":{"talos.dev/owned-labels":"{}"}}}"#,
        r#"{"metadata":{"resourceVersion":"1","annotations":{"talos.dev/owned-taints":"[1]"}}}"#,
        r#"{"metadata":{"resourceVersion":"1"},"spec":{"taints":[1,null,{"key":2}]}}"#,
        r#"{"items":[{}],"metadata":{"continue":"x"}}"#,
        r#"{"items":[{"metadata":{"namespace":"../..","name":"?","uid":""}}],"metadata":{}}"#,
        r#"{"groupVersion":"v1","resources":[{}]}"#,
        r#"{"groupVersion":"v1","resources":[{"name":"","kind":"ConfigMap","singularName":"","namespaced":true,"verbs":[]}]}"#,
    ];
    let mut answers: Vec<Answer> = Vec::new();
    for text in texts {
        for code in [200, 301, 400, 404, 409, 500, 503] {
            answers.push((code, text.to_owned()));
        }
    }
    answers.push((200, "[".repeat(100_000)));
    answers.push((500, "x".repeat(10_000_000)));
    answers
}

/// Calls every method.
async fn ask(cluster: &Cluster) {
    let objects = [
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "c" } }),
        json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": "d" } }),
        json!(7),
    ];
    let _ = cluster.is_ready().await;
    let _ = cluster.node("n").await;
    let _ = cluster.api_servers().await;
    let _ = cluster.nodes().await;
    let _ = cluster.pods_of(Workload::DaemonSet, "a", "b").await;
    let wanted = Metadata {
        labels: [("a".to_owned(), "b".to_owned())].into(),
        ..Metadata::default()
    };
    let _ = cluster.apply_node_metadata("n", &wanted, |_| true).await;
    let _ = cluster.cordon("n").await;
    let _ = cluster.uncordon("n").await;
    let _ = cluster.drain("n", Duration::from_secs(3)).await;
    let report = cluster.apply(&objects, Existing::Update).await;
    for failed in report.failed {
        assert!(failed.reason.len() < 4_000, "{}", failed.reason);
    }
}

#[tokio::test(start_paused = true)]
async fn hostile_answers_end_in_errors() {
    for (code, text) in answers() {
        let (cluster, _) = fake(move |_| (code, text.clone()));
        ask(&cluster).await;
    }
}

#[tokio::test(start_paused = true)]
async fn hostile_names_send_no_request() {
    let (cluster, log) = fake(|_| refused(500, "not to be asked"));
    for name in [
        "", ".", "..", "a/b", "a?b", "a#b", "a%2fb", "a b", "ä", "a\n",
    ] {
        cluster.node(name).await.unwrap_err();
        cluster.cordon(name).await.unwrap_err();
        cluster.drain(name, Duration::ZERO).await.unwrap_err();
    }
    assert_eq!(log.lock().unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn readiness_requires_the_answer_ok_and_an_error_names_the_failed_check() {
    let (cluster, _) = fake(|_| (200, "ok".to_owned()));
    cluster.is_ready().await.unwrap();
    let (cluster, _) = fake(|_| (200, "nearly".to_owned()));
    cluster.is_ready().await.unwrap_err();
    let (cluster, _) = fake(|_| {
        (
            500,
            "[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed".to_owned(),
        )
    });
    let error = cluster.is_ready().await.unwrap_err();
    assert_eq!(error.code(), Some(500));
    assert_eq!(
        error.to_string(),
        "cannot check the readiness of kube-apiserver: [-]etcd failed: reason withheld (code 500); \
         try again; if the error persists, read the log of kube-apiserver"
    );
}
