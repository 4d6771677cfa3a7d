//! The resources of a node, over `cosi.resource.State`.

use corten_api::cosi::resource as api;
use corten_api::cosi::resource::meta::ResourceDefinitionSpec;
use prost::Message as _;
use serde_json::{Map, Value, json};
use tonic::Code;

use crate::clients::State;
use crate::stream::{Node, Trouble, drain};
use crate::yaml;

const DEFINITIONS: (&str, &str) = ("meta", "ResourceDefinitions.meta.cosi.dev");

/// All resources of a type.
pub async fn list(node: &Node, namespace: &str, kind: &str) -> Result<Vec<api::Resource>, Trouble> {
    let request = node.brief(api::ListRequest {
        namespace: namespace.to_owned(),
        r#type: kind.to_owned(),
        options: None,
    });
    let mut frames = node.client::<State>().list(request).await?.into_inner();
    let mut found = Vec::new();
    drain(&mut frames, |frame: api::ListResponse| {
        found.extend(frame.resource);
        Ok(())
    })
    .await?;
    Ok(found)
}

/// One resource.
pub async fn one(
    node: &Node,
    namespace: &str,
    kind: &str,
    id: &str,
) -> Result<api::Resource, Trouble> {
    let request = node.brief(api::GetRequest {
        namespace: namespace.to_owned(),
        r#type: kind.to_owned(),
        id: id.to_owned(),
        options: None,
    });
    let reply = node.client::<State>().get(request).await?.into_inner();
    Ok(reply.resource.unwrap_or_default())
}

/// The spec of a resource; `None` if the node has no such resource or type.
pub async fn find(
    node: &Node,
    namespace: &str,
    kind: &str,
    id: &str,
) -> Result<Option<Value>, Trouble> {
    match one(node, namespace, kind, id).await {
        Ok(resource) => spec(&resource).map(Some),
        Err(Trouble::Call(status)) if status.code() == Code::NotFound => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// The node's type, such as `controlplane`; `None` if it has no config.
pub async fn machine_type(node: &Node) -> Result<Option<String>, Trouble> {
    let kind = "MachineTypes.config.talos.dev";
    let found = find(node, "config", kind, "machine-type").await?;
    Ok(found.and_then(|found| found.as_str().map(str::to_owned)))
}

/// Whether the node's etcd member runs, votes and knows a leader.
pub async fn has_member(node: &Node) -> Result<bool, Trouble> {
    let member = find(node, "etcd", "EtcdMembers.etcd.talos.dev", "local").await?;
    Ok(member.is_some())
}

/// Every resource type of the node.
pub async fn definitions(node: &Node) -> Result<Vec<ResourceDefinitionSpec>, Trouble> {
    let mut known = Vec::new();
    for resource in list(node, DEFINITIONS.0, DEFINITIONS.1).await? {
        let spec = resource.spec.unwrap_or_default().proto_spec;
        let broken = |error| Trouble::Said(format!("a definition cannot be read: {error}"));
        known.push(ResourceDefinitionSpec::decode(&*spec).map_err(broken)?);
    }
    Ok(known)
}

/// The type with the name or alias `name`.
pub async fn definition(node: &Node, name: &str) -> Result<ResourceDefinitionSpec, Trouble> {
    choose(definitions(node).await?, name).map_err(Trouble::Said)
}

/// The one definition with this name or alias.
fn choose(
    known: Vec<ResourceDefinitionSpec>,
    name: &str,
) -> Result<ResourceDefinitionSpec, String> {
    let wanted = name.to_lowercase();
    let is_it = |one: &ResourceDefinitionSpec| {
        one.resource_type.to_lowercase() == wanted
            || one
                .all_aliases
                .iter()
                .any(|alias| alias.to_lowercase() == wanted)
    };
    let mut found: Vec<_> = known.into_iter().filter(is_it).collect();
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (None, _) => Err(format!(
            "there is no resource type {name:?}; `get rd` lists them"
        )),
        (Some(last), false) => {
            let mut types: Vec<_> = found.into_iter().map(|one| one.resource_type).collect();
            types.push(last.resource_type);
            Err(format!(
                "{name:?} is ambiguous: name one of {}",
                types.join(", ")
            ))
        }
    }
}

/// The spec of a resource, parsed from its YAML form.
pub fn spec(resource: &api::Resource) -> Result<Value, Trouble> {
    let yaml = resource.spec.as_ref().map_or("", |spec| &spec.yaml_spec);
    if yaml.is_empty() {
        return Ok(Value::Null);
    }
    serde_saphyr::from_str(yaml).map_err(|error| {
        let id = resource
            .metadata
            .as_ref()
            .map_or("", |metadata| &metadata.id);
        let place = yaml::place(&error);
        Trouble::Said(format!("the spec of {id} cannot be read{place}"))
    })
}

/// A resource as a document, with the keys that scripts read.
pub fn document(node: &str, event: Option<&str>, metadata: &api::Metadata, spec: Value) -> Value {
    let mut fields = Map::new();
    fields.insert("node".to_owned(), Value::from(node));
    if let Some(event) = event {
        fields.insert("event".to_owned(), Value::from(event));
    }
    let time = |at: Option<prost_types::Timestamp>| at.map(crate::units::moment);
    let mut sorted: Map<String, Value> = Map::new();
    for (name, tags) in [
        ("labels", &metadata.labels),
        ("annotations", &metadata.annotations),
    ] {
        if !tags.is_empty() {
            let tags: std::collections::BTreeMap<_, _> = tags.iter().collect();
            sorted.insert(name.to_owned(), json!(tags));
        }
    }
    let mut all = json!({
        "namespace": metadata.namespace,
        "type": metadata.r#type,
        "id": metadata.id,
        "version": metadata.version,
        "owner": metadata.owner,
        "phase": metadata.phase,
        "created": time(metadata.created),
        "updated": time(metadata.updated),
    });
    if let Value::Object(all) = &mut all {
        all.extend(sorted);
        if !metadata.finalizers.is_empty() {
            all.insert("finalizers".to_owned(), json!(metadata.finalizers));
        }
    }
    fields.insert("metadata".to_owned(), all);
    fields.insert("spec".to_owned(), spec);
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(name: &str, aliases: &[&str]) -> ResourceDefinitionSpec {
        ResourceDefinitionSpec {
            resource_type: name.to_owned(),
            all_aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn type_is_found_by_name_or_alias_in_any_case() {
        let all = || vec![known("As.x", &["as", "a"]), known("Bs.x", &["bs", "a"])];
        for name in ["as.x", "AS"] {
            assert_eq!(choose(all(), name).unwrap().resource_type, "As.x");
        }
        assert_eq!(
            choose(all(), "a").unwrap_err(),
            "\"a\" is ambiguous: name one of As.x, Bs.x"
        );
        assert!(choose(all(), "c").unwrap_err().contains("no resource type"));
    }

    #[test]
    fn documents_have_the_fields_scripts_read() {
        let metadata = api::Metadata {
            id: "a".to_owned(),
            labels: [("k".to_owned(), "v".to_owned())].into(),
            created: Some(prost_types::Timestamp::default()),
            ..Default::default()
        };
        let document = document("n", Some("updated"), &metadata, json!({ "b": 1 }));
        assert_eq!(document["node"], "n");
        assert_eq!(document["event"], "updated");
        assert_eq!(document["metadata"]["created"], "1970-01-01T00:00:00Z");
        assert_eq!(document["metadata"]["labels"]["k"], "v");
        assert_eq!(document["spec"]["b"], 1);
        assert_eq!(document["metadata"].get("finalizers"), None);
    }

    #[test]
    fn a_spec_that_cannot_be_read_is_not_quoted() {
        let resource = api::Resource {
            metadata: Some(api::Metadata {
                id: "v1alpha1".into(),
                ..Default::default()
            }),
            spec: Some(api::Spec {
                yaml_spec: "token: [hunter2".into(),
                ..Default::default()
            }),
        };
        let Err(Trouble::Said(text)) = spec(&resource) else {
            panic!("it was read");
        };
        assert!(
            text.starts_with("the spec of v1alpha1 cannot be read at line "),
            "{text}"
        );
        assert!(!text.contains("hunter2"), "{text}");
    }
}
