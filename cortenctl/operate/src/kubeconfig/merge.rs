//! Adds the access to one cluster to a kubeconfig. All other entries stay unchanged, including
//! unknown ones.

use anyhow::{anyhow, bail, ensure};
use serde_json::{Map, Value, json};

/// The lists of a kubeconfig, each with the key of an entry's content.
const CLUSTERS: (&str, &str) = ("clusters", "cluster");
const USERS: (&str, &str) = ("users", "user");
const CONTEXTS: (&str, &str) = ("contexts", "context");

/// Access to one cluster.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Access {
    cluster: Named,
    user: Named,
    context: Named,
}

#[derive(Debug, Clone, PartialEq)]
struct Named {
    name: String,
    content: Value,
}

impl Access {
    /// A kubeconfig with only this access.
    pub(super) fn document(&self) -> Value {
        let entry = |(_, key): (&str, &str), named: &Named| {
            let mut entry = Map::new();
            entry.insert("name".to_owned(), Value::from(named.name.as_str()));
            entry.insert(key.to_owned(), named.content.clone());
            Value::Object(entry)
        };
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [entry(CLUSTERS, &self.cluster)],
            "users": [entry(USERS, &self.user)],
            "contexts": [entry(CONTEXTS, &self.context)],
            "current-context": self.context.name,
        })
    }
}

/// The access in a node's kubeconfig: its current context with cluster and user.
pub(super) fn single(document: Value, context_name: Option<&str>) -> anyhow::Result<Access> {
    let current = text(&document, "current-context")?.to_owned();
    let mut context = find(&document, CONTEXTS, &current)?
        .ok_or_else(|| anyhow!("its current context is not in it"))?;
    let of = |list, key| {
        let name = text(&context.content, key)?;
        find(&document, list, name)?.ok_or_else(|| anyhow!("the {key} of its context is not in it"))
    };
    let (cluster, user) = (of(CLUSTERS, "cluster")?, of(USERS, "user")?);
    if let Some(name) = context_name {
        name.clone_into(&mut context.name);
    }
    Ok(Access {
        cluster,
        user,
        context,
    })
}

/// Adds the access to a kubeconfig and makes it current. A name of a different entry gets a number,
/// or with `force` the entry is replaced. Returns the document and the context's name.
pub(super) fn merge(
    mut document: Value,
    access: Access,
    force: bool,
) -> anyhow::Result<(Value, String)> {
    if document.is_null() {
        document = json!({ "apiVersion": "v1", "kind": "Config" });
    }
    ensure!(document.is_object(), "not a kubeconfig");
    let Access {
        cluster,
        user,
        mut context,
    } = access;
    let cluster = put(&mut document, CLUSTERS, cluster, force)?;
    let user = put(&mut document, USERS, user, force)?;
    if let Value::Object(content) = &mut context.content {
        content.insert("cluster".to_owned(), Value::from(cluster));
        content.insert("user".to_owned(), Value::from(user));
    }
    let name = put(&mut document, CONTEXTS, context, force)?;
    if let Value::Object(fields) = &mut document {
        fields.insert("current-context".to_owned(), Value::from(name.as_str()));
    }
    Ok((document, name))
}

/// Adds an entry, or finds the same one; returns its name.
fn put(
    document: &mut Value,
    list: (&str, &str),
    named: Named,
    force: bool,
) -> anyhow::Result<String> {
    let name = if force {
        named.name
    } else {
        free(document, list, &named)?
    };
    let (key, content) = list;
    let fields = document
        .as_object_mut()
        .ok_or_else(|| anyhow!("not a kubeconfig"))?;
    let entries = fields.entry(key).or_insert_with(|| json!([]));
    if entries.is_null() {
        *entries = json!([]);
    }
    let Value::Array(entries) = entries else {
        bail!("its {key} is not a list");
    };
    let mut entry = Map::new();
    entry.insert("name".to_owned(), Value::from(name.as_str()));
    entry.insert(content.to_owned(), named.content);
    let there = entries
        .iter_mut()
        .find(|there| there.get("name").and_then(Value::as_str) == Some(&name));
    match there {
        Some(there) => *there = Value::Object(entry),
        None => entries.push(Value::Object(entry)),
    }
    Ok(name)
}

fn free(document: &Value, list: (&str, &str), named: &Named) -> anyhow::Result<String> {
    let numbered = (1_u32..).map(|number| format!("{}-{number}", named.name));
    for candidate in std::iter::once(named.name.clone()).chain(numbered) {
        match find(document, list, &candidate)? {
            Some(there) if there.content != named.content => {}
            _ => return Ok(candidate),
        }
    }
    Ok(named.name.clone())
}

fn find(document: &Value, list: (&str, &str), name: &str) -> anyhow::Result<Option<Named>> {
    let (key, content) = list;
    let entries = match document.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(entries)) => entries,
        Some(_) => bail!("its {key} is not a list"),
    };
    let found = entries
        .iter()
        .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name));
    Ok(found.map(|entry| Named {
        name: name.to_owned(),
        content: entry.get(content).cloned().unwrap_or_default(),
    }))
}

fn text<'a>(value: &'a Value, key: &str) -> anyhow::Result<&'a str> {
    let found = value.get(key).and_then(Value::as_str);
    found.ok_or_else(|| anyhow!("it has no {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(server: &str) -> Access {
        let document = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": "c", "cluster": { "server": server } }],
            "users": [{ "name": "admin@c", "user": { "token": server } }],
            "contexts": [{ "name": "admin@c", "context": { "cluster": "c", "user": "admin@c" } }],
            "current-context": "admin@c",
        });
        single(document, None).unwrap()
    }

    #[test]
    fn merge_into_an_empty_file_is_idempotent() {
        let (document, name) = merge(Value::Null, access("a"), false).unwrap();
        assert_eq!(name, "admin@c");
        assert_eq!(document, access("a").document());
        let (again, _) = merge(document.clone(), access("a"), false).unwrap();
        assert_eq!(again, document);
    }

    #[test]
    fn merge_keeps_other_clusters_and_unknown_fields() {
        let mut old = access("old").document();
        old["extensions"] = json!([1]);
        let (merged, name) = merge(old.clone(), access("new"), false).unwrap();
        assert_eq!(name, "admin@c-1");
        assert_eq!(merged["current-context"], "admin@c-1");
        assert_eq!(merged["extensions"], json!([1]));
        assert_eq!(merged["clusters"][0], old["clusters"][0]);
        assert_eq!(merged["contexts"][1]["context"]["cluster"], "c-1");
        assert_eq!(merged["contexts"][1]["context"]["user"], "admin@c-1");
        let (forced, name) = merge(old, access("new"), true).unwrap();
        assert_eq!(name, "admin@c");
        assert_eq!(forced["clusters"].as_array().unwrap().len(), 1);
        assert_eq!(forced["clusters"][0]["cluster"]["server"], "new");
    }

    #[test]
    fn files_that_are_no_kubeconfig_are_refused() {
        for old in [json!([]), json!("x"), json!({ "clusters": "x" })] {
            assert!(merge(old.clone(), access("a"), false).is_err(), "{old}");
            assert!(merge(old.clone(), access("a"), true).is_err(), "{old}");
        }
        for given in [
            json!(null),
            json!({ "current-context": "x" }),
            json!({ "current-context": "x", "contexts": [{ "name": "x", "context": {} }] }),
        ] {
            assert!(single(given.clone(), None).is_err(), "{given}");
        }
        let renamed = single(access("a").document(), Some("mine")).unwrap();
        assert_eq!(renamed.document()["current-context"], "mine");
    }
}
