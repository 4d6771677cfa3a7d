//! `image`: container images.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use corten_api::common::{ContainerDriver, ContainerdInstance, ContainerdNamespace, Data};
use corten_api::machine::image_service_import_request::Request as Part;
use corten_api::machine::image_service_pull_response::Response as Pulled;
use corten_api::machine::{
    ImageListRequest, ImageListResponse, ImagePullRequest, ImageServiceImportRequest,
    ImageServiceListRequest, ImageServiceListResponse, ImageServicePullLayerProgress,
    ImageServicePullRequest, ImageServicePullResponse, ImageServiceRemoveRequest,
    image_service_pull_layer_progress::Status,
};
use corten_client::answers::Answers;
use corten_client::clients::{Images, Machine};
use corten_client::connect::routes;
use corten_client::failure::{Failure, finish};
use corten_client::flags::Global;
use corten_client::output::show;
use corten_client::progress::Progress;
use corten_client::stream::{Node, Trouble, drain, each};
use corten_client::table::{Table, print, printable};
use corten_client::units;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::args::{Image, ImageFile, ImageName, ImageNamespace, ImageVerb};
use crate::bundle;

/// Bytes of an archive in one message, and number of messages buffered for a slow node.
const CHUNK: usize = 32 << 10;
const AHEAD: usize = 4;
const HEADER: &[&str] = &["NODE", "IMAGE", "DIGEST", "SIZE", "LABELS", "CREATED"];

/// Runs `image`.
///
/// # Errors
/// A node refuses, or the archive cannot be read.
pub async fn run(global: &Global, args: &Image) -> Result<(), Failure> {
    match &args.verb {
        ImageVerb::Bundle(args) => Ok(print(&bundle::lines(args))?),
        ImageVerb::List(args) => {
            let mut good = Vec::new();
            let failed = each(routes(global).await?, async |node| {
                good.push((node.name.clone(), images(node, args.namespace).await?));
                Ok(())
            })
            .await?;
            let answers = Answers { good, failed };
            show(answers, &args.output.output, table, |images| fields(images))
        }
        ImageVerb::Pull(args) => {
            let routes = routes(global).await?;
            finish(&each(routes, async |node| pull(node, args).await).await?)
        }
        ImageVerb::Import(args) => {
            let routes = routes(global).await?;
            let failed = each(routes, async |node| import(node, args).await.map(drop)).await?;
            finish(&failed)
        }
        ImageVerb::Remove(args) => {
            let failed = each(routes(global).await?, async |node| {
                let request = node.brief(ImageServiceRemoveRequest {
                    containerd: Some(instance(args.namespace)),
                    image_ref: args.image.clone(),
                });
                node.client::<Images>().remove(request).await?;
                Ok(())
            })
            .await?;
            finish(&failed)
        }
    }
}

pub(crate) fn instance(namespace: ImageNamespace) -> ContainerdInstance {
    let (driver, namespace) = match namespace {
        ImageNamespace::System => (ContainerDriver::Containerd, ContainerdNamespace::NsSystem),
        ImageNamespace::Cri => (ContainerDriver::Cri, ContainerdNamespace::NsCri),
    };
    ContainerdInstance {
        driver: driver.into(),
        namespace: namespace.into(),
    }
}

/// The images from the image service, or from the call of older nodes.
async fn images(
    node: &Node,
    namespace: ImageNamespace,
) -> Result<Vec<ImageServiceListResponse>, Trouble> {
    let mut found = Vec::new();
    let request = node.brief(ImageServiceListRequest {
        containerd: Some(instance(namespace)),
    });
    let answer = match node.client::<Images>().list(request).await {
        Ok(answer) => {
            drain(&mut answer.into_inner(), |image| {
                found.push(image);
                Ok(())
            })
            .await
        }
        Err(status) => Err(status.into()),
    };
    match answer {
        Err(Trouble::Call(status)) if status.code() == Code::Unimplemented => {}
        other => return other.map(|()| found),
    }
    let request = node.brief(ImageListRequest {
        namespace: instance(namespace).namespace,
    });
    let mut frames = node
        .client::<Machine>()
        .image_list(request)
        .await?
        .into_inner();
    drain(&mut frames, |image: ImageListResponse| {
        found.push(ImageServiceListResponse {
            name: image.name,
            digest: image.digest,
            size: image.size,
            created_at: image.created_at,
            ..Default::default()
        });
        Ok(())
    })
    .await?;
    Ok(found)
}

fn table(nodes: &[(String, Vec<ImageServiceListResponse>)]) -> String {
    let mut table = Table::new(HEADER);
    for (node, images) in nodes {
        for image in images {
            table.row(cells(node, image));
        }
    }
    table.render()
}

fn fields(images: &[ImageServiceListResponse]) -> Value {
    let images = images.iter().map(|image| {
        let labels: BTreeMap<_, _> = image.labels.iter().collect();
        json!({
            "image": image.name,
            "digest": image.digest,
            "size": image.size,
            "labels": labels,
            "created": image.created_at.map(units::moment),
        })
    });
    json!({ "images": images.collect::<Vec<_>>() })
}

fn cells(node: &str, image: &ImageServiceListResponse) -> [String; 6] {
    let sorted: BTreeMap<_, _> = image.labels.iter().collect();
    let labels = sorted.iter().map(|(name, value)| format!("{name}={value}"));
    [
        node.to_owned(),
        image.name.clone(),
        image.digest.clone(),
        units::signed_size(image.size),
        labels.collect::<Vec<_>>().join(","),
        image.created_at.map_or_else(String::new, units::moment),
    ]
}

pub(crate) async fn pull(node: &Node, args: &ImageName) -> Result<(), Trouble> {
    let request = node.request(ImageServicePullRequest {
        containerd: Some(instance(args.namespace)),
        image_ref: args.image.clone(),
    });
    let answer = match node.client::<Images>().pull(request).await {
        Ok(answer) => {
            drain(
                &mut answer.into_inner(),
                |frame: ImageServicePullResponse| {
                    let text = match frame.response {
                        Some(Pulled::Name(name)) => format!("pulled {name}"),
                        Some(Pulled::PullProgress(layer)) => {
                            let progress = layer.progress.unwrap_or_default();
                            format!("{}: {}", layer.layer_id, stage(&progress))
                        }
                        None => return Ok(()),
                    };
                    eprintln!("{}: {}", printable(&node.name), printable(&text));
                    Ok(())
                },
            )
            .await
        }
        Err(status) => Err(status.into()),
    };
    match answer {
        Err(Trouble::Call(status)) if status.code() == Code::Unimplemented => {}
        other => return other,
    }
    let request = node.request(ImagePullRequest {
        namespace: instance(args.namespace).namespace,
        reference: args.image.clone(),
    });
    node.client::<Machine>().image_pull(request).await?;
    eprintln!(
        "{}: pulled {}",
        printable(&node.name),
        printable(&args.image)
    );
    Ok(())
}

/// Uploads the file with back-pressure from the node. Returns the node's name of the image.
pub(crate) async fn import(node: &Node, args: &ImageFile) -> Result<String, Trouble> {
    let mut file = open(&args.file).await?;
    let (messages, sent) = mpsc::channel(AHEAD);
    let request = node.request(ReceiverStream::new(sent));
    let mut progress = Progress::new(format!("{}: sent", node.name));
    let feed = async move {
        let mut part = Part::Containerd(instance(args.namespace));
        // The node's answer says why it ended the upload.
        while messages.send(message(part)).await.is_ok() {
            let mut bytes = Vec::with_capacity(CHUNK);
            if (&mut file)
                .take(CHUNK as u64)
                .read_to_end(&mut bytes)
                .await?
                == 0
            {
                break;
            }
            progress.add(bytes.len());
            part = Part::ImageChunk(Data {
                metadata: None,
                bytes,
            });
        }
        Ok::<_, Trouble>(())
    };
    let mut client = node.client::<Images>();
    let (fed, answer) = tokio::join!(feed, client.import(request));
    fed?;
    let name = answer?.into_inner().name;
    eprintln!("{}: imported {}", printable(&node.name), printable(&name));
    Ok(name)
}

fn message(part: Part) -> ImageServiceImportRequest {
    ImageServiceImportRequest {
        request: Some(part),
    }
}

async fn open(path: &Path) -> Result<File, Failure> {
    let file = File::open(path).await;
    Ok(file.with_context(|| path.display().to_string())?)
}

fn stage(progress: &ImageServicePullLayerProgress) -> String {
    let part = || {
        let (offset, total) = (progress.offset, progress.total);
        format!(
            "{} of {}",
            units::signed_size(offset),
            units::signed_size(total)
        )
    };
    match Status::try_from(progress.status) {
        Ok(Status::Downloading) => format!("downloading, {}", part()),
        Ok(Status::DownloadComplete) => "downloaded".to_owned(),
        Ok(Status::Extracting) => "unpacking".to_owned(),
        Ok(Status::ExtractComplete) => "unpacked".to_owned(),
        Ok(Status::AlreadyExists) => "is there".to_owned(),
        Err(_) => progress.status.to_string(),
    }
}
