//! Imports images: pulls from a registry, or reads an archive from the caller.

use std::collections::HashMap;

use bytes::Bytes;
use containerd_client::services::v1::{TransferOptions, TransferRequest};
use containerd_client::to_any;
use containerd_client::types::Platform;
use containerd_client::types::transfer::{
    AuthRequest, AuthResponse, AuthType, Data, ImageImportStream, ImageReference, ImageStore,
    OciRegistry, Progress as Step, RegistryResolver, UnpackConfiguration, WindowUpdate,
};
use corten_config::registries::Registries;
use futures_util::{Stream, StreamExt as _};
use prost_types::Any;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::stream::Pipe;
use super::{Containerd, Session, client};
use crate::registries::{Login, login};

/// Size limit of a message in a byte stream.
const CHUNK: usize = 32 << 10;

/// Label on the image of each pulled extension. Its value is the image's name, because containerd drops labels without
/// a value.
pub(super) const EXTENSION: &str = "corten.extension";
/// The same label for installers.
pub(super) const INSTALLER: &str = "corten.installer";

/// Purpose of a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Running containers, so the image is unpacked.
    Containers,
    /// A system extension, which is read packed.
    Extension,
    /// An installer, which is read packed.
    Installer,
}

/// Progress of one part of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Name of the image or part.
    pub name: String,
    /// Digest of the part; empty without one.
    pub digest: String,
    /// containerd's event: `waiting`, `downloading`, `complete`, `extracting`, `extracted`, ...
    pub event: String,
    /// Bytes done.
    pub done: i64,
    /// Total bytes; 0 if unknown.
    pub total: i64,
}

impl Containerd {
    /// Pulls `reference`, a full name with tag or digest, for this machine's architecture, with the credentials of
    /// `registries`. `progress` receives events while its receiver exists.
    ///
    /// # Errors
    /// An error of the registry or of containerd.
    pub async fn pull(
        &self,
        namespace: &'static str,
        reference: &str,
        purpose: Purpose,
        registries: &Registries,
        progress: mpsc::Sender<Progress>,
    ) -> Result<(), Status> {
        let session = self.connect(namespace).await?;
        let questions = Pipe::open(&session).await?;
        let source = to_any(&OciRegistry {
            reference: reference.to_owned(),
            // The same mirrors in the same order as for pods.
            resolver: Some(RegistryResolver {
                host_dir: self.hosts.display().to_string(),
                auth_stream: questions.id.clone(),
                ..RegistryResolver::default()
            }),
        });
        let store = ImageStore {
            name: reference.to_owned(),
            platforms: vec![platform()],
            unpacks: match purpose {
                Purpose::Containers => vec![unpack()],
                Purpose::Extension | Purpose::Installer => Vec::new(),
            },
            labels: match purpose {
                Purpose::Containers => HashMap::new(),
                Purpose::Extension => HashMap::from([(EXTENSION.to_owned(), reference.to_owned())]),
                Purpose::Installer => HashMap::from([(INSTALLER.to_owned(), reference.to_owned())]),
            },
            ..ImageStore::default()
        };
        let transfer = transfer(&session, source, to_any(&store), progress);
        let answers = async {
            answer(questions, registries).await;
            // Only the transfer has a result.
            std::future::pending().await
        };
        tokio::select! {
            ended = transfer => ended,
            ended = answers => ended,
        }
        .map_err(explained)
    }

    /// Stores and unpacks the images of an archive (a tar in OCI image layout or of `docker save`), and returns their
    /// names.
    ///
    /// # Errors
    /// `archive` ends with an error or is malformed, or containerd does not answer.
    pub async fn import<S>(
        &self,
        namespace: &'static str,
        archive: S,
    ) -> Result<Vec<String>, Status>
    where
        S: Stream<Item = Result<Bytes, Status>>,
    {
        let session = self.connect(namespace).await?;
        let pipe = Pipe::open(&session).await?;
        let source = to_any(&ImageImportStream {
            stream: pipe.id.clone(),
            ..ImageImportStream::default()
        });
        // An image keeps its name from the archive; without a name it becomes `import` with its tag.
        let named = ImageReference {
            name: "import".to_owned(),
            is_prefix: true,
            allow_overwrite: true,
            ..ImageReference::default()
        };
        let store = ImageStore {
            platforms: vec![platform()],
            extra_references: vec![named],
            unpacks: vec![unpack()],
            ..ImageStore::default()
        };
        let (steps, mut progress) = mpsc::channel::<Progress>(1);
        let names = async {
            let mut names = Vec::new();
            while let Some(step) = progress.recv().await {
                if step.event == "saved" {
                    names.push(step.name);
                }
            }
            names
        };
        let stored = async {
            let transfer = transfer(&session, source, to_any(&store), steps);
            let (stored, names) = tokio::join!(transfer, names);
            stored.map(|()| names)
        };
        tokio::pin!(stored);
        tokio::select! {
            // The sender's failure explains any error of containerd.
            biased;
            fed = feed(pipe, archive) => {
                fed?;
                stored.await
            }
            stored = &mut stored => stored,
        }
        .map_err(explained)
    }
}

/// Answers containerd's requests for credentials until the stream ends.
async fn answer(mut questions: Pipe, registries: &Registries) {
    while let Ok(Some(AuthRequest { host, .. })) = questions.next().await {
        let credentials = credentials(login(registries, &host));
        if questions.send(to_any(&credentials)).await.is_err() {
            return;
        }
    }
}

fn credentials(login: Option<Login>) -> AuthResponse {
    let (kind, username, secret) = match &login {
        Some(Login::Password(user, password)) => {
            (AuthType::Credentials, user.as_str(), password.expose())
        }
        Some(Login::Token(token)) => (AuthType::Refresh, "", token.expose()),
        None => (AuthType::None, "", ""),
    };
    AuthResponse {
        auth_type: kind.into(),
        username: username.to_owned(),
        secret: secret.to_owned(),
        expire_at: None,
    }
}

/// containerd reports image and registry errors without a specific code.
fn explained(status: Status) -> Status {
    if status.code() == Code::Unknown {
        Status::failed_precondition(format!(
            "containerd rejected the image: {}",
            status.message()
        ))
    } else {
        status
    }
}

/// Linux on this machine's architecture, in containerd's form.
fn platform() -> Platform {
    Platform {
        os: "linux".to_owned(),
        architecture: corten_api::ARCH.to_owned(),
        ..Platform::default()
    }
}

/// Unpacks for this machine into the default snapshotter.
fn unpack() -> UnpackConfiguration {
    UnpackConfiguration {
        platform: Some(platform()),
        snapshotter: String::new(),
    }
}

/// Runs a transfer, and forwards its events to `progress` while its receiver exists.
async fn transfer(
    session: &Session,
    source: Any,
    destination: Any,
    progress: mpsc::Sender<Progress>,
) -> Result<(), Status> {
    let mut steps = Pipe::open(session).await?;
    let request = TransferRequest {
        source: Some(source),
        destination: Some(destination),
        options: Some(TransferOptions {
            progress_stream: steps.id.clone(),
        }),
    };
    let mut client = client!(session, transfer_client::TransferClient);
    let call = client.transfer(request);
    tokio::pin!(call);
    loop {
        tokio::select! {
            biased;
            step = steps.next() => match step? {
                Some(step) => drop(progress.send(told(step)).await),
                // The event stream ends with the transfer; the call has the result.
                None => return call.await.map(|_| ()),
            },
            ended = &mut call => {
                let ended = ended.map(|_| ());
                if ended.is_ok() {
                    while let Some(step) = steps.next().await? {
                        let _ = progress.send(told(step)).await;
                    }
                }
                return ended;
            }
        }
    }
}

/// Sends bytes as containerd's window permits.
async fn feed<S>(mut pipe: Pipe, bytes: S) -> Result<(), Status>
where
    S: Stream<Item = Result<Bytes, Status>>,
{
    tokio::pin!(bytes);
    let mut room: usize = 0;
    while let Some(next) = bytes.next().await {
        let mut next = next?;
        while !next.is_empty() {
            while room == 0 {
                match pipe.next::<WindowUpdate>().await? {
                    Some(more) => room += usize::try_from(more.update).unwrap_or(0),
                    // containerd accepts no more data; the call returns the reason.
                    None => return Ok(()),
                }
            }
            let part = next.split_to(next.len().min(room).min(CHUNK));
            room -= part.len();
            let data = Data {
                data: part.to_vec(),
            };
            if pipe.send(to_any(&data)).await.is_err() {
                return Ok(());
            }
        }
    }
    pipe.finish().await;
    Ok(())
}

fn told(step: Step) -> Progress {
    Progress {
        digest: step.desc.map(|desc| desc.digest).unwrap_or_default(),
        name: step.name,
        event: step.event,
        done: step.progress,
        total: step.total,
    }
}

#[cfg(test)]
mod tests {
    use corten_values::Secret;

    use super::*;

    #[test]
    fn credentials_are_sent_as_password_token_or_none() {
        let told = |login| {
            let told = credentials(login);
            (told.auth_type(), told.username, told.secret)
        };
        let (user, secret) = ("me".to_owned(), Secret::new("s"));
        assert_eq!(
            told(Some(Login::Password(user.clone(), secret.clone()))),
            (AuthType::Credentials, user, "s".to_owned())
        );
        assert_eq!(
            told(Some(Login::Token(secret))),
            (AuthType::Refresh, String::new(), "s".to_owned())
        );
        assert_eq!(told(None), (AuthType::None, String::new(), String::new()));
    }
}
