//! `inspect.InspectService`: inputs and outputs of the controllers.

use corten_api::inspect as api;
use corten_api::inspect::DependencyEdgeType as EdgeType;
use corten_api::inspect::inspect_service_server::InspectService;
use corten_resources::controller::{Dependency, Graph, Input, Output, Ownership};
use tonic::{Request, Response, Status, async_trait};

use crate::controllers;

pub(super) struct Inspect;

#[async_trait]
impl InspectService for Inspect {
    async fn controller_runtime_dependencies(
        &self,
        _: Request<()>,
    ) -> Result<Response<api::ControllerRuntimeDependenciesResponse>, Status> {
        let graph = controllers::graph().map_err(|error| Status::internal(error.to_string()))?;
        let message = api::ControllerRuntimeDependency {
            metadata: None,
            edges: edges(&graph),
        };
        let messages = vec![message];
        Ok(Response::new(api::ControllerRuntimeDependenciesResponse {
            messages,
        }))
    }
}

fn edges(graph: &Graph) -> Vec<api::ControllerDependencyEdge> {
    graph
        .controllers()
        .flat_map(|(name, inputs, outputs)| {
            let inputs = inputs.iter().map(|input| reads(name, input));
            inputs.chain(outputs.iter().map(|output| writes(name, output)))
        })
        .collect()
}

fn reads(controller: &str, input: &Input) -> api::ControllerDependencyEdge {
    let edge_type = match input.dependency {
        Dependency::Strong => EdgeType::InputStrong,
        Dependency::Weak => EdgeType::InputWeak,
        Dependency::DestroyReady => EdgeType::InputDestroyReady,
    };
    api::ControllerDependencyEdge {
        controller_name: controller.to_owned(),
        edge_type: edge_type.into(),
        resource_namespace: input.namespace.to_owned(),
        resource_type: input.definition.type_name.to_owned(),
        resource_id: input.id.unwrap_or_default().to_owned(),
    }
}

fn writes(controller: &str, output: &Output) -> api::ControllerDependencyEdge {
    let edge_type = match output.ownership {
        Ownership::Exclusive => EdgeType::OutputExclusive,
        Ownership::Shared => EdgeType::OutputShared,
    };
    api::ControllerDependencyEdge {
        controller_name: controller.to_owned(),
        edge_type: edge_type.into(),
        resource_type: output.definition.type_name.to_owned(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_controller_dependency_is_an_edge() {
        let graph = controllers::graph().unwrap();
        let edges = edges(&graph);
        let lines = graph.to_string();
        let lines = lines.lines().filter(|line| line.starts_with(' '));
        assert_eq!(edges.len(), lines.count());
        let status = edges
            .iter()
            .find(|edge| {
                edge.controller_name == "runtime.MachineStatusController"
                    && edge.resource_id == "current"
            })
            .unwrap();
        assert_eq!(status.edge_type(), EdgeType::InputWeak);
        assert_eq!(status.resource_namespace, "network");
    }
}
