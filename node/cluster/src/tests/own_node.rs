//! One node, with a server that tells its changes.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::fake::{Log, fake, lines, refused};
use crate::NodeWatch;

fn node(rack: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": "n", "resourceVersion": "8", "labels": { "rack": rack } },
    })
}

fn event(kind: &str, node: &Value) -> String {
    json!({ "type": kind, "object": node }).to_string() + "\n"
}

fn list(items: &[Value]) -> String {
    let list = json!({ "kind": "NodeList", "apiVersion": "v1", "metadata": { "resourceVersion": "7" }, "items": items });
    list.to_string()
}

/// A watch whose requests get these answers in order, and then refusals.
fn watch(answers: Vec<String>) -> (NodeWatch, Log) {
    let mut answers = VecDeque::from(answers);
    let (cluster, log) = fake(move |_| match answers.pop_front() {
        Some(answer) => (200, answer),
        None => refused(403, "no more"),
    });
    (cluster.watch_node("n").unwrap(), log)
}

async fn rack(watch: &mut NodeWatch) -> Option<String> {
    let state = watch.next().await.unwrap();
    state.map(|state| state.labels["rack"].clone())
}

#[tokio::test(start_paused = true)]
async fn node_is_watched_from_its_current_state_on() {
    let events = event("MODIFIED", &node("b")) + &event("DELETED", &node("b"));
    let (mut watch, log) = watch(vec![list(&[node("a")]), events]);
    assert_eq!(rack(&mut watch).await.as_deref(), Some("a"));
    assert_eq!(rack(&mut watch).await.as_deref(), Some("b"));
    assert_eq!(rack(&mut watch).await, None);
    assert_eq!(lines(&log), ["GET /api/v1/nodes", "GET /api/v1/nodes"]);
    let log = log.lock().unwrap();
    let asks = |query: &str, text: &str| query.split('&').any(|part| part == text);
    // A kubelet may see no other node.
    for seen in log.iter() {
        assert!(
            asks(&seen.query, "fieldSelector=metadata.name%3Dn"),
            "{seen:?}"
        );
    }
    assert!(asks(&log[1].query, "watch=true") && asks(&log[1].query, "resourceVersion=7"));
}

#[tokio::test(start_paused = true)]
async fn node_that_was_deleted_during_an_interruption_is_gone() {
    let expired = json!({ "type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "message": "gone",
        "reason": "Expired",
    } });
    let expired = expired.to_string() + "\n";
    let registered = event("ADDED", &node("b"));
    let answers = vec![list(&[node("a")]), expired, list(&[]), registered];
    let (mut watch, _) = watch(answers);
    assert_eq!(rack(&mut watch).await.as_deref(), Some("a"));
    assert_eq!(rack(&mut watch).await, None);
    assert_eq!(rack(&mut watch).await.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn refused_watch_of_a_node_is_an_error() {
    let (mut watch, _) = watch(Vec::new());
    let error = watch.next().await.unwrap_err().to_string();
    assert!(error.contains("this node"), "{error}");
}
