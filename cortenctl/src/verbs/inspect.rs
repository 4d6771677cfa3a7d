//! `inspect dependencies`: the resource types that each controller reads and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use corten_api::cosi::resource::meta::ResourceDefinitionSpec;
use corten_api::cosi::resource::meta::resource_definition_spec::Sensitivity;
use corten_api::inspect::{
    ControllerDependencyEdge, ControllerRuntimeDependency, DependencyEdgeType,
};
use corten_client::answers::{Answers, ask};
use corten_client::clients::Inspect;
use corten_client::connect::{Route, opened};
use corten_client::failure::Failure;
use corten_client::resources;
use corten_client::stream::{Failed, Trouble, each};
use corten_client::table::{print, printable};
use tonic::Code;

use crate::cli::Dependencies;

/// The ids of a node's resources by type.
pub(crate) type Resources = BTreeMap<String, BTreeSet<String>>;

pub(crate) async fn dependencies(routes: Vec<Route>, args: &Dependencies) -> Result<(), Failure> {
    let call = |mut client: Inspect, request| async move {
        client.controller_runtime_dependencies(request).await
    };
    let mut answers = ask(routes.clone(), (), call).await?;
    let mut resources = BTreeMap::new();
    if args.with_resources {
        let late = resources_of(opened(&routes), &answers, &mut resources).await?;
        answers.failed.extend(late);
    }
    for (node, message) in &answers.good {
        let none = Resources::new();
        print(&graph(node, message, resources.get(node).unwrap_or(&none)))?;
    }
    answers.finish()
}

/// Lists the resources of every type in the nodes' graphs; none for a secret type that may not be
/// read.
async fn resources_of(
    routes: Vec<Route>,
    answers: &Answers<ControllerRuntimeDependency>,
    found: &mut BTreeMap<String, Resources>,
) -> Result<Failed, Failure> {
    each(routes, async |node| {
        let Some((_, message)) = answers.good.iter().find(|(name, _)| *name == node.name) else {
            return Ok(());
        };
        let definitions = resources::definitions(node).await?;
        let of_node = found.entry(node.name.clone()).or_default();
        for ((namespace, kind), sensitivity) in places(&message.edges, &definitions) {
            let is_secret = sensitivity == Sensitivity::Sensitive;
            let listed = match resources::list(node, namespace, kind).await {
                Err(Trouble::Call(status))
                    if is_secret && status.code() == Code::PermissionDenied =>
                {
                    continue;
                }
                listed => listed?,
            };
            let ids = listed.into_iter().filter_map(|one| one.metadata);
            let known = of_node.entry(kind.to_owned()).or_default();
            known.extend(ids.map(|metadata| metadata.id));
        }
        Ok(())
    })
    .await
}

/// The namespaces and types of a graph's resources. The edge of a writing controller names no
/// namespace, and the type's default applies; it is unknown for a type that the node does not
/// define.
fn places<'a>(
    edges: &'a [ControllerDependencyEdge],
    definitions: &'a [ResourceDefinitionSpec],
) -> BTreeMap<(&'a str, &'a str), Sensitivity> {
    let definitions: BTreeMap<&str, &ResourceDefinitionSpec> = definitions
        .iter()
        .map(|one| (&*one.resource_type, one))
        .collect();
    let place = |edge: &'a ControllerDependencyEdge| {
        let definition = definitions.get(&*edge.resource_type)?;
        let namespace = match &*edge.resource_namespace {
            "" => &*definition.default_namespace,
            named => named,
        };
        Some(((namespace, &*edge.resource_type), definition.sensitivity()))
    };
    edges.iter().filter_map(place).collect()
}

/// The graph in Graphviz' language. Boxes are controllers, ellipses are resource types, and arrows
/// point in the direction of the data. Notes are resources, with a dotted line to their type.
pub(crate) fn graph(
    node: &str,
    message: &ControllerRuntimeDependency,
    resources: &Resources,
) -> String {
    let mut text = format!("digraph {} {{\n", quoted(node));
    let mut controllers: BTreeSet<&str> = BTreeSet::new();
    for edge in &message.edges {
        if controllers.insert(&edge.controller_name) {
            let name = quoted(&edge.controller_name);
            writeln!(text, "    {name} [shape=box];").ok();
        }
    }
    for edge in &message.edges {
        let controller = quoted(&edge.controller_name);
        let resource = quoted(&edge.resource_type);
        let (from, to, style) = match edge.edge_type() {
            DependencyEdgeType::OutputExclusive => (controller, resource, "bold"),
            DependencyEdgeType::OutputShared => (controller, resource, "solid"),
            DependencyEdgeType::InputStrong => (resource, controller, "solid"),
            DependencyEdgeType::InputWeak => (resource, controller, "dotted"),
            DependencyEdgeType::InputDestroyReady => (resource, controller, "dashed"),
        };
        let label = if edge.resource_id.is_empty() {
            String::new()
        } else {
            format!(", label={}", quoted(&edge.resource_id))
        };
        writeln!(text, "    {from} -> {to} [style={style}{label}];").ok();
    }
    for (kind, ids) in resources {
        for id in ids {
            let (kind, name) = (quoted(kind), quoted(&format!("{kind}/{id}")));
            writeln!(text, "    {name} [shape=note, label={}];", quoted(id)).ok();
            writeln!(text, "    {kind} -> {name} [style=dotted, arrowhead=none];").ok();
        }
    }
    text.push_str("}\n");
    text
}

/// A name quoted so that its content cannot end the string.
fn quoted(name: &str) -> String {
    let escaped = printable(name).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use corten_api::inspect::ControllerDependencyEdge;

    use super::*;

    #[test]
    fn graph_edges_follow_the_data_flow() {
        let edge = |name: &str, kind: DependencyEdgeType, resource: &str, id: &str| {
            ControllerDependencyEdge {
                controller_name: name.into(),
                edge_type: kind.into(),
                resource_type: resource.into(),
                resource_id: id.into(),
                ..Default::default()
            }
        };
        let message = ControllerRuntimeDependency {
            metadata: None,
            edges: vec![
                edge("a.C", DependencyEdgeType::InputWeak, "In", "x"),
                edge("a.C", DependencyEdgeType::OutputExclusive, "Out", ""),
                edge("b\"]\n\\", DependencyEdgeType::OutputShared, "Out", ""),
            ],
        };
        let expected = r#"digraph "n" {
    "a.C" [shape=box];
    "b\"]?\\" [shape=box];
    "In" -> "a.C" [style=dotted, label="x"];
    "a.C" -> "Out" [style=bold];
    "b\"]?\\" -> "Out" [style=solid];
}
"#;
        assert_eq!(graph("n", &message, &BTreeMap::new()), expected);
        let ids = ["a", "\""].map(str::to_owned);
        let resources = BTreeMap::from([("Out".to_owned(), BTreeSet::from(ids))]);
        let notes = r#"    "Out/\"" [shape=note, label="\""];
    "Out" -> "Out/\"" [style=dotted, arrowhead=none];
    "Out/a" [shape=note, label="a"];
    "Out" -> "Out/a" [style=dotted, arrowhead=none];
}
"#;
        let expected = expected.replace("}\n", notes);
        assert_eq!(graph("n", &message, &resources), expected);
    }

    #[test]
    fn resources_are_listed_from_declared_and_default_namespaces() {
        let edge = |namespace: &str, resource: &str| ControllerDependencyEdge {
            resource_namespace: namespace.into(),
            resource_type: resource.into(),
            ..Default::default()
        };
        let edges = [
            edge("", "Links"),
            edge("layers", "Links"),
            edge("net", "Links"),
            edge("", "Keys"),
            edge("", "Strangers"),
        ];
        let definition = |name: &str, namespace: &str, sensitivity| ResourceDefinitionSpec {
            resource_type: name.into(),
            default_namespace: namespace.into(),
            sensitivity: i32::from(sensitivity),
            ..Default::default()
        };
        let definitions = [
            definition("Links", "net", Sensitivity::NonSensitive),
            definition("Keys", "secrets", Sensitivity::Sensitive),
            definition("Others", "net", Sensitivity::NonSensitive),
        ];
        let expected = [
            (("layers", "Links"), Sensitivity::NonSensitive),
            (("net", "Links"), Sensitivity::NonSensitive),
            (("secrets", "Keys"), Sensitivity::Sensitive),
        ];
        assert_eq!(places(&edges, &definitions), BTreeMap::from(expected));
    }
}
