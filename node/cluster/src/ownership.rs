//! Tracks which labels, annotations and taints of a node machined owns, and computes their changes.
//!
//! Three annotations on the node record the owned keys, each as a JSON list. Values of other clients stay, even where
//! machined wants another value. Values of machined are removed once they are no longer wanted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::ClusterError;

const LABELS: &str = "talos.dev/owned-labels";
const ANNOTATIONS: &str = "talos.dev/owned-annotations";
const TAINTS: &str = "talos.dev/owned-taints";
/// The recording annotations; wanted metadata cannot override them.
const RECORDS: [&str; 3] = [LABELS, ANNOTATIONS, TAINTS];

/// Metadata that machined wants on its node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// Labels, by key.
    pub labels: BTreeMap<String, String>,
    /// Annotations, by key.
    pub annotations: BTreeMap<String, String>,
    /// Taints, by key.
    pub taints: BTreeMap<String, Taint>,
}

/// A taint, which keeps pods off a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// Value; may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// The merge patch from `node` to the wanted metadata; `None` if nothing changes. The patch contains the node's
/// resource version, so the server rejects it after a concurrent change.
pub(crate) fn patch(
    name: &str,
    node: &Value,
    wanted: &Metadata,
) -> Result<Option<Value>, ClusterError> {
    let wrong = |field, expected| ClusterError::Ownership {
        node: name.to_owned(),
        field,
        expected,
    };
    let version = node.pointer("/metadata/resourceVersion");
    let version = version
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty());
    let version = version.ok_or_else(|| wrong("metadata.resourceVersion", "a string"))?;
    let none = Map::new();
    let fields = |pointer| {
        node.pointer(pointer)
            .and_then(Value::as_object)
            .unwrap_or(&none)
    };
    let (labels, annotations) = (fields("/metadata/labels"), fields("/metadata/annotations"));
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    let owned = |record| {
        let owned = owned(annotations, record);
        owned.ok_or_else(|| wrong(record, "a JSON list of keys"))
    };
    let (owned_labels, owned_taints) = (owned(LABELS)?, owned(TAINTS)?);
    let mut owned_annotations = owned(ANNOTATIONS)?;
    owned_annotations.retain(|key| !RECORDS.contains(&key.as_str()));
    let mut wanted_annotations = wanted.annotations.clone();
    wanted_annotations.retain(|key, _| !RECORDS.contains(&key.as_str()));

    let (new_labels, own_labels) = fields_to_set(labels, &owned_labels, &wanted.labels);
    let (mut new_annotations, own_annotations) =
        fields_to_set(annotations, &owned_annotations, &wanted_annotations);
    let (new_taints, own_taints) = taints_to_have(
        taints.map_or(&[], Vec::as_slice),
        &owned_taints,
        &wanted.taints,
    );
    for (record, own) in [
        (LABELS, own_labels),
        (ANNOTATIONS, own_annotations),
        (TAINTS, own_taints),
    ] {
        let is = annotations.get(record);
        if own.is_empty() && is.is_some() {
            new_annotations.insert(record.to_owned(), Value::Null);
        } else if !own.is_empty() {
            let own = Value::from(json!(own).to_string());
            if is != Some(&own) {
                new_annotations.insert(record.to_owned(), own);
            }
        }
    }

    let mut metadata = Map::new();
    let mut patch = Map::new();
    for (field, new) in [("labels", new_labels), ("annotations", new_annotations)] {
        if !new.is_empty() {
            metadata.insert(field.to_owned(), Value::Object(new));
        }
    }
    if let Some(new) = new_taints {
        patch.insert("spec".to_owned(), json!({ "taints": new }));
    }
    if metadata.is_empty() && patch.is_empty() {
        return Ok(None);
    }
    metadata.insert("resourceVersion".to_owned(), version.into());
    patch.insert("metadata".to_owned(), Value::Object(metadata));
    Ok(Some(Value::Object(patch)))
}

/// Keys recorded in an annotation; `None` if the annotation has other contents.
fn owned(annotations: &Map<String, Value>, record: &str) -> Option<BTreeSet<String>> {
    match annotations.get(record).map(Value::as_str) {
        None | Some(Some("")) => Some(BTreeSet::new()),
        // Former spelling of an empty list.
        Some(Some("null")) => Some(BTreeSet::new()),
        Some(text) => serde_json::from_str::<Value>(text?).ok().and_then(keys),
    }
}

fn keys(list: Value) -> Option<BTreeSet<String>> {
    let Value::Array(list) = list else {
        return None;
    };
    let keys = list.into_iter().map(|key| match key {
        Value::String(key) => Some(key),
        _ => None,
    });
    keys.collect()
}

/// Fields to set, or to remove with null, and the keys owned afterwards.
pub(crate) fn fields_to_set(
    current: &Map<String, Value>,
    owned: &BTreeSet<String>,
    wanted: &BTreeMap<String, String>,
) -> (Map<String, Value>, BTreeSet<String>) {
    let mut new = Map::new();
    let mut own = BTreeSet::new();
    for (key, value) in wanted {
        let is = current.get(key).map(Value::as_str);
        let right = is == Some(Some(value));
        if is.is_some() && !right && !owned.contains(key) {
            continue;
        }
        own.insert(key.clone());
        if !right {
            new.insert(key.clone(), value.as_str().into());
        }
    }
    for key in owned {
        if !wanted.contains_key(key) && current.contains_key(key) {
            new.insert(key.clone(), Value::Null);
        }
    }
    (new, own)
}

/// The new list of taints, if it changes, and the keys owned afterwards. Ownership covers a key with all its effects,
/// so dropping a key removes all its taints.
pub(crate) fn taints_to_have(
    current: &[Value],
    owned: &BTreeSet<String>,
    wanted: &BTreeMap<String, Taint>,
) -> (Option<Vec<Value>>, BTreeSet<String>) {
    let text = |taint: &Value, field: &str| {
        let text = taint.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let mut taints: Vec<Value> = current.to_vec();
    taints.retain(|taint| {
        let key = text(taint, "key");
        !owned.contains(&key) || wanted.contains_key(&key)
    });
    let mut own = BTreeSet::new();
    for (key, want) in wanted {
        let with_key = |taint: &Value| text(taint, "key") == *key;
        let same_effect = |taint: &Value| with_key(taint) && text(taint, "effect") == want.effect;
        let right = |taint: &Value| same_effect(taint) && text(taint, "value") == want.value;
        if taints.iter().any(right) {
            own.insert(key.clone());
            continue;
        }
        let is = taints.iter().position(same_effect);
        let is = is.or_else(|| taints.iter().position(with_key));
        if is.is_some() && !owned.contains(key) {
            continue;
        }
        let taint = if want.value.is_empty() {
            json!({ "key": key, "effect": want.effect })
        } else {
            json!({ "key": key, "value": want.value, "effect": want.effect })
        };
        match is.and_then(|is| taints.get_mut(is)) {
            Some(is) => *is = taint,
            None => taints.push(taint),
        }
        own.insert(key.clone());
    }
    let changed = taints != current;
    (changed.then_some(taints), own)
}
