//! `inject serviceaccount`: gives the pods of manifests an account at the node's API. The result is that of the
//! reference's client, with the fields that its types add.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::anyhow;
use corten_client::clientconfig::POD_MOUNT;
use corten_client::failure::Failure;
use corten_client::{files, table, yaml};
use corten_manifests::{ACCOUNT_GROUP, ACCOUNT_KIND, ACCOUNT_VERSION, Identity, read};
use serde_json::{Map, Value, json};

use crate::cli::{Inject, InjectAccount};

/// Size limit of the manifests, in bytes.
const LIMIT: u64 = 16 << 20;
/// The volume with the account's client config.
const VOLUME: &str = "talos-secrets";
/// End of an account's name; the rest is the name of the object with the pods.
const SUFFIX: &str = "-talos-secrets";

/// A kind of objects with pods.
struct Kind {
    group: &'static str,
    kind: &'static str,
    /// Steps to the pod template; none for a pod.
    template: &'static [&'static str],
    /// Fields that an object always has, as JSON.
    always: &'static [(&'static str, &'static str)],
}

const KINDS: &[Kind] = &[
    Kind {
        group: "",
        kind: "Pod",
        template: &[],
        always: &[("status", "{}")],
    },
    Kind {
        group: "apps",
        kind: "Deployment",
        template: &["spec", "template"],
        always: &[("status", "{}"), ("spec.strategy", "{}")],
    },
    Kind {
        group: "apps",
        kind: "StatefulSet",
        template: &["spec", "template"],
        always: &[
            ("status", r#"{"availableReplicas": 0, "replicas": 0}"#),
            ("spec.updateStrategy", "{}"),
        ],
    },
    Kind {
        group: "apps",
        kind: "DaemonSet",
        template: &["spec", "template"],
        always: &[
            (
                "status",
                r#"{"currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0}"#,
            ),
            ("spec.updateStrategy", "{}"),
        ],
    },
    Kind {
        group: "batch",
        kind: "Job",
        template: &["spec", "template"],
        always: &[("status", "{}")],
    },
    Kind {
        group: "batch",
        kind: "CronJob",
        template: &["spec", "jobTemplate", "spec", "template"],
        always: &[("status", "{}"), ("spec.jobTemplate.metadata", "{}")],
    },
];

pub(crate) fn run(what: &Inject) -> Result<(), Failure> {
    let Inject::Serviceaccount(args) = what;
    let InjectAccount { file, roles } = args;
    let path = match file.as_path() == Path::new("-") {
        true => Path::new("/dev/stdin"),
        false => file,
    };
    let text = files::read(path, LIMIT)?;
    let name = file.display();
    let (objects, count) = injected(&text, roles).map_err(|error| anyhow!("{name}: {error}"))?;
    if count == 0 {
        eprintln!("{name}: warning: no object has pods, so there is no account");
    }
    let mut written = String::new();
    for object in &objects {
        written.push_str(&yaml::indented(object, 2)?);
        written.push_str("---\n");
    }
    Ok(table::print(&written)?)
}

/// The objects with accounts, and how many objects have pods.
fn injected(text: &str, roles: &[String]) -> Result<(Vec<Value>, usize), String> {
    let mut seen = BTreeSet::new();
    let (mut objects, mut count) = (Vec::new(), 0);
    for mut object in read(text).map_err(|error| error.to_string())? {
        let Ok(identity) = Identity::of(&object) else {
            continue;
        };
        let Some(kind) = kind_of(&identity) else {
            // An account of an earlier run; this run writes it with its own roles.
            let owner = owner_of(&identity).map(|name| (identity.namespace.clone(), name));
            if owner.is_none_or(|owner| seen.insert(owner)) {
                objects.push(object);
            }
            continue;
        };
        let account = format!("{}{SUFFIX}", identity.name);
        inject(kind, &account, &mut object).map_err(|what| format!("{identity}: {what}"))?;
        objects.push(object);
        count += 1;
        if seen.insert((identity.namespace.clone(), identity.name.clone())) {
            objects.push(service_account(&identity.namespace, &account, roles));
        }
    }
    Ok((objects, count))
}

fn kind_of(identity: &Identity) -> Option<&'static Kind> {
    let is_it = |kind: &&Kind| {
        let own = (&*identity.group, &*identity.version, &*identity.kind);
        (kind.group, "v1", kind.kind) == own
    };
    KINDS.iter().find(is_it)
}

/// Name of the object with pods that an account is for.
fn owner_of(identity: &Identity) -> Option<String> {
    let Identity { group, kind, .. } = identity;
    let is_account = group == ACCOUNT_GROUP && kind == ACCOUNT_KIND;
    let owner = identity.name.strip_suffix(SUFFIX).filter(|_| is_account);
    owner.map(str::to_owned)
}

fn service_account(namespace: &str, name: &str, roles: &[String]) -> Value {
    let mut metadata = Map::from_iter([("name".to_owned(), json!(name))]);
    if !namespace.is_empty() {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    json!({
        "apiVersion": format!("{ACCOUNT_GROUP}/{ACCOUNT_VERSION}"),
        "kind": ACCOUNT_KIND,
        "metadata": metadata,
        "spec": { "roles": roles },
    })
}

/// Mounts the Secret `secret` in each container of the object's pods.
fn inject(kind: &Kind, secret: &str, object: &mut Value) -> Result<(), String> {
    let mut path = Vec::new();
    let mut template = &mut *object;
    for step in kind.template {
        path.push(*step);
        template = field(template, &path)?;
    }
    if let (Value::Object(fields), false) = (&mut *template, path.is_empty()) {
        fields.entry("metadata").or_insert_with(|| json!({}));
    }
    path.push("spec");
    let pod = field(template, &path)?;
    append(
        pod,
        "volumes",
        json!({ "name": VOLUME, "secret": { "secretName": secret } }),
        &path,
    )?;
    path.push("containers");
    if field_of(pod, "containers").is_none() {
        return Err(format!("{} is missing", path.join(".")));
    }
    for list in ["initContainers", "containers"] {
        let Some(containers) = field_of(pod, list) else {
            continue;
        };
        let wrong = || format!("{list} must be a list of containers");
        for container in containers.as_array_mut().ok_or_else(wrong)? {
            let fields = container.as_object_mut().ok_or_else(wrong)?;
            fields.entry("resources").or_insert_with(|| json!({}));
            let mount = json!({ "name": VOLUME, "mountPath": POD_MOUNT });
            append(container, "volumeMounts", mount, &[list])?;
        }
    }
    for (steps, value) in kind.always {
        let value: Value = serde_json::from_str(value).map_err(|error| error.to_string())?;
        add(object, steps, value);
    }
    Ok(())
}

/// The map at the last step of `path`, a field of `parent`.
fn field<'a>(parent: &'a mut Value, path: &[&str]) -> Result<&'a mut Value, String> {
    let name = path.last().copied().unwrap_or_default();
    let found = parent.get_mut(name).filter(|value| value.is_object());
    found.ok_or_else(|| format!("{} must be a map", path.join(".")))
}

/// A field that is not null.
fn field_of<'a>(parent: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    parent.get_mut(name).filter(|value| !value.is_null())
}

/// Appends an item to a list, in place of items with its name.
fn append(parent: &mut Value, list: &str, item: Value, path: &[&str]) -> Result<(), String> {
    let Value::Object(fields) = parent else {
        return Err(format!("{} must be a map", path.join(".")));
    };
    let items = fields.entry(list).or_insert(Value::Null);
    if items.is_null() {
        *items = json!([]);
    }
    let Value::Array(items) = items else {
        return Err(format!("{}.{list} must be a list", path.join(".")));
    };
    items.retain(|old| old.get("name") != item.get("name"));
    items.push(item);
    Ok(())
}

/// Adds a field below existing maps, unless it exists.
fn add(object: &mut Value, steps: &str, value: Value) {
    let (parents, name) = steps.rsplit_once('.').unwrap_or(("", steps));
    let mut at = object;
    for step in parents.split('.').filter(|step| !step.is_empty()) {
        match at.get_mut(step) {
            Some(next) => at = next,
            None => return,
        }
    }
    if let Value::Object(fields) = at {
        fields.entry(name).or_insert(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: &str = include_str!("inject/input.yaml");
    const EXPECTED: &str = include_str!("inject/expected.yaml");

    fn roles() -> Vec<String> {
        vec!["os:reader".to_owned(), "os:etcd:backup".to_owned()]
    }

    fn written(text: &str) -> String {
        let (objects, _) = injected(text, &roles()).unwrap();
        let texts = objects
            .iter()
            .map(|object| yaml::indented(object, 2).unwrap());
        texts.map(|text| format!("{text}---\n")).collect()
    }

    #[test]
    fn manifests_with_accounts_match_the_golden_file() {
        let text = written(INPUT);
        if std::env::var_os("UPDATE").is_some() {
            let path = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/verbs/inject/expected.yaml"
            );
            std::fs::write(path, &text).unwrap();
            return;
        }
        assert!(text == EXPECTED, "UPDATE=1 writes it:\n{text}");
    }

    #[test]
    fn second_injection_changes_nothing() {
        assert_eq!(written(EXPECTED), EXPECTED);
    }

    #[test]
    fn accounts_of_a_former_run_get_the_roles_of_this_one() {
        let (objects, count) = injected(EXPECTED, &["os:admin".to_owned()]).unwrap();
        let accounts = objects
            .iter()
            .filter(|object| object["kind"] == ACCOUNT_KIND);
        let (own, injected): (Vec<_>, Vec<_>) =
            accounts.partition(|account| account["metadata"]["name"] == "own");
        assert_eq!(own[0]["spec"]["roles"], json!(["os:operator"]));
        assert!(
            injected
                .iter()
                .all(|account| account["spec"]["roles"] == json!(["os:admin"]))
        );
        // Two objects of one name share an account.
        assert_eq!((injected.len(), count), (6, 7));
    }

    #[test]
    fn text_that_looks_like_another_type_stays_text() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: a\n    args: ['yes', 'off', '0123', '1e3', '0x10', 'null', '~', '2026-01-01', '', '- a', '1:30', \"two\\nlines\"]\n";
        let (objects, _) = injected(text, &roles()).unwrap();
        let (again, _) = injected(&written(text), &roles()).unwrap();
        assert_eq!(objects, again);
        let texts = written(text);
        for quoted in ["yes", "off", "0123", "1e3", "0x10", "null", "~"] {
            let quotes = [format!("\"{quoted}\""), format!("'{quoted}'")];
            assert!(
                quotes.iter().any(|quoted| texts.contains(quoted)),
                "{quoted}: {texts}"
            );
        }
    }

    #[test]
    fn invalid_manifests_are_refused_by_their_object() {
        for (text, why) in [
            ("a: [", "not YAML"),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a}\n",
                "object 1: metadata.name",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
                "Pod a: spec must be a map",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {}\n",
                "Pod a: spec.containers is missing",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [b]}\n",
                "Pod a: containers must be",
            ),
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {volumes: 1}\n",
                "Pod a: spec.volumes must be a list",
            ),
            (
                "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: a, namespace: n}\nspec: {jobTemplate: {}}\n",
                "CronJob.batch a: spec.jobTemplate.spec must be a map",
            ),
        ] {
            let error = injected(text, &roles()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn other_objects_stay_as_they_are() {
        let text = "apiVersion: example.org/v1\nkind: Deployment\nmetadata:\n  name: a\nspec: {}\n";
        let (objects, count) = injected(text, &roles()).unwrap();
        assert_eq!((objects.len(), count), (1, 0));
        assert_eq!(objects[0]["spec"], json!({}));
    }
}
