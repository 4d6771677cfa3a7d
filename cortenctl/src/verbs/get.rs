//! `get`: resources, by whatever name their type is known.

use corten_api::cosi::resource as api;
use corten_api::cosi::resource::EventType;
use corten_api::cosi::resource::meta::ResourceDefinitionSpec;
use corten_api::cosi::resource::state_client::StateClient;
use prost::Message as _;
use serde_json::{Map, Value, json};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::answers::{DEADLINE, explain, finish};
use crate::cli::Get;
use crate::connect::{Route, Session};
use crate::failure::Failure;
use crate::path;
use crate::table::{self, Format, Rows, print};

const DEFINITIONS: (&str, &str) = ("meta", "ResourceDefinitions.meta.cosi.dev");

/// One node, and the way to it.
struct Node {
    name: String,
    client: StateClient<Channel>,
    /// Asked through the endpoint; without it the endpoint answers itself.
    node: Option<MetadataValue<Ascii>>,
}

impl Node {
    /// One for each node of a session: this service answers for one at a time.
    fn all(name: &str, session: &Session) -> Vec<Node> {
        let client = StateClient::new(session.channel.clone())
            .max_decoding_message_size(corten_api::MAX_MESSAGE);
        let one = |name: &str, node| Node {
            name: name.to_owned(),
            client: client.clone(),
            node,
        };
        if session.nodes.is_empty() {
            return vec![one(name, None)];
        }
        let nodes = session.nodes.iter();
        nodes
            .map(|(name, value)| one(name, Some(value.clone())))
            .collect()
    }

    fn request<B>(&self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        if let Some(node) = &self.node {
            let metadata = request.metadata_mut();
            metadata.insert(corten_api::metadata::NODE, node.clone());
        }
        request
    }

    async fn list(&mut self, namespace: &str, kind: &str) -> Result<Vec<api::Resource>, Status> {
        let mut request = self.request(api::ListRequest {
            namespace: namespace.to_owned(),
            r#type: kind.to_owned(),
            options: None,
        });
        request.set_timeout(DEADLINE);
        let mut replies = self.client.list(request).await?.into_inner();
        let mut found = Vec::new();
        while let Some(reply) = replies.message().await? {
            found.extend(reply.resource);
        }
        Ok(found)
    }

    async fn one(
        &mut self,
        namespace: &str,
        kind: &str,
        id: &str,
    ) -> Result<api::Resource, Status> {
        let mut request = self.request(api::GetRequest {
            namespace: namespace.to_owned(),
            r#type: kind.to_owned(),
            id: id.to_owned(),
            options: None,
        });
        request.set_timeout(DEADLINE);
        let reply = self.client.get(request).await?.into_inner();
        Ok(reply.resource.unwrap_or_default())
    }

    /// The type somebody means by `name`.
    async fn definition(&mut self, name: &str) -> Result<ResourceDefinitionSpec, Problem> {
        let mut known = Vec::new();
        for resource in self.list(DEFINITIONS.0, DEFINITIONS.1).await? {
            let spec = resource.spec.unwrap_or_default().proto_spec;
            let broken = |error| Problem::Other(format!("a definition cannot be read: {error}"));
            known.push(ResourceDefinitionSpec::decode(&*spec).map_err(broken)?);
        }
        choose(known, name).map_err(Problem::Other)
    }
}

enum Problem {
    Call(Status),
    Other(String),
    Here(Failure),
}

impl From<Status> for Problem {
    fn from(status: Status) -> Problem {
        Problem::Call(status)
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        Problem::Here(failure)
    }
}

pub(crate) async fn run(routes: Vec<Route>, args: &Get) -> Result<(), Failure> {
    let mut failed = Vec::new();
    let mut shown = Shown::default();
    for Route { name, session } in routes {
        let session = match session {
            Ok(session) => session,
            Err(why) => {
                failed.push((name, why));
                continue;
            }
        };
        let nodes = Node::all(&name, &session);
        if args.watch && nodes.len() > 1 {
            return Err(Failure::usage(
                "only one node can be watched: name it with -n",
            ));
        }
        for mut node in nodes {
            let answer = if args.watch {
                watch(&mut node, args, &mut shown).await
            } else {
                get(&mut node, args, &mut shown).await
            };
            match answer {
                Ok(()) => {}
                Err(Problem::Call(status)) => {
                    failed.push((node.name, explain(&status, &session.roles)));
                }
                Err(Problem::Other(why)) => failed.push((node.name, why)),
                Err(Problem::Here(failure)) => return Err(failure),
            }
        }
    }
    print(&shown.rows.render())?;
    finish(&failed)
}

async fn get(node: &mut Node, args: &Get, shown: &mut Shown) -> Result<(), Problem> {
    let definition = node.definition(&args.kind).await?;
    let namespace = args
        .namespace
        .as_ref()
        .unwrap_or(&definition.default_namespace);
    let kind = &definition.resource_type;
    let found = match &args.id {
        Some(id) => vec![node.one(namespace, kind, id).await?],
        None => node.list(namespace, kind).await?,
    };
    shown.begin(&definition, false);
    for resource in found {
        shown.add(&node.name, &definition, resource, None, args.output.output)?;
    }
    Ok(())
}

async fn watch(node: &mut Node, args: &Get, shown: &mut Shown) -> Result<(), Problem> {
    let definition = node.definition(&args.kind).await?;
    let namespace = args
        .namespace
        .as_ref()
        .unwrap_or(&definition.default_namespace);
    let request = node.request(api::WatchRequest {
        namespace: namespace.clone(),
        r#type: definition.resource_type.clone(),
        id: args.id.clone(),
        options: Some(api::WatchOptions {
            bootstrap_contents: args.id.is_none(),
            ..Default::default()
        }),
        api_version: 1,
    });
    let mut frames = node.client.watch(request).await?.into_inner();
    shown.begin(&definition, true);
    // What is there is shown together, so that its columns are aligned.
    let mut live = args.id.is_some();
    while let Some(frame) = frames.message().await? {
        for event in frame.event {
            match event.event_type() {
                EventType::Bootstrapped => live = true,
                EventType::Noop => {}
                EventType::Errored => return Err(Problem::Other(event.error().to_owned())),
                kind @ (EventType::Created | EventType::Updated | EventType::Destroyed) => {
                    let resource = event.resource.unwrap_or_default();
                    let format = args.output.output;
                    shown.add(&node.name, &definition, resource, Some(kind), format)?;
                }
            }
        }
        if live {
            print(&shown.rows.render()).map_err(Failure::from)?;
        }
    }
    Ok(())
}

/// What is printed, and under which header.
#[derive(Default)]
struct Shown {
    rows: Rows,
    documents: usize,
}

impl Shown {
    fn begin(&mut self, definition: &ResourceDefinitionSpec, watching: bool) {
        if !self.rows.is_empty() {
            return;
        }
        let mut header = vec!["NODE".to_owned()];
        if watching {
            header.push("*".to_owned());
        }
        header.extend(["NAMESPACE", "TYPE", "ID", "VERSION"].map(str::to_owned));
        let columns = definition.print_columns.iter();
        header.extend(columns.map(|column| column.name.to_uppercase()));
        self.rows = Rows::new(header);
    }

    fn add(
        &mut self,
        node: &str,
        definition: &ResourceDefinitionSpec,
        resource: api::Resource,
        event: Option<EventType>,
        format: Format,
    ) -> Result<(), Problem> {
        let metadata = resource.metadata.unwrap_or_default();
        let yaml = resource.spec.unwrap_or_default().yaml_spec;
        let spec: Value = if yaml.is_empty() {
            Value::Null
        } else {
            serde_saphyr::from_str(&yaml).map_err(|error| {
                Problem::Other(format!(
                    "the spec of {} cannot be read: {error}",
                    metadata.id
                ))
            })?
        };
        if format != Format::Table {
            let document = document(node, event, &metadata, spec);
            // Only documents are printed.
            self.rows = Rows::default();
            let text = table::document(format, &document)?;
            let separator = if self.documents > 0 && format == Format::Yaml {
                "---\n"
            } else {
                ""
            };
            self.documents += 1;
            return Ok(print(&format!("{separator}{text}")).map_err(Failure::from)?);
        }
        let mut cells = vec![node.to_owned()];
        cells.extend(event.map(|event| sign(event).to_owned()));
        cells.extend([
            metadata.namespace,
            definition.display_type.clone(),
            metadata.id,
            metadata.version,
        ]);
        let columns = definition.print_columns.iter();
        cells.extend(columns.map(|column| path::text(&spec, &column.json_path)));
        self.rows.row(cells);
        Ok(())
    }
}

fn sign(event: EventType) -> &'static str {
    match event {
        EventType::Created => "+",
        EventType::Destroyed => "-",
        _ => " ",
    }
}

fn document(node: &str, event: Option<EventType>, metadata: &api::Metadata, spec: Value) -> Value {
    let mut fields = Map::new();
    fields.insert("node".to_owned(), Value::from(node));
    if let Some(event) = event {
        let word = event.as_str_name().to_lowercase();
        fields.insert("event".to_owned(), Value::from(word));
    }
    let time = |at: Option<prost_types::Timestamp>| at.map(|at| at.to_string());
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
            Err(format!("{name:?} can be any of {}", types.join(", ")))
        }
    }
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
    fn a_type_is_meant_by_name_or_alias_in_any_case() {
        let all = || vec![known("As.x", &["as", "a"]), known("Bs.x", &["bs", "a"])];
        for name in ["as.x", "AS"] {
            assert_eq!(choose(all(), name).unwrap().resource_type, "As.x");
        }
        assert_eq!(
            choose(all(), "a").unwrap_err(),
            "\"a\" can be any of As.x, Bs.x"
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
        let document = document("n", Some(EventType::Updated), &metadata, json!({ "b": 1 }));
        assert_eq!(document["node"], "n");
        assert_eq!(document["event"], "updated");
        assert_eq!(document["metadata"]["created"], "1970-01-01T00:00:00Z");
        assert_eq!(document["metadata"]["labels"]["k"], "v");
        assert_eq!(document["spec"]["b"], 1);
        assert_eq!(document["metadata"].get("finalizers"), None);
    }
}
