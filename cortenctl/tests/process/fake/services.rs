//! The smaller services of the fake nodes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use corten_api::cluster::cluster_service_server::ClusterService;
use corten_api::cluster::{HealthCheckProgress, HealthCheckRequest};
use corten_api::common::Metadata;
use corten_api::google::rpc;
use corten_api::inspect::DependencyEdgeType as EdgeType;
use corten_api::inspect::inspect_service_server::InspectService;
use corten_api::inspect::{
    ControllerDependencyEdge, ControllerRuntimeDependenciesResponse, ControllerRuntimeDependency,
};
use corten_api::machine as api;
use corten_api::machine::image_service_import_request::Request as Sent;
use corten_api::machine::image_service_pull_response::Response as Pulled;
use corten_api::machine::image_service_server::ImageService;
use corten_api::machine::storage_service_server::StorageService as FileSystemService;
use corten_api::storage::storage_service_server::StorageService;
use corten_api::storage::{BlockDeviceWipe, BlockDeviceWipeRequest, BlockDeviceWipeResponse};
use corten_api::time as time_api;
use corten_api::time::time_service_server::TimeService;
use prost_types::Timestamp;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};

use super::resources::CONFIGS;
use super::{Fake, answer, each, frames, names, up};

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

fn time<T>(request: &Request<T>, server: &str) -> Response<time_api::TimeResponse> {
    let messages = each(
        request,
        |node, metadata| time_api::Time {
            metadata,
            server: server.to_owned(),
            localtime: at(if node == "evil" {
                i64::MIN
            } else {
                1_000_000_000
            }),
            remotetime: at(1_000_000_001),
        },
        |metadata| time_api::Time {
            metadata,
            ..Default::default()
        },
    );
    Response::new(time_api::TimeResponse { messages })
}

#[tonic::async_trait]
impl TimeService for Fake {
    async fn time(&self, request: Request<()>) -> Result<Response<time_api::TimeResponse>, Status> {
        Ok(time(&request, "ntp.example"))
    }

    async fn time_check(
        &self,
        request: Request<time_api::TimeRequest>,
    ) -> Result<Response<time_api::TimeResponse>, Status> {
        Ok(time(&request, &request.get_ref().server))
    }
}

#[tonic::async_trait]
impl StorageService for Fake {
    async fn block_device_wipe(
        &self,
        request: Request<BlockDeviceWipeRequest>,
    ) -> Result<Response<BlockDeviceWipeResponse>, Status> {
        let devices = &request.get_ref().devices;
        if devices.iter().any(|one| one.device == "vda") {
            let why = "device: vda is in use by the volume STATE";
            return Err(Status::failed_precondition(why));
        }
        // Waits until the client has seen progress: its third query comes after the second answer.
        let slow = names(&request, "nodes").iter().any(|node| node == "slow");
        while slow && self.looks.load(Ordering::Relaxed) < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        answer!(
            request,
            BlockDeviceWipeResponse,
            BlockDeviceWipe,
            |_, metadata| BlockDeviceWipe { metadata }
        )
    }
}

/// The service for the file systems of volumes.
#[tonic::async_trait]
impl FileSystemService for Fake {
    async fn statfs(
        &self,
        request: Request<api::StorageServiceStatfsRequest>,
    ) -> Result<Response<api::StorageServiceStatfsResponse>, Status> {
        let node = up(&request)?;
        Ok(Response::new(api::StorageServiceStatfsResponse {
            size: 100 << 20,
            used: if node == "evil" { u64::MAX } else { 7 << 20 },
            available: 93 << 20,
            inodes: 52_400,
            inodes_used: 9,
            inodes_free: 52_391,
        }))
    }
}

#[tonic::async_trait]
impl InspectService for Fake {
    async fn controller_runtime_dependencies(
        &self,
        request: Request<()>,
    ) -> Result<Response<ControllerRuntimeDependenciesResponse>, Status> {
        let messages = each(
            &request,
            |_, metadata| ControllerRuntimeDependency {
                metadata,
                // The edge of a writing controller has no namespace, as on a node.
                edges: [
                    (EdgeType::OutputExclusive, "", "LinkStatuses.net"),
                    (EdgeType::OutputExclusive, "", "Hostnames.net"),
                    (EdgeType::InputWeak, "config", CONFIGS),
                ]
                .map(|(edge_type, namespace, kind)| ControllerDependencyEdge {
                    controller_name: "network.LinkController".into(),
                    edge_type: edge_type.into(),
                    resource_namespace: namespace.into(),
                    resource_type: kind.into(),
                    ..Default::default()
                })
                .to_vec(),
            },
            |metadata| ControllerRuntimeDependency {
                metadata,
                ..Default::default()
            },
        );
        Ok(Response::new(ControllerRuntimeDependenciesResponse {
            messages,
        }))
    }
}

#[tonic::async_trait]
impl ClusterService for Fake {
    async fn health_check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<BoxStream<HealthCheckProgress>>, Status> {
        let nodes = request.get_ref().cluster_info.clone().unwrap_or_default();
        let named = [nodes.control_plane_nodes, nodes.worker_nodes].concat();
        let lines = [
            String::new(),
            format!("nodes: {}", named.join(" ")),
            "waiting for etcd to be healthy: ...".to_owned(),
            "waiting for etcd to be healthy: \u{1b}[1mOK".to_owned(),
        ];
        let said = |metadata: Option<Metadata>| {
            let frame = |message| HealthCheckProgress {
                metadata: metadata.clone(),
                message,
            };
            lines.clone().map(frame).to_vec()
        };
        let asked = names(&request, "nodes");
        if asked.is_empty() {
            return Ok(frames(said(None)));
        }
        let of_each = asked.into_iter().flat_map(|hostname| {
            let refusal = match hostname.as_str() {
                "down" => Some(Status::unavailable("no route to host")),
                "strict" => Some(Status::permission_denied("not authorized")),
                _ => None,
            };
            let metadata = Some(Metadata {
                hostname,
                error: String::new(),
                status: refusal.as_ref().map(|refusal| rpc::Status {
                    code: refusal.code().into(),
                    message: refusal.message().to_owned(),
                    details: Vec::new(),
                }),
            });
            let message = String::new();
            match refusal {
                Some(_) => vec![HealthCheckProgress { metadata, message }],
                None => said(metadata),
            }
        });
        Ok(frames(of_each.collect()))
    }
}

/// The images in the call of nodes without an image service.
pub(super) fn images(
    request: &Request<api::ImageListRequest>,
) -> Result<Response<BoxStream<api::ImageListResponse>>, Status> {
    up(request)?;
    let image = api::ImageListResponse {
        name: "registry.example/old:1".into(),
        digest: "sha256:4321".into(),
        size: 1000,
        ..Default::default()
    };
    Ok(frames(vec![image]))
}

#[tonic::async_trait]
impl ImageService for Fake {
    async fn list(
        &self,
        request: Request<api::ImageServiceListRequest>,
    ) -> Result<Response<BoxStream<api::ImageServiceListResponse>>, Status> {
        let node = up(&request)?;
        if node == "old" {
            return Err(Status::unimplemented("no such service"));
        }
        let image = api::ImageServiceListResponse {
            name: "registry.example/a:1".into(),
            digest: "sha256:1234".into(),
            size: if node == "evil" { -1 } else { 12_345_678 },
            created_at: at(1_000_000_000),
            labels: [("b".into(), "2".into()), ("a".into(), "1".into())].into(),
        };
        Ok(frames(vec![image]))
    }

    async fn pull(
        &self,
        request: Request<api::ImageServicePullRequest>,
    ) -> Result<Response<BoxStream<api::ImageServicePullResponse>>, Status> {
        up(&request)?;
        let progress = api::ImageServicePullProgress {
            layer_id: "sha256:99".into(),
            progress: Some(api::ImageServicePullLayerProgress {
                status: 0,
                offset: 1_000_000,
                total: -1,
                ..Default::default()
            }),
        };
        let name = request.get_ref().image_ref.clone();
        let frame = |response| api::ImageServicePullResponse {
            response: Some(response),
        };
        Ok(frames(vec![
            frame(Pulled::PullProgress(progress)),
            frame(Pulled::Name(name)),
        ]))
    }

    async fn import(
        &self,
        request: Request<Streaming<api::ImageServiceImportRequest>>,
    ) -> Result<Response<api::ImageServiceImportResponse>, Status> {
        up(&request)?;
        let mut frames = request.into_inner();
        let mut bytes = 0;
        while let Some(frame) = frames.message().await? {
            if let Some(Sent::ImageChunk(data)) = frame.request {
                bytes += data.bytes.len();
            }
        }
        let name = format!("registry.example/of-{bytes}-bytes:1");
        Ok(Response::new(api::ImageServiceImportResponse { name }))
    }

    async fn remove(
        &self,
        request: Request<api::ImageServiceRemoveRequest>,
    ) -> Result<Response<()>, Status> {
        up(&request)?;
        Err(Status::failed_precondition("a container uses it"))
    }
}
