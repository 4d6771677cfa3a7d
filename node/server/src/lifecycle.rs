//! Version changes of the node: `machine.LifecycleService`, and the older `Upgrade` and `Rollback`.

use std::future::Future;
use std::sync::Arc;

use corten_api::machine as api;
use corten_api::machine::lifecycle_service_install_progress::Response as Part;
use corten_api::machine::lifecycle_service_server::LifecycleService;
use corten_containerd::client::SYSTEM;
use corten_observe::stream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};

use super::actions;
use super::containers::instance;
use crate::node::{Action, Install, Node, Stage, SubmitError, Upgrade, refused};

/// Number of progress lines buffered for a slow client.
const AHEAD: usize = 16;
/// Exit codes of the reference's installer after a refusal and after a failure.
const REFUSED: i32 = 4;
const FAILED: i32 = 7;

/// The gRPC service.
pub(super) struct Lifecycle {
    node: Arc<dyn Node>,
}

impl Lifecycle {
    pub(super) fn new(node: Arc<dyn Node>) -> Lifecycle {
        Lifecycle { node }
    }
}

#[async_trait]
impl LifecycleService for Lifecycle {
    /// Installs the version without a reboot, which is a separate call. The upgrade continues after the caller has
    /// disconnected.
    async fn upgrade(
        &self,
        request: Request<api::LifecycleServiceUpgradeRequest>,
    ) -> Result<Response<BoxStream<api::LifecycleServiceUpgradeResponse>>, Status> {
        let request = request.into_inner();
        let upgrade = Upgrade {
            image: named(request.source.unwrap_or_default().image_name)?,
            namespace: instance(request.containerd)?,
            force: false,
            staged: request.staged,
        };
        let node = self.node.clone();
        let upgraded = async move |tell| node.upgrade(upgrade, tell).await;
        Ok(answers(upgraded, |progress| {
            api::LifecycleServiceUpgradeResponse { progress }
        }))
    }

    /// Installs the node to a disk. A node without an owner restarts by itself, since an anonymous caller may not
    /// reboot it.
    async fn install(
        &self,
        request: Request<api::LifecycleServiceInstallRequest>,
    ) -> Result<Response<BoxStream<api::LifecycleServiceInstallResponse>>, Status> {
        let who = actions::who(&request);
        let request = request.into_inner();
        if let Some(asked) = request.containerd
            && instance(Some(asked))? != SYSTEM
        {
            return Err(Status::invalid_argument(
                "containerd: the installer must be in the namespace system",
            ));
        }
        let image = request.source.unwrap_or_default().image_name;
        let disk = request.destination.unwrap_or_default().disk;
        if disk.is_empty() {
            return Err(Status::invalid_argument(
                "destination.disk: name the disk, such as /dev/sda",
            ));
        }
        let install = Install {
            disk,
            image: Some(image).filter(|image| !image.is_empty()),
        };
        let node = self.node.clone();
        let installed = async move |tell: mpsc::Sender<String>| {
            let done = node.install(install, tell.clone()).await;
            if done.is_ok() && node.stage() == Stage::Maintenance {
                let line = match actions::submit(node.as_ref(), Action::Reboot, &who) {
                    Ok(_) => "rebooting into it".to_owned(),
                    Err(status) => format!(
                        "it cannot reboot by itself: {}; restart the machine",
                        status.message()
                    ),
                };
                let _ = tell.send(line).await;
            }
            done
        };
        Ok(answers(installed, |progress| {
            api::LifecycleServiceInstallResponse { progress }
        }))
    }
}

/// Runs a task that sends progress lines and ends with an exit code. It continues after the caller has disconnected.
fn answers<R: Send + 'static, F>(
    task: impl FnOnce(mpsc::Sender<String>) -> F + Send + 'static,
    frame: impl Fn(Option<api::LifecycleServiceInstallProgress>) -> R + Send + Sync + 'static,
) -> Response<BoxStream<R>>
where
    F: Future<Output = Result<String, SubmitError>> + Send,
{
    let answer = move |part| {
        frame(Some(api::LifecycleServiceInstallProgress {
            response: Some(part),
        }))
    };
    let (answers, receiver) = mpsc::channel(AHEAD);
    let (tell, mut lines) = mpsc::channel(AHEAD);
    stream::task(answers.clone(), async move {
        let told = async {
            while let Some(line) = lines.recv().await {
                let _ = answers.send(Ok(answer(Part::Message(line)))).await;
            }
        };
        let (done, ()) = tokio::join!(task(tell), told);
        if let Err(error) = &done {
            let line = Part::Message(error.to_string());
            let _ = answers.send(Ok(answer(line))).await;
        }
        let code = match done {
            Ok(_) => 0,
            Err(SubmitError::Failed(_)) => FAILED,
            Err(SubmitError::Busy(_) | SubmitError::Refused(_)) => REFUSED,
        };
        let _ = answers.send(Ok(answer(Part::ExitCode(code)))).await;
    });
    Response::new(Box::pin(ReceiverStream::new(receiver)))
}

/// The older call: installs the version, then drains and reboots the node unless the upgrade is staged. The upgrade
/// continues after the caller has disconnected, so that it always releases what it holds.
pub(super) async fn upgrade(
    node: Arc<dyn Node>,
    who: String,
    request: api::UpgradeRequest,
) -> Result<api::UpgradeResponse, Status> {
    actions::to_its_end(async move { upgrade_now(node.as_ref(), &who, request).await }).await
}

async fn upgrade_now(
    node: &dyn Node,
    who: &str,
    request: api::UpgradeRequest,
) -> Result<api::UpgradeResponse, Status> {
    let upgrade = Upgrade {
        image: named(request.image)?,
        namespace: SYSTEM,
        force: request.force,
        staged: request.stage,
    };
    // No client receives the progress.
    let (tell, _) = mpsc::channel(1);
    let version = node.upgrade(upgrade, tell).await;
    let version = version.map_err(|error| refused(&error))?;
    let (ack, actor_id) = match request.stage {
        true => (
            format!("version {version} is tried at the next start"),
            String::new(),
        ),
        false => {
            let id = actions::submit(node, Action::Upgrade, who)?;
            (format!("version {version} is tried now"), id)
        }
    };
    let upgrade = api::Upgrade {
        metadata: None,
        ack,
        actor_id,
    };
    Ok(api::UpgradeResponse {
        messages: vec![upgrade],
    })
}

/// Switches to the other version and reboots at once, since the caller makes no separate reboot call.
pub(super) async fn roll_back(node: &dyn Node, who: &str) -> Result<api::RollbackResponse, Status> {
    let left = node.leave().await;
    left.map_err(|error| refused(&error))?;
    if let Err(error) = node.roll_back().await {
        // A node that is busy may be on its way down for an earlier call, which needs the key.
        if !matches!(error, SubmitError::Busy(_)) {
            node.stay().await;
        }
        return Err(refused(&error));
    }
    actions::submit(node, Action::Reboot, who)?;
    let rollback = api::Rollback { metadata: None };
    Ok(api::RollbackResponse {
        messages: vec![rollback],
    })
}

fn named(image: String) -> Result<String, Status> {
    match image.is_empty() {
        true => Err(Status::invalid_argument(
            "image: name the installer, such as registry.example.org/installer:1.2.0",
        )),
        false => Ok(image),
    }
}
