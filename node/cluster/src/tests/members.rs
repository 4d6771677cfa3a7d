//! The nodes of a cluster, with a server that tells changes.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::fake::{fake, refused};
use crate::{Member, MemberWatch};

fn node(name: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": { "name": name, "resourceVersion": "7", "labels": labels },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": "10.0.0.2" },
                { "type": "Hostname", "address": name },
                7,
            ],
            "nodeInfo": { "machineID": "abc", "osImage": "Corten 1.2.3" },
        },
    })
}

fn event(kind: &str, node: &Value) -> String {
    json!({ "type": kind, "object": node }).to_string() + "\n"
}

/// A watch that gets these answers to its requests, and then refusals.
fn watch(answers: Vec<String>) -> MemberWatch {
    let mut answers = VecDeque::from(answers);
    let (cluster, _) = fake(move |_| match answers.pop_front() {
        Some(answer) => (200, answer),
        None => refused(403, "no more"),
    });
    cluster.watch_members()
}

fn names(members: &[Member]) -> Vec<&str> {
    members.iter().map(|member| member.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn members_are_the_nodes_of_known_systems_with_their_addresses_and_roles() {
    let control_plane = node("a", &json!({ "node-role.kubernetes.io/control-plane": "" }));
    let worker = node("b", &json!({}));
    let mut other = node("other", &json!({}));
    other["status"]["nodeInfo"]["osImage"] = json!("Debian");
    let bare = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "bare" } });
    let all = [&worker, &control_plane, &other, &bare].map(|node| event("ADDED", node));
    let mut watch = watch(vec![all.concat()]);
    let members = watch.next().await.unwrap();
    assert_eq!(names(&members), ["a", "b"]);
    let expected = Member {
        name: "a".to_owned(),
        machine: "abc".to_owned(),
        addresses: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))],
        is_control_plane: true,
        system: "Corten 1.2.3".to_owned(),
    };
    assert_eq!(members[0], expected);
    assert!(!members[1].is_control_plane);
}

#[tokio::test(start_paused = true)]
async fn node_that_was_deleted_during_an_interruption_is_forgotten() {
    let (a, b) = (node("a", &json!({})), node("b", &json!({})));
    let both = event("ADDED", &a) + &event("ADDED", &b);
    let gone = json!({ "type": "ERROR", "object": {
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "message": "gone",
        "reason": "Expired",
    } });
    let mut watch = watch(vec![both + &gone.to_string() + "\n", event("ADDED", &b)]);
    assert_eq!(names(&watch.next().await.unwrap()), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn refused_watch_is_an_error() {
    let error = watch(Vec::new()).next().await.unwrap_err().to_string();
    assert!(error.contains("the nodes"), "{error}");
}
