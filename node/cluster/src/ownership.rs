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

/// The labels that a client may set which may change no taint, such as a kubelet (Kubernetes, NodeRestriction). The
/// server refuses a whole patch that contains more.
pub(crate) type Limit = fn(&str) -> bool;

/// A change of a node.
#[derive(Debug, PartialEq)]
pub(crate) struct Change {
    /// The merge patch; `None` if nothing changes.
    pub(crate) patch: Option<Value>,
    /// Keys of labels and taints that stay as they are because of the limit.
    pub(crate) left_out: Vec<String>,
}

/// The change from `node` to the wanted metadata. The patch contains the node's resource version, so the server rejects
/// it after a concurrent change.
pub(crate) fn change(
    name: &str,
    node: &Value,
    wanted: &Metadata,
    limit: Option<Limit>,
) -> Result<Change, ClusterError> {
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

    let mut left_out = Vec::new();
    let (mut new_labels, mut own_labels) = fields_to_set(labels, &owned_labels, &wanted.labels);
    let (mut new_annotations, own_annotations) =
        fields_to_set(annotations, &owned_annotations, &wanted_annotations);
    let taints = taints.map_or(&[][..], Vec::as_slice);
    let (mut new_taints, mut own_taints) = taints_to_have(taints, &owned_taints, &wanted.taints);
    if let Some(may_label) = limit {
        left_out = without_labels(&mut new_labels, may_label);
        keep_ownership(&mut own_labels, &owned_labels, &left_out);
        if let Some(new) = new_taints.take() {
            let changed = changed_keys(taints, &new);
            keep_ownership(&mut own_taints, &owned_taints, &changed);
            left_out.extend(changed);
        }
    }
    let records = [
        (LABELS, own_labels),
        (ANNOTATIONS, own_annotations),
        (TAINTS, own_taints),
    ];
    new_annotations.extend(records_to_set(annotations, records));

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
    let mut changes = Change {
        patch: None,
        left_out,
    };
    if !metadata.is_empty() || !patch.is_empty() {
        metadata.insert("resourceVersion".to_owned(), version.into());
        patch.insert("metadata".to_owned(), Value::Object(metadata));
        changes.patch = Some(Value::Object(patch));
    }
    Ok(changes)
}

/// The recording annotations to set, or to remove with null.
fn records_to_set(
    annotations: &Map<String, Value>,
    records: [(&str, BTreeSet<String>); 3],
) -> Map<String, Value> {
    let mut new = Map::new();
    for (record, own) in records {
        let is = annotations.get(record);
        if own.is_empty() && is.is_some() {
            new.insert(record.to_owned(), Value::Null);
        } else if !own.is_empty() {
            let own = Value::from(json!(own).to_string());
            if is != Some(&own) {
                new.insert(record.to_owned(), own);
            }
        }
    }
    new
}

/// Removes the labels that may not be set. Returns their keys.
fn without_labels(new: &mut Map<String, Value>, may_label: Limit) -> Vec<String> {
    let keys = new.keys().filter(|key| !may_label(key));
    let left_out: Vec<String> = keys.cloned().collect();
    new.retain(|key, _| may_label(key));
    left_out
}

/// Restores who owned keys that do not change.
fn keep_ownership(own: &mut BTreeSet<String>, owned: &BTreeSet<String>, unchanged: &[String]) {
    for key in unchanged {
        match owned.contains(key) {
            true => own.insert(key.clone()),
            false => own.remove(key),
        };
    }
}

/// Keys of the taints in which two lists differ.
fn changed_keys(old: &[Value], new: &[Value]) -> Vec<String> {
    let differ = |some: &[Value], others: &[Value]| -> Vec<String> {
        let differ = some.iter().filter(|taint| !others.contains(taint));
        let keys = differ.filter_map(|taint| taint.get("key")?.as_str());
        keys.map(str::to_owned).collect()
    };
    let keys: BTreeSet<String> = [differ(old, new), differ(new, old)]
        .concat()
        .into_iter()
        .collect();
    keys.into_iter().collect()
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
