//! Container images: `machine.ImageService`, and the older `ImageList` and `ImagePull`.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use corten_api::common::{ContainerdInstance, ContainerdNamespace};
use corten_api::machine as api;
use corten_api::machine::image_service_import_request::Request as ImportPart;
use corten_api::machine::image_service_pull_layer_progress::Status as Stage;
use corten_api::machine::image_service_pull_response::Response as PullPart;
use corten_api::machine::image_service_server::ImageService;
use corten_config::registries::Registries;
use corten_containerd::client::{Containerd, Image, Progress, Purpose};
use corten_containerd::names::full_name;
use corten_observe::stream;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Response, Status, Streaming, async_trait};

use super::Paths;
use super::containers::instance;
use crate::node::Node;

/// Messages buffered for a slow client.
const AHEAD: usize = 16;

/// The service.
pub(super) struct Images {
    containerd: Containerd,
    node: Arc<dyn Node>,
}

impl Images {
    pub(super) fn new(paths: &Paths, node: Arc<dyn Node>) -> Images {
        Images {
            containerd: Containerd::new(&paths.containerd),
            node,
        }
    }
}

/// Registry settings of the active config.
fn registries(node: &dyn Node) -> Registries {
    node.config()
        .map(|config| config.registries())
        .unwrap_or_default()
}

#[async_trait]
impl ImageService for Images {
    async fn list(
        &self,
        request: Request<api::ImageServiceListRequest>,
    ) -> Result<Response<BoxStream<api::ImageServiceListResponse>>, Status> {
        let namespace = instance(request.into_inner().containerd)?;
        let images = self.containerd.images(namespace).await?;
        let messages = images.into_iter().map(|image| {
            Ok(api::ImageServiceListResponse {
                name: image.name,
                digest: image.digest,
                size: image.size,
                created_at: Some(image.created.into()),
                labels: image.labels,
            })
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(messages))))
    }

    async fn pull(
        &self,
        request: Request<api::ImageServicePullRequest>,
    ) -> Result<Response<BoxStream<api::ImageServicePullResponse>>, Status> {
        let request = request.into_inner();
        let namespace = instance(request.containerd)?;
        let name = name_in("image_ref", &request.image_ref)?;
        let (answers, receiver) = mpsc::channel(AHEAD);
        let (steps, mut progress) = mpsc::channel(AHEAD);
        let containerd = self.containerd.clone();
        let registries = registries(&*self.node);
        stream::task(answers.clone(), async move {
            let started = Instant::now();
            let tell = async {
                while let Some(step) = progress.recv().await {
                    if let Some(part) = pulled(step, started) {
                        let _ = answers.send(Ok(answer(part))).await;
                    }
                }
            };
            let pull = async {
                containerd.started().await;
                containerd
                    .pull(namespace, &name, Purpose::Containers, &registries, steps)
                    .await
            };
            // A caller that disconnects cancels the pull; containerd removes its incomplete content.
            let both = async { tokio::join!(pull, tell).0 };
            let ended = tokio::select! {
                ended = both => ended,
                () = answers.closed() => return,
            };
            let last = ended.map(|()| answer(PullPart::Name(name)));
            let _ = answers.send(last).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn import(
        &self,
        request: Request<Streaming<api::ImageServiceImportRequest>>,
    ) -> Result<Response<api::ImageServiceImportResponse>, Status> {
        let mut parts = request.into_inner();
        let first = parts.message().await?.and_then(|part| part.request);
        let Some(ImportPart::Containerd(first)) = first else {
            return Err(Status::invalid_argument(
                "the first message of an import names the containerd namespace, the others hold the archive",
            ));
        };
        let namespace = instance(Some(first))?;
        let bytes = parts.map(|part| match part?.request {
            Some(ImportPart::ImageChunk(chunk)) => Ok(Bytes::from(chunk.bytes)),
            _ => Err(Status::invalid_argument(
                "image_chunk: every message after the first holds a part of the archive",
            )),
        });
        self.containerd.started().await;
        let names = self.containerd.import(namespace, bytes).await?;
        let name = names.first().ok_or_else(|| {
            Status::invalid_argument("the archive holds no image for this machine's architecture")
        })?;
        Ok(Response::new(api::ImageServiceImportResponse {
            name: name.clone(),
        }))
    }

    async fn remove(
        &self,
        request: Request<api::ImageServiceRemoveRequest>,
    ) -> Result<Response<()>, Status> {
        let request = request.into_inner();
        let namespace = instance(request.containerd)?;
        // An imported image may have a name outside the grammar of registries, so the name is first tried as given.
        let given = &request.image_ref;
        match self.containerd.remove_image(namespace, given).await {
            Err(status) if status.code() == Code::NotFound => {
                let name = name_in("image_ref", given)?;
                if name == *given {
                    return Err(status);
                }
                self.containerd.remove_image(namespace, &name).await?;
            }
            other => other?,
        }
        Ok(Response::new(()))
    }
}

/// The older list; the namespace is a number.
pub(super) async fn list(
    paths: &Paths,
    namespace: ContainerdNamespace,
) -> Result<BoxStream<api::ImageListResponse>, Status> {
    let images = Containerd::new(&paths.containerd)
        .images(instance(Some(numbered(namespace)))?)
        .await?;
    let message = |image: Image| {
        Ok(api::ImageListResponse {
            metadata: None,
            name: image.name,
            digest: image.digest,
            size: image.size,
            created_at: Some(image.created.into()),
        })
    };
    Ok(Box::pin(tokio_stream::iter(
        images.into_iter().map(message),
    )))
}

/// The older pull, which reports no progress.
pub(super) async fn pull(
    paths: &Paths,
    node: &dyn Node,
    request: api::ImagePullRequest,
) -> Result<api::ImagePullResponse, Status> {
    let namespace = instance(Some(numbered(request.namespace())))?;
    let name = name_in("reference", &request.reference)?;
    // Progress is discarded.
    let (steps, _) = mpsc::channel(1);
    let containerd = Containerd::new(&paths.containerd);
    containerd.started().await;
    containerd
        .pull(
            namespace,
            &name,
            Purpose::Containers,
            &registries(node),
            steps,
        )
        .await?;
    Ok(api::ImagePullResponse {
        messages: vec![api::ImagePull { metadata: None }],
    })
}

fn numbered(namespace: ContainerdNamespace) -> ContainerdInstance {
    ContainerdInstance {
        namespace: namespace.into(),
        ..ContainerdInstance::default()
    }
}

/// containerd's name of the image in a field of a request.
fn name_in(field: &str, reference: &str) -> Result<String, Status> {
    full_name(reference).map_err(|error| {
        Status::invalid_argument(format!(
            "{field}: {reference:?} is not the name of an image ({error}), such as registry.k8s.io/pause:3.10"
        ))
    })
}

fn answer(part: PullPart) -> api::ImageServicePullResponse {
    api::ImageServicePullResponse {
        response: Some(part),
    }
}

/// Maps containerd's progress to the API's; progress of the whole image has no equivalent.
fn pulled(step: Progress, started: Instant) -> Option<PullPart> {
    let status = match step.event.as_str() {
        "waiting" | "downloading" => Stage::Downloading,
        "complete" => Stage::DownloadComplete,
        "extracting" => Stage::Extracting,
        "extracted" => Stage::ExtractComplete,
        "already exists" => Stage::AlreadyExists,
        _ => return None,
    };
    let elapsed = prost_types::Duration::try_from(started.elapsed()).ok();
    Some(PullPart::PullProgress(api::ImageServicePullProgress {
        layer_id: step.digest,
        progress: Some(api::ImageServicePullLayerProgress {
            status: status.into(),
            elapsed,
            offset: step.done,
            total: step.total,
        }),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_are_completed_and_invalid_ones_are_refused() {
        let whole = |name| name_in("image_ref", name).unwrap();
        assert_eq!(whole("nginx"), "docker.io/library/nginx:latest");
        assert_eq!(
            whole("registry.k8s.io/pause:3.10"),
            "registry.k8s.io/pause:3.10"
        );
        for wrong in ["", "a b", "x@sha256:zz", "x:"] {
            let refusal = name_in("image_ref", wrong).unwrap_err();
            assert!(refusal.message().starts_with("image_ref:"), "{refusal}");
        }
    }

    #[test]
    fn pull_progress_reports_layer_steps_only() {
        let step = |event: &str| Progress {
            name: "layer".to_owned(),
            digest: "sha256:1".to_owned(),
            event: event.to_owned(),
            done: 1,
            total: 2,
        };
        let told = pulled(step("downloading"), Instant::now());
        let Some(PullPart::PullProgress(told)) = told else {
            panic!("{told:?}");
        };
        assert_eq!(told.layer_id, "sha256:1");
        let progress = told.progress.unwrap();
        assert_eq!((progress.offset, progress.total), (1, 2));
        assert_eq!(progress.status(), Stage::Downloading);
        assert!(pulled(step("Resolving"), Instant::now()).is_none());
    }
}
