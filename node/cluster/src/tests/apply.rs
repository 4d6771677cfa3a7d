use std::collections::BTreeMap;

use super::fake::{Answer, Log, Seen, discovery, fake, lines, ok, refused};
use crate::{Cluster, Existing, Report};
use serde_json::{Value, json};

const INVENTORY: &str =
    "/api/v1/namespaces/kube-system/configmaps/talos-bootstrap-manifests-inventory";

fn object(api: &str, kind: &str, name: &str) -> Value {
    json!({ "apiVersion": api, "kind": kind, "metadata": { "name": name } })
}

fn definition() -> Value {
    let mut definition = object(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "widgets",
    );
    definition["spec"] = json!({ "group": "example.org" });
    definition
}

/// A server that stores applied objects. Answers of `before` take precedence.
fn server(
    mut store: BTreeMap<String, Value>,
    mut before: impl FnMut(&Seen) -> Option<Answer> + Send + 'static,
) -> (Cluster, Log) {
    let mut version = 0;
    fake(move |seen| {
        if let Some(answer) = before(seen) {
            return answer;
        }
        if let Some(resources) = discovery(&seen.path) {
            return ok(&resources);
        }
        match seen.method.as_str() {
            "GET" => match store.get(&seen.path) {
                Some(object) => ok(object),
                None => refused(404, "not found"),
            },
            "PATCH" => {
                version += 1;
                let mut object = seen.body.clone();
                object["metadata"]["resourceVersion"] = json!(version.to_string());
                if object["kind"] == "CustomResourceDefinition" {
                    object["status"] =
                        json!({ "conditions": [{ "type": "Established", "status": "True" }] });
                }
                store.insert(seen.path.clone(), object.clone());
                ok(&object)
            }
            _ => refused(405, "no such method"),
        }
    })
}

fn names(report: &Report) -> [Vec<String>; 4] {
    let texts = |all: &Vec<_>| all.iter().map(ToString::to_string).collect();
    [
        texts(&report.created),
        texts(&report.updated),
        texts(&report.kept),
        report
            .failed
            .iter()
            .map(|failed| failed.object.to_string())
            .collect(),
    ]
}

fn patched(log: &Log) -> Vec<String> {
    let log = log.lock().unwrap();
    let patches = log.iter().filter(|seen| seen.method == "PATCH");
    patches.map(|seen| seen.path.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn objects_are_applied_in_order_and_listed() {
    let (cluster, log) = server(BTreeMap::new(), |_| None);
    let objects = [
        object("example.org/v1", "Widget", "w"),
        object("v1", "ConfigMap", "c"),
        definition(),
        object("v1", "Namespace", "n"),
    ];
    let report = cluster.apply(&objects, Existing::Keep).await;
    assert_eq!(report.failed, []);
    assert_eq!(
        patched(&log),
        [
            "/api/v1/namespaces/n",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets",
            "/apis/example.org/v1/namespaces/default/widgets/w",
            "/api/v1/namespaces/default/configmaps/c",
            INVENTORY,
        ]
    );
    let log = log.lock().unwrap();
    let patches: Vec<&Seen> = log.iter().filter(|seen| seen.method == "PATCH").collect();
    assert!(
        patches
            .iter()
            .all(|seen| seen.query.contains("fieldManager=talos"))
    );
    assert_eq!(patches[3].body["metadata"]["namespace"], "default");
    assert_eq!(
        patches[4].body["data"],
        json!({
            "_n__Namespace": "v1",
            "_widgets_apiextensions.k8s.io_CustomResourceDefinition": "v1",
            "default_w_example.org_Widget": "v1",
            "default_c__ConfigMap": "v1",
        })
    );
    let asked = log.iter().filter(|seen| seen.path == "/api/v1").count();
    assert_eq!(asked, 2, "once for each kind");
}

#[tokio::test(start_paused = true)]
async fn existing_objects_are_kept_or_updated_as_requested() {
    let path = "/api/v1/namespaces/default/configmaps/c";
    let mut there = object("v1", "ConfigMap", "c");
    there["metadata"]["resourceVersion"] = json!("x");
    let store = BTreeMap::from([(path.to_owned(), there)]);

    let (cluster, log) = server(store.clone(), |_| None);
    let report = cluster
        .apply(&[object("v1", "ConfigMap", "c")], Existing::Keep)
        .await;
    let name = || vec!["ConfigMap default/c".to_owned()];
    assert_eq!(names(&report), [vec![], vec![], name(), vec![]]);
    assert_eq!(patched(&log), [INVENTORY]);

    let (cluster, log) = server(store, |_| None);
    let report = cluster
        .apply(&[object("v1", "ConfigMap", "c")], Existing::Update)
        .await;
    assert_eq!(names(&report), [vec![], name(), vec![], vec![]]);
    let forced = |seen: &Seen| {
        seen.path != path || seen.method != "PATCH" || seen.query.contains("force=true")
    };
    assert!(log.lock().unwrap().iter().all(forced));
}

#[tokio::test(start_paused = true)]
async fn listed_object_that_an_operator_deleted_is_created_by_an_update_alone() {
    let mut inventory = object("v1", "ConfigMap", "i");
    inventory["data"] = json!({ "default_c__ConfigMap": "v1", "_n__Namespace": "v1" });
    let store = BTreeMap::from([(INVENTORY.to_owned(), inventory)]);
    let (cluster, log) = server(store, |_| None);
    let objects = ["c", "new"].map(|name| object("v1", "ConfigMap", name));
    let objects = [&objects[..], &[object("v1", "Namespace", "n")]].concat();
    let report = cluster.apply(&objects, Existing::Keep).await;
    let name = |name: &str| vec![format!("ConfigMap default/{name}")];
    let kept = vec!["Namespace n".to_owned(), "ConfigMap default/c".to_owned()];
    assert_eq!(names(&report), [name("new"), vec![], kept, vec![]]);
    let new = "/api/v1/namespaces/default/configmaps/new";
    assert_eq!(patched(&log), [new, INVENTORY]);

    let report = cluster.apply(&objects[..1], Existing::Update).await;
    assert_eq!(names(&report)[0], name("c"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_while_the_inventory_cannot_be_read() {
    let (cluster, log) = server(BTreeMap::new(), |seen| {
        (seen.path == INVENTORY).then(|| refused(403, "forbidden"))
    });
    let objects = [object("v1", "ConfigMap", "c")];
    let report = cluster.apply(&objects, Existing::Keep).await;
    let inventory = "ConfigMap kube-system/talos-bootstrap-manifests-inventory";
    assert_eq!(names(&report)[3], [inventory]);
    assert_eq!(patched(&log), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn object_created_concurrently_by_another_client_is_kept() {
    let mut overtaken = false;
    let (cluster, _) = server(BTreeMap::new(), move |seen| {
        let ours = seen.path.ends_with("/configmaps/c");
        match seen.method.as_str() {
            "PATCH" if ours => {
                overtaken = true;
                Some(refused(409, "conflict with \"kubectl\""))
            }
            "GET" if ours && overtaken => Some(ok(&object("v1", "ConfigMap", "c"))),
            _ => None,
        }
    });
    let report = cluster
        .apply(&[object("v1", "ConfigMap", "c")], Existing::Keep)
        .await;
    assert_eq!((report.kept.len(), report.failed.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn failing_object_does_not_stop_the_others() {
    let (cluster, log) = server(BTreeMap::new(), |seen| {
        let bad = seen.method == "PATCH" && seen.path.ends_with("/configmaps/bad");
        bad.then(|| refused(422, "data: Invalid value"))
    });
    let objects = [
        json!({ "apiVersion": "v1", "kind": "ConfigMap" }),
        object("v1", "ConfigMap", "bad"),
        object("v1", "ConfigMap", "../nodes/x"),
        object("v1", "Unknown", "u"),
        object("v1", "ConfigMap", "good"),
    ];
    let report = cluster.apply(&objects, Existing::Keep).await;
    assert_eq!(names(&report)[0], ["ConfigMap default/good"]);
    let reasons: Vec<&str> = report
        .failed
        .iter()
        .map(|failed| failed.reason.as_str())
        .collect();
    assert_eq!(reasons.len(), 4, "{reasons:#?}");
    assert_eq!(
        reasons[1],
        "cannot apply ConfigMap default/bad: data: Invalid value (code 422); correct the object"
    );
    assert!(
        reasons[2].contains("its name is not valid in an API path"),
        "{}",
        reasons[2]
    );
    let log = log.lock().unwrap();
    let inventory = log.last().unwrap();
    assert_eq!(
        inventory.body["data"],
        json!({ "default_good__ConfigMap": "v1" })
    );
}

#[tokio::test(start_paused = true)]
async fn custom_resource_definition_is_awaited_for_a_bounded_time() {
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets";
    for (needed, works) in [(5, true), (usize::MAX, false)] {
        let (mut looks, mut applied, mut lists) = (0, false, 0);
        let (cluster, log) = server(BTreeMap::new(), move |seen| {
            applied |= seen.line() == format!("PATCH {path}");
            if seen.path == "/apis/example.org/v1" {
                lists += 1;
                return (lists < 3).then(|| refused(404, "the server could not find it"));
            }
            let look = applied && seen.line() == format!("GET {path}");
            looks += usize::from(look);
            let conditions =
                json!([{ "type": "NamesAccepted", "status": "False", "message": "taken" }]);
            let mut waiting = definition();
            waiting["status"] = json!({ "conditions": conditions });
            (look && looks < needed).then(|| ok(&waiting))
        });
        let objects = [definition(), object("example.org/v1", "Widget", "w")];
        let report = cluster.apply(&objects, Existing::Keep).await;
        if works {
            assert_eq!(
                (report.created.len(), report.failed.len()),
                (2, 0),
                "{report:?}"
            );
            let seen = lines(&log);
            assert_eq!(
                seen.iter()
                    .filter(|line| *line == "GET /apis/example.org/v1")
                    .count(),
                3
            );
        } else {
            let reason = &report.failed[0].reason;
            assert!(reason.contains("not established: taken"), "{reason}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn inventory_keeps_old_entries_and_is_written_once() {
    let mut inventory = object("v1", "ConfigMap", "i");
    inventory["data"] = json!({ "_old__Namespace": "v1" });
    let store = BTreeMap::from([(INVENTORY.to_owned(), inventory)]);
    let (cluster, log) = server(store, |_| None);
    for _ in 0..2 {
        cluster
            .apply(&[object("v1", "Namespace", "n")], Existing::Keep)
            .await;
    }
    let log = log.lock().unwrap();
    let writes: Vec<&Seen> = log
        .iter()
        .filter(|seen| seen.method == "PATCH" && seen.path == INVENTORY)
        .collect();
    assert_eq!(writes.len(), 1);
    assert_eq!(
        writes[0].body["data"],
        json!({ "_old__Namespace": "v1", "_n__Namespace": "v1" })
    );
}

#[tokio::test(start_paused = true)]
async fn single_object_is_put_and_deleted_without_the_inventory() {
    let path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/s";
    let mut deleted = 0;
    let (cluster, log) = server(BTreeMap::new(), move |seen| {
        (seen.method == "DELETE").then(|| {
            deleted += 1;
            match deleted {
                1 => ok(&object("discovery.k8s.io/v1", "EndpointSlice", "s")),
                2 => refused(404, "not found"),
                _ => refused(403, "not you"),
            }
        })
    });
    let slice = object("discovery.k8s.io/v1", "EndpointSlice", "s");
    cluster.put(slice.clone(), Existing::Update).await.unwrap();
    assert_eq!(patched(&log), [path]);
    let identity = || corten_manifests::Identity::of(&slice).unwrap();
    cluster.delete(identity()).await.unwrap();
    cluster.delete(identity()).await.unwrap();
    let error = cluster.delete(identity()).await.unwrap_err();
    assert_eq!(error.code(), Some(403));
    assert!(lines(&log).contains(&format!("DELETE {path}")));
    cluster.put(json!({}), Existing::Keep).await.unwrap_err();
}
