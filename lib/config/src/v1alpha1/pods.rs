//! Static pods of the config. The kubelet only logs a pod that it cannot run, so problems are reported here.

use std::collections::BTreeMap;

use corten_yaml::problem::Notes;
use corten_yaml::tree::{Content, Node};

/// Namespace and names of the node's own pods.
const OWN: (&str, &[&str]) = (
    "kube-system",
    &[
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
    ],
);

/// Reports invalid and duplicate pods. Problems of the documents themselves were reported already.
pub(crate) fn check_pods(trees: &[Node], notes: &mut Notes) {
    let kind = |tree: &&Node| tree.get("kind").and_then(Node::text) == Some("KubeStaticPodConfig");
    let by_kind = trees.iter().filter(kind).filter_map(|tree| {
        let name = tree.get("name").and_then(Node::text).unwrap_or_default();
        Some((format!("KubeStaticPodConfig {name}: pod"), tree.get("pod")?))
    });
    let root = trees.iter().find(|tree| tree.get("kind").is_none());
    let list = root.and_then(|root| root.get("machine")?.get("pods"));
    let items = match list.map(|list| &list.content) {
        Some(Content::List(items)) => items.as_slice(),
        _ => &[],
    };
    let old = items.iter().enumerate();
    let old = old.map(|(number, pod)| (format!("machine.pods[{number}]"), pod));
    let mut seen: BTreeMap<(String, String), String> = BTreeMap::new();
    for (path, pod) in old.chain(by_kind) {
        let what = match identity(pod) {
            Err(what) => what.to_owned(),
            Ok((namespace, name)) if namespace == OWN.0 && OWN.1.contains(&name) => {
                format!("is called {name} in {namespace} as a pod of the node itself: rename it")
            }
            Ok((namespace, name)) => {
                let identity = (namespace.to_owned(), name.to_owned());
                match seen.insert(identity, path.clone()) {
                    None => continue,
                    Some(first) => format!("has the name and namespace of {first}: rename one"),
                }
            }
        };
        let path = corten_yaml::problem::printable(&path);
        notes.add(pod.mark, &path, format!("{path} {what}"));
    }
}

/// Namespace and name of a pod.
fn identity(pod: &Node) -> Result<(&str, &str), &'static str> {
    let is = |field: &str, wanted: &str| {
        let given = pod.get(field).and_then(Node::text);
        given.is_none_or(|given| given == wanted)
    };
    if !is("kind", "Pod") || !is("apiVersion", "v1") {
        return Err("must have apiVersion: v1 and kind: Pod");
    }
    let metadata = pod.get("metadata");
    let text = |field: &str| metadata.and_then(|metadata| metadata.get(field)?.text());
    let name = text("name").filter(|name| !name.is_empty());
    let name = name.ok_or("needs metadata.name: give it one")?;
    Ok((text("namespace").unwrap_or("default"), name))
}
