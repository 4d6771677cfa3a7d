//! `inspect.InspectService`: inputs and outputs of the controllers.

use std::sync::Arc;

use corten_api::inspect as api;
use corten_api::inspect::DependencyEdgeType as EdgeType;
use corten_api::inspect::inspect_service_server::InspectService;
use corten_resources::controller::{Dependency, Graph, Input, Output, Ownership};
use tonic::{Request, Response, Status, async_trait};

use crate::node::Node;

pub(super) struct Inspect {
    pub(super) node: Arc<dyn Node>,
}

#[async_trait]
impl InspectService for Inspect {
    async fn controller_runtime_dependencies(
        &self,
        _: Request<()>,
    ) -> Result<Response<api::ControllerRuntimeDependenciesResponse>, Status> {
        let graph = self.node.graph();
        let graph = graph.map_err(|error| Status::internal(error.to_string()))?;
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
    use corten_resources::Store;
    use corten_resources::controller::{Context, Controller, Failure, Runtime};
    use corten_types::clock::TimeStatus;
    use corten_types::network::HostnameStatus;

    use super::*;

    #[derive(Debug, Clone)]
    struct Clock;

    impl Controller for Clock {
        fn name(&self) -> &'static str {
            "time.ClockController"
        }

        fn inputs(&self) -> Vec<Input> {
            let id = HostnameStatus::ID;
            vec![Input::of::<HostnameStatus>(Dependency::Weak).with_id(id)]
        }

        fn outputs(&self) -> Vec<Output> {
            vec![Output::exclusive::<TimeStatus>()]
        }

        async fn run(self, _: &mut Context) -> Result<(), Failure> {
            Ok(())
        }
    }

    #[test]
    fn every_controller_dependency_is_an_edge() {
        let mut runtime = Runtime::new(Store::new());
        runtime.add(Clock).unwrap();
        let edges = edges(runtime.graph());
        let [read, written] = edges.as_slice() else {
            panic!("{edges:?}");
        };
        assert_eq!(read.controller_name, "time.ClockController");
        assert_eq!(read.edge_type(), EdgeType::InputWeak);
        assert_eq!(read.resource_namespace, "network");
        assert_eq!(read.resource_type, "HostnameStatuses.net.talos.dev");
        assert_eq!(read.resource_id, HostnameStatus::ID);
        assert_eq!(written.controller_name, read.controller_name);
        assert_eq!(written.edge_type(), EdgeType::OutputExclusive);
        assert_eq!(written.resource_type, "TimeStatuses.v1alpha1.talos.dev");
    }
}
