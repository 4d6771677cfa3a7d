//! `install`: installs the node to a disk, from its start medium or from an installer.

use corten_api::machine as api;
use corten_api::storage::BlockDeviceWipeRequest;
use corten_client::clients::{Disks, Lifecycle};
use corten_client::connect::Route;
use corten_client::failure::{Failure, finish};
use corten_client::stream::{Node, Trouble, each};

use crate::args::{ImageFile, ImageNamespace, Install};
use crate::upgrade::{follow, say};
use crate::{image, wipe};

/// Runs `install`.
///
/// # Errors
/// The installer cannot be sent, or a node refuses.
pub async fn run(routes: Vec<Route>, args: &Install) -> Result<(), Failure> {
    let failed = each(routes, async |node| install(node, args).await).await?;
    finish(&failed)
}

async fn install(node: &Node, args: &Install) -> Result<(), Trouble> {
    // Let the node refuse before the long transfer.
    let image = match &args.file {
        Some(file) => {
            let file = ImageFile {
                file: file.clone(),
                namespace: ImageNamespace::System,
            };
            image::import(node, &file).await?
        }
        None => args.image.clone().unwrap_or_default(),
    };
    if args.wipe {
        let request: BlockDeviceWipeRequest = wipe::fast(&args.disk);
        let request = node.request(request);
        node.client::<Disks>().block_device_wipe(request).await?;
        say(node, &format!("{} wiped", args.disk));
    }
    let request = node.request(api::LifecycleServiceInstallRequest {
        containerd: Some(image::instance(ImageNamespace::System)),
        source: Some(api::InstallArtifactsSource { image_name: image }),
        destination: Some(api::InstallDestination {
            disk: args.disk.clone(),
        }),
    });
    let answer = node.client::<Lifecycle>().install(request).await;
    follow(
        node,
        answer,
        |frame: api::LifecycleServiceInstallResponse| frame.progress,
    )
    .await
}
