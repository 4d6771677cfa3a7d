use std::collections::{BTreeMap, BTreeSet};

use super::fake::{fake, lines, ok, refused};
use crate::ownership::{change, fields_to_set, taints_to_have};
use crate::{ClusterError, Metadata, Taint};
use serde_json::{Map, Value, json};

/// Every combination of: present (no, as wanted, different), owned or not, wanted or not.
#[test]
fn label_is_changed_only_by_its_owner() {
    let key = || "k".to_owned();
    for (is, owned, wanted, set, own) in [
        // Neither present nor wanted.
        (None, false, None, None, false),
        (None, true, None, None, false),
        // Wanted, but absent.
        (None, false, Some("a"), Some(json!("a")), true),
        (None, true, Some("a"), Some(json!("a")), true),
        // Present as wanted; machined takes ownership, as the reference does.
        (Some("a"), false, Some("a"), None, true),
        (Some("a"), true, Some("a"), None, true),
        // Present with another value; a foreign value stays.
        (Some("b"), false, Some("a"), None, false),
        (Some("b"), true, Some("a"), Some(json!("a")), true),
        // Present but not wanted; only an owned value is removed.
        (Some("b"), false, None, None, false),
        (Some("b"), true, None, Some(Value::Null), false),
    ] {
        let current: Map<String, Value> = is.map(|is| (key(), json!(is))).into_iter().collect();
        let owned_keys: BTreeSet<String> = owned.then(key).into_iter().collect();
        let wants: BTreeMap<String, String> = wanted
            .map(|value: &str| (key(), value.to_owned()))
            .into_iter()
            .collect();
        let (new, now) = fields_to_set(&current, &owned_keys, &wants);
        let case = format!("{is:?} {owned} {wanted:?}");
        assert_eq!(new.get("k"), set.as_ref(), "{case}");
        assert_eq!(now.contains("k"), own, "{case}");
    }
}

fn taint(value: &str, effect: &str) -> Value {
    json!({ "key": "k", "value": value, "effect": effect })
}

#[test]
fn taint_is_changed_only_by_its_owner() {
    let foreign =
        json!({ "key": "foreign", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z" });
    let (no, ex) = ("NoSchedule", "NoExecute");
    for (is, owned, wanted, have, own) in [
        (vec![], false, None, None, false),
        (vec![], true, None, None, false),
        (
            vec![],
            false,
            Some(("v", no)),
            Some(vec![taint("v", no)]),
            true,
        ),
        (
            vec![],
            true,
            Some(("v", no)),
            Some(vec![taint("v", no)]),
            true,
        ),
        (vec![taint("v", no)], false, Some(("v", no)), None, true),
        (vec![taint("v", no)], true, Some(("v", no)), None, true),
        // Another value, another effect.
        (vec![taint("w", no)], false, Some(("v", no)), None, false),
        (vec![taint("v", ex)], false, Some(("v", no)), None, false),
        (
            vec![taint("w", no)],
            true,
            Some(("v", no)),
            Some(vec![taint("v", no)]),
            true,
        ),
        (
            vec![taint("v", ex)],
            true,
            Some(("v", no)),
            Some(vec![taint("v", no)]),
            true,
        ),
        // Two effects of one key: the taint with the wanted effect changes.
        (
            vec![taint("w", ex), taint("w", no)],
            true,
            Some(("v", no)),
            Some(vec![taint("w", ex), taint("v", no)]),
            true,
        ),
        (vec![taint("w", no)], false, None, None, false),
        (
            vec![taint("w", no), taint("w", ex)],
            true,
            None,
            Some(vec![]),
            false,
        ),
    ] {
        let mut current = vec![foreign.clone()];
        current.extend(is.clone());
        let owned_keys: BTreeSet<String> = owned.then(|| "k".to_owned()).into_iter().collect();
        let wants = wanted.map(|(value, effect): (&str, &str)| {
            let (value, effect) = (value.to_owned(), effect.to_owned());
            ("k".to_owned(), Taint { value, effect })
        });
        let (new, now) = taints_to_have(&current, &owned_keys, &wants.into_iter().collect());
        let have = have.map(|have| [vec![foreign.clone()], have].concat());
        let case = format!("{is:?} {owned} {wanted:?}");
        assert_eq!(new, have, "{case}");
        assert_eq!(now.contains("k"), own, "{case}");
    }
}

fn wanted() -> Metadata {
    Metadata {
        labels: [("role".to_owned(), "edge".to_owned())].into(),
        annotations: [
            ("note".to_owned(), "x".to_owned()),
            ("talos.dev/owned-labels".to_owned(), "mine".to_owned()),
        ]
        .into(),
        taints: [(
            "t".to_owned(),
            Taint {
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            },
        )]
        .into(),
    }
}

fn patch(name: &str, node: &Value, wanted: &Metadata) -> Result<Option<Value>, ClusterError> {
    Ok(change(name, node, wanted, None)?.patch)
}

#[test]
fn node_patch_is_complete_and_reverted_by_an_empty_request() {
    let node = json!({ "metadata": { "resourceVersion": "7", "labels": { "foreign": "f" } } });
    let full = patch("n", &node, &wanted()).unwrap().unwrap();
    let annotations = json!({
        "note": "x",
        "talos.dev/owned-labels": "[\"role\"]",
        "talos.dev/owned-annotations": "[\"note\"]",
        "talos.dev/owned-taints": "[\"t\"]",
    });
    let taints = json!([{ "key": "t", "effect": "NoSchedule" }]);
    assert_eq!(
        full,
        json!({
            "metadata": { "resourceVersion": "7", "labels": { "role": "edge" }, "annotations": annotations },
            "spec": { "taints": taints },
        })
    );
    let node = json!({
        "metadata": {
            "resourceVersion": "8",
            "labels": { "foreign": "f", "role": "edge" },
            "annotations": annotations,
        },
        "spec": { "taints": taints },
    });
    assert_eq!(patch("n", &node, &wanted()).unwrap(), None);
    let undone = patch("n", &node, &Metadata::default()).unwrap().unwrap();
    assert_eq!(undone["metadata"]["labels"], json!({ "role": null }));
    let gone = undone["metadata"]["annotations"].as_object().unwrap();
    assert_eq!(gone.len(), 4);
    assert!(gone.values().all(Value::is_null));
    assert_eq!(undone["spec"]["taints"], json!([]));
}

#[test]
fn unreadable_ownership_record_stops_the_change() {
    for record in ["x", "{}", "[1]", "\"a\""] {
        let annotations = json!({ "talos.dev/owned-annotations": record });
        let node = json!({ "metadata": { "resourceVersion": "1", "annotations": annotations } });
        let error = patch("n", &node, &wanted()).unwrap_err();
        assert!(matches!(error, ClusterError::Ownership { .. }), "{error}");
    }
    patch("n", &json!({}), &wanted()).unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn conflicting_change_is_retried_with_the_new_version() {
    let mut tries = 0;
    let (cluster, log) = fake(move |seen| {
        if seen.method == "GET" {
            return ok(
                &json!({ "metadata": { "name": "n", "resourceVersion": tries.to_string() } }),
            );
        }
        assert_eq!(seen.body["metadata"]["resourceVersion"], tries.to_string());
        tries += 1;
        if tries < 3 {
            return refused(409, "the object has been modified");
        }
        ok(&json!({ "metadata": { "name": "n" } }))
    });
    let left_out = cluster.apply_node_metadata("n", &wanted(), |_| true).await;
    assert!(left_out.unwrap().is_empty());
    assert_eq!(lines(&log).len(), 6);

    let (cluster, _) = fake(|seen| match seen.method.as_str() {
        "GET" => ok(&json!({ "metadata": { "name": "n", "resourceVersion": "1" } })),
        _ => refused(409, "always"),
    });
    let error = cluster.cordon("n").await.unwrap_err();
    assert_eq!(error.code(), Some(409));
}

fn may_label(key: &str) -> bool {
    !key.contains('/')
}

#[test]
fn limited_client_changes_no_taints_and_only_some_labels() {
    let mut wanted = wanted();
    let restricted = || "node-role.kubernetes.io/edge".to_owned();
    wanted.labels.insert(restricted(), String::new());
    let node = json!({
        "metadata": {
            "resourceVersion": "7",
            "annotations": { "talos.dev/owned-taints": "[\"old\"]" },
        },
        "spec": { "taints": [{ "key": "old", "effect": "NoExecute" }] },
    });
    let limited = change("n", &node, &wanted, Some(may_label)).unwrap();
    assert_eq!(
        limited.left_out,
        [restricted(), "old".to_owned(), "t".to_owned()]
    );
    let patch = limited.patch.unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({ "role": "edge" }));
    assert_eq!(patch.get("spec"), None);
    // What stays keeps its owner.
    let annotations = &patch["metadata"]["annotations"];
    assert_eq!(annotations["talos.dev/owned-labels"], "[\"role\"]");
    assert_eq!(annotations.get("talos.dev/owned-taints"), None);

    // A kubelet registers its node with all taints, and then nothing is left out.
    wanted.labels.remove(&restricted());
    let node = json!({
        "metadata": { "resourceVersion": "7" },
        "spec": { "taints": [{ "key": "t", "effect": "NoSchedule" }] },
    });
    let limited = change("n", &node, &wanted, Some(may_label)).unwrap();
    assert!(limited.left_out.is_empty(), "{limited:?}");
    let annotations = &limited.patch.unwrap()["metadata"]["annotations"];
    assert_eq!(annotations["talos.dev/owned-taints"], "[\"t\"]");
}

#[tokio::test(start_paused = true)]
async fn forbidden_change_is_repeated_with_what_a_kubelet_may_set() {
    let (cluster, log) = fake(|seen| match seen.method.as_str() {
        "GET" => ok(&json!({ "metadata": { "name": "n", "resourceVersion": "1" } })),
        _ if seen.body.get("spec").is_some() => refused(403, "not allowed to modify taints"),
        _ => ok(&json!({ "metadata": { "name": "n" } })),
    });
    let left_out = cluster.apply_node_metadata("n", &wanted(), may_label).await;
    assert_eq!(left_out.unwrap(), ["t"]);
    let last = log.lock().unwrap().pop().unwrap();
    assert_eq!(last.body["metadata"]["labels"], json!({ "role": "edge" }));

    let (cluster, _) = fake(|seen| match seen.method.as_str() {
        "GET" => ok(&json!({ "metadata": { "name": "n", "resourceVersion": "1" } })),
        _ => refused(403, "never"),
    });
    let error = cluster.apply_node_metadata("n", &wanted(), may_label).await;
    assert_eq!(error.unwrap_err().code(), Some(403));
}

#[tokio::test(start_paused = true)]
async fn cordon_set_by_a_user_is_kept() {
    for (annotation, on, cordons, uncordons) in [
        (false, false, true, false),
        (false, true, false, false),
        (true, true, false, true),
    ] {
        let annotations = if annotation {
            json!({ "talos.dev/cordoned": "true" })
        } else {
            json!({})
        };
        let (cluster, log) = fake(move |_| {
            ok(&json!({
                "metadata": { "name": "n", "resourceVersion": "1", "annotations": annotations },
                "spec": { "unschedulable": on },
            }))
        });
        let patches = || {
            log.lock()
                .unwrap()
                .iter()
                .filter(|seen| seen.method == "PATCH")
                .count()
        };
        cluster.cordon("n").await.unwrap();
        assert_eq!(patches(), usize::from(cordons));
        cluster.uncordon("n").await.unwrap();
        assert_eq!(patches(), usize::from(cordons) + usize::from(uncordons));
    }
}
