//! The status of a static pod as the kubelet tells it: its id, and whether the pod is ready.

use serde_json::Value;

/// Id of the status of a static pod: the kubelet adds its node's name to that of the pod. `None` for a pod without a
/// name.
pub(crate) fn id(pod: &Value, node: &str) -> Option<String> {
    let of = |field: &str| pod.pointer(field).and_then(Value::as_str);
    let namespace = of("/metadata/namespace").unwrap_or("default");
    Some(format!("{namespace}/{}-{node}", of("/metadata/name")?))
}

/// Whether a pod works, or has done its work.
pub(crate) fn is_ready(status: &Value) -> bool {
    let conditions = status.get("conditions").and_then(Value::as_array);
    let is_met = |condition: &Value| {
        let of = |field: &str| condition.get(field).and_then(Value::as_str);
        of("type") == Some("Ready") && of("status") == Some("True")
    };
    status.get("phase").and_then(Value::as_str) == Some("Succeeded")
        || conditions.is_some_and(|conditions| conditions.iter().any(is_met))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_is_ready_when_it_works_or_has_done_its_work() {
        let condition = |name, status| json!({"conditions": [{"type": name, "status": status}]});
        assert!(is_ready(&condition("Ready", "True")));
        assert!(is_ready(&json!({"phase": "Succeeded"})));
        for status in [
            Value::Null,
            json!({"phase": "Running"}),
            json!({"conditions": "Ready"}),
            condition("Ready", "False"),
            condition("ContainersReady", "True"),
        ] {
            assert!(!is_ready(&status), "{status}");
        }
    }
}
