//! The kubelet's own API (Kubernetes, `pkg/kubelet/server`).

use http::Request;
use kube::Client;
use serde_json::Value;

use crate::{Access, ClusterError, PATIENCE, within};

/// Annotation with the source of a pod.
const SOURCE: &str = "kubernetes.io/config.source";

/// The static pods of the kubelet at `access`, by `namespace/name`, each with its status (Kubernetes, PodStatus v1).
/// The kubelet's certificate must hold for `nodename`.
///
/// # Errors
/// [`ClusterError::Access`] or [`ClusterError::Request`].
pub async fn static_pods(
    access: &Access,
    nodename: &str,
) -> Result<Vec<(String, Value)>, ClusterError> {
    let mut config = access.config(PATIENCE)?;
    config.tls_server_name = Some(nodename.to_owned());
    let client = Client::try_from(config);
    let client =
        client.map_err(|error| ClusterError::access("the certificates or the key", error))?;
    let (action, object) = ("read", "the pods of the kubelet");
    let request = Request::get("/pods").body(Vec::new());
    let request = request.map_err(|error| ClusterError::request(action, &object, error))?;
    let answer = within(action, &object, client.request::<Value>(request)).await?;
    Ok(of_list(answer))
}

fn of_list(mut list: Value) -> Vec<(String, Value)> {
    let items = list.get_mut("items").map(Value::take).unwrap_or_default();
    let Value::Array(items) = items else {
        return Vec::new();
    };
    items.into_iter().filter_map(static_pod).collect()
}

/// Id and status of a static pod; `None` for a pod of the cluster.
fn static_pod(mut pod: Value) -> Option<(String, Value)> {
    let metadata = pod.get("metadata")?;
    let source = metadata.get("annotations")?.get(SOURCE)?;
    if !["file", "http"].contains(&source.as_str()?) {
        return None;
    }
    let text = |field: &str| metadata.get(field).and_then(Value::as_str);
    let id = format!("{}/{}", text("namespace")?, text("name")?);
    let status = pod.get_mut("status").map(Value::take);
    Some((id, status.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use corten_corpus::hostile_json;
    use proptest::prelude::proptest;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn hostile_list_of_the_kubelet_gives_only_static_pods(list in hostile_json("kubernetes")) {
            for (id, _) in of_list(list) {
                assert!(id.contains('/'), "{id}");
            }
        }
    }

    #[test]
    fn only_static_pods_are_read_from_the_kubelet() {
        let pod = |name: &str, source: &str| {
            json!({
                "metadata": {
                    "namespace": "kube-system",
                    "name": name,
                    "annotations": { SOURCE: source },
                },
                "status": { "phase": "Running" },
            })
        };
        let bare = json!({ "metadata": { "namespace": "default", "name": "c" } });
        let list = json!({ "items": [pod("a", "http"), pod("b", "api"), bare, 7] });
        let expected = ("kube-system/a".to_owned(), json!({ "phase": "Running" }));
        assert_eq!(of_list(list), [expected]);
        assert!(of_list(json!({ "items": "no list" })).is_empty());
        assert!(of_list(Value::Null).is_empty());
    }
}
