use std::time::Duration;

use corten_corpus::hostile_json;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::sample::Index;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::fake::{Answer, fake, refused};
use crate::{Cluster, Container, Existing, Identity, Metadata, Workload};

/// Time of the fake clock for a watch, which ends only by an error.
const WATCH: Duration = Duration::from_secs(60);

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
    read(cluster).await;
}

/// Calls the methods that only read, and those of obsolete objects.
async fn read(cluster: &Cluster) {
    let _ = cluster.machines().await;
    let _ = cluster.machine("n").await;
    let _ = cluster.node_ready("n").await;
    let _ = cluster.nodes_in_full().await;
    let _ = cluster.pods_in_full("a").await;
    let _ = cluster.version().await;
    let _ = cluster.requested_old_apis().await;
    let _ = cluster.static_pod("kube-apiserver", "n").await;
    let _ = cluster.published_cas("a").await;
    for workload in [Workload::DaemonSet, Workload::Deployment] {
        let _ = cluster.rollout(workload, "a", "b").await;
        let _ = cluster.image_of(workload, "a", "b").await;
        let _ = cluster.restart(workload, "a", "b", "now").await;
    }
    let container = Container {
        namespace: "a",
        pod: "b",
        name: "kube-apiserver",
    };
    let _ = cluster.container(container).await;
    let identity = Identity::of_inventory("a_b_apps_DaemonSet", "v1").unwrap();
    let _ = cluster.exists(identity.clone()).await;
    let _ = cluster.delete(identity).await;
    let _ = cluster.prune(&[]).await;
}

/// Watches until an error, or until the time is over.
async fn watch(cluster: &Cluster) {
    let mut node = cluster.watch_node("n").unwrap();
    let changes = async { while node.next().await.is_ok() {} };
    let _ = timeout(WATCH, changes).await;
    let mut members = cluster.watch_members();
    let changes = async { while members.next().await.is_ok() {} };
    let _ = timeout(WATCH, changes).await;
}

/// A runtime with a clock that does not wait.
fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build();
    runtime.unwrap()
}

proptest! {
    // Each case calls everything.
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.min(2_000), ..ProptestConfig::default() })]

    #[test]
    fn hostile_objects_of_the_api_server_end_in_errors(
        object in hostile_json("kubernetes"),
        is_refused in any::<bool>(),
    ) {
        let code = if is_refused { 404 } else { 200 };
        runtime().block_on(async {
            let (cluster, _) = fake(move |_| (code, object.to_string()));
            ask(&cluster).await;
        });
    }

    #[test]
    fn hostile_events_of_the_api_server_end_in_errors(
        events in vec(hostile_json("kubernetes-watch"), 0..5),
        list in hostile_json("kubernetes"),
        end in any::<Index>(),
    ) {
        let lines: Vec<String> = events.iter().map(Value::to_string).collect();
        let mut text = lines.join("\n");
        let end = end.index(text.len() + 1);
        // A connection may break in the middle of an event.
        text.truncate((0..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap());
        runtime().block_on(async {
            let (cluster, log) = fake(move |seen| {
                let is_watch = seen.query.contains("watch=");
                (200, if is_watch { text.clone() } else { list.to_string() })
            });
            watch(&cluster).await;
            // Each second of the two watches may send a few requests.
            let asked = log.lock().unwrap().len();
            assert!(asked < 500, "{asked} requests");
        });
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
