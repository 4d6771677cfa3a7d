//! `inspect dependencies`: which controller reads and writes what.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use corten_api::inspect::{ControllerRuntimeDependency, DependencyEdgeType};

use crate::answers::ask;
use crate::clients::Inspect;
use crate::connect::Route;
use crate::failure::Failure;
use crate::table::{print, printable};

pub(crate) async fn dependencies(routes: Vec<Route>) -> Result<(), Failure> {
    let answers = ask(routes, (), |mut client: Inspect, request| async move {
        client.controller_runtime_dependencies(request).await
    })
    .await?;
    for (node, message) in &answers.good {
        print(&graph(node, message))?;
    }
    answers.finish()
}

/// A graph in the language of Graphviz: boxes are controllers, ellipses are
/// types of resources, and arrows point where the data goes.
fn graph(node: &str, message: &ControllerRuntimeDependency) -> String {
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
    text.push_str("}\n");
    text
}

/// A name that ends where it ends.
fn quoted(name: &str) -> String {
    let escaped = printable(name).replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use corten_api::inspect::ControllerDependencyEdge;

    use super::*;

    #[test]
    fn arrows_point_where_the_data_goes() {
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
        assert_eq!(graph("n", &message), expected);
    }
}
