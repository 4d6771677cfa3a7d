//! The server on a real socket, with a node that only records.

mod access;
mod actions;
mod config;
mod devices;
mod files;
mod forwarded;
mod health;
mod lifecycle;
mod methods;
mod operator;
mod reads;
mod resources;
mod services;
mod wipe;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, SystemTime};

use corten_api::machine as api;
use corten_api::machine::apply_configuration_request::Mode;
use corten_api::machine::machine_service_client::MachineServiceClient;
use corten_base::events::Events;
use corten_config::Document;
use corten_meta::Tag;
use corten_persistence::meta::{Meta, MetaError};
use corten_pki::{Algorithm, Ca};
use corten_resources::controller::{Graph, GraphError, Runtime};
use corten_resources::{Draft, Store};
use corten_types::clock::TimeStatus;
use corten_volumes::DeviceWipe;
use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

use super::{Paths, serve_from};
use crate::node::{
    Action, Actor, Apply, Begin, Control, Install, Node, Reset, ServiceEvent, ServiceState,
    ServiceView, Stage, SubmitError, Upgrade,
};

/// Timeout of a test.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct Remembering {
    config: Mutex<Option<Document>>,
    applied: Mutex<Vec<Apply>>,
    actions: Mutex<Vec<Action>>,
    /// Initiators of the actions.
    actors: Mutex<Vec<Actor>>,
    controls: Mutex<Vec<(String, Control)>>,
    wipes: Mutex<Vec<DeviceWipe>>,
    audited: Mutex<Vec<String>>,
    upgrades: Mutex<Vec<Upgrade>>,
    installs: Mutex<Vec<Install>>,
    /// Target disk of a config that requests an installation with `wipe`.
    new_disk: Mutex<Option<String>>,
    /// The last bootstrap call.
    pub(super) begun: Mutex<Option<Begin>>,
    /// Applying the next config waits here twice for the test: when it begins and before it ends.
    slow: Mutex<Option<Arc<Barrier>>>,
    /// Makes the list of services panic.
    has_a_bug: AtomicBool,
    /// etcd loses its quorum without this node.
    is_needed: AtomicBool,
    /// The disk has no other version.
    has_one_version: AtomicBool,
    /// An earlier call takes the node down.
    is_ending: AtomicBool,
    /// Notified when etcd's data are deleted.
    pub(super) member_ended: Notify,
    /// The node has announced that it goes down.
    leaves: AtomicBool,
    store: Store,
    events: Events,
    pub(super) meta: Meta,
}

impl Remembering {
    /// The lines of the log `audit`.
    pub(super) fn audited(&self) -> Vec<String> {
        self.audited.lock().unwrap().clone()
    }
}

impl Node for Remembering {
    fn begin_cluster(&self, begin: Begin) -> Result<(), SubmitError> {
        *self.begun.lock().unwrap() = Some(begin);
        Ok(())
    }

    fn end_member(&self) -> BoxFuture<'_, Result<(), SubmitError>> {
        self.member_ended.notify_one();
        Box::pin(async { Ok(()) })
    }

    fn upgrade(
        &self,
        upgrade: Upgrade,
        tell: mpsc::Sender<String>,
    ) -> BoxFuture<'_, Result<String, SubmitError>> {
        Box::pin(async move {
            // The older method has no receiver of messages.
            let _ = tell.send("taking it".to_owned()).await;
            let ended = match upgrade.image.as_str() {
                "broken" => Err(SubmitError::Failed("the disk is full".to_owned())),
                "foreign" => Err(SubmitError::Refused("another key has signed it".to_owned())),
                _ => Ok("2.0".to_owned()),
            };
            self.upgrades.lock().unwrap().push(upgrade);
            ended
        })
    }

    fn install_target(&self, document: &Document) -> Result<Option<String>, SubmitError> {
        let Some(disk) = self.new_disk.lock().unwrap().clone() else {
            return Ok(None);
        };
        match document.installation() {
            Some(wanted) if !wanted.wipe => Err(SubmitError::Refused(format!(
                "{}: {disk} holds something",
                wanted.disk.field()
            ))),
            Some(_) => Ok(Some(disk)),
            None => Ok(None),
        }
    }

    fn install(
        &self,
        install: Install,
        tell: mpsc::Sender<String>,
    ) -> BoxFuture<'_, Result<String, SubmitError>> {
        Box::pin(async move {
            tell.send("writing it".to_owned()).await.unwrap();
            let ended = match install.disk.as_str() {
                "/dev/used" => Err(SubmitError::Refused("it holds something".to_owned())),
                _ => Ok("1.0".to_owned()),
            };
            self.installs.lock().unwrap().push(install);
            ended
        })
    }

    fn roll_back(&self) -> BoxFuture<'_, Result<String, SubmitError>> {
        let refused = || Err(SubmitError::Refused("no other version".to_owned()));
        Box::pin(async move {
            if self.is_ending.load(Ordering::SeqCst) {
                return Err(SubmitError::Busy("the end of this boot"));
            }
            match self.has_one_version.load(Ordering::SeqCst) {
                true => refused(),
                false => Ok("1.0".to_owned()),
            }
        })
    }

    fn stay(&self) -> BoxFuture<'_, ()> {
        self.leaves.store(false, Ordering::SeqCst);
        Box::pin(async {})
    }

    fn leave(&self) -> BoxFuture<'_, Result<(), SubmitError>> {
        Box::pin(async {
            match self.is_needed.load(Ordering::SeqCst) {
                true => Err(SubmitError::Refused("etcd needs this node".to_owned())),
                false => {
                    self.leaves.store(true, Ordering::SeqCst);
                    Ok(())
                }
            }
        })
    }

    fn check_reset<'a>(&'a self, reset: &'a Reset) -> BoxFuture<'a, Result<(), SubmitError>> {
        let is_refused = reset.graceful && self.is_needed.load(Ordering::SeqCst);
        Box::pin(async move {
            match is_refused {
                true => Err(SubmitError::Refused("etcd needs this node".to_owned())),
                false => Ok(()),
            }
        })
    }

    fn audit(&self, line: &str) {
        self.audited.lock().unwrap().push(line.to_owned());
    }

    fn stage(&self) -> Stage {
        if self.config().is_some() {
            Stage::Running
        } else {
            Stage::Maintenance
        }
    }

    fn services(&self) -> Vec<ServiceView> {
        assert!(!self.has_a_bug.load(Ordering::SeqCst), "a bug");
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        let event = ServiceEvent {
            message: "went".into(),
            state: ServiceState::Failed,
            at,
        };
        let service = |id: &str| ServiceView {
            id: id.into(),
            state: ServiceState::Running,
            pid: None,
            healthy: None,
            health_message: String::new(),
            health_changed: at,
            events: vec![event.clone()],
        };
        ["udevd", "kubelet", "ext-hello", "ext-lost"]
            .map(service)
            .into()
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn graph(&self) -> Result<Graph, GraphError> {
        Ok(Runtime::new(Store::new()).graph().clone())
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn config(&self) -> Option<Document> {
        self.config.lock().unwrap().clone()
    }

    fn check_config(&self, document: &Document) -> Result<(), SubmitError> {
        match document.hostname() {
            Some("buggy") => panic!("a bug"),
            Some("impossible") => Err(SubmitError::Refused("not that one".to_owned())),
            _ => Ok(()),
        }
    }

    fn change_meta(&self, tag: Tag, value: Option<Vec<u8>>) -> Result<(), MetaError> {
        self.meta.change(tag, value)
    }

    fn config_is_kept(&self) -> bool {
        false
    }

    fn apply_config(&self, document: Document, how: Apply) -> Result<(), SubmitError> {
        let slow = self.slow.lock().unwrap().take();
        if let Some(slow) = slow {
            slow.wait();
            slow.wait();
        }
        *self.config.lock().unwrap() = Some(document);
        self.applied.lock().unwrap().push(how);
        Ok(())
    }

    /// Completes at once, except for a service that never ends.
    fn control(
        &self,
        service: &str,
        control: Control,
    ) -> Result<oneshot::Receiver<()>, SubmitError> {
        let (done, ended) = oneshot::channel();
        self.controls
            .lock()
            .unwrap()
            .push((service.to_owned(), control));
        if service != "ext-lost" {
            done.send(()).unwrap();
        }
        Ok(ended)
    }

    fn wipe_devices(&self, wipes: &[DeviceWipe]) -> Result<(), SubmitError> {
        if wipes.iter().any(|wipe| wipe.device == "vdz") {
            return Err(SubmitError::Refused("vdz is mounted".to_owned()));
        }
        self.wipes.lock().unwrap().extend(wipes.to_vec());
        Ok(())
    }

    fn submit(&self, action: Action, actor: Actor) -> Result<(), SubmitError> {
        let mut actions = self.actions.lock().unwrap();
        if !actions.is_empty() {
            return Err(SubmitError::Busy("a reboot"));
        }
        actions.push(action);
        self.actors.lock().unwrap().push(actor);
        Ok(())
    }
}

pub(super) struct World {
    directory: TempDir,
    pub(super) node: Arc<Remembering>,
    pub(super) channel: Channel,
    client: MachineServiceClient<Channel>,
}

impl World {
    /// A new connection: an unread stream blocks the others of its connection.
    fn another_connection(&self) -> Channel {
        connection(self.directory.path().join(SOCKET))
    }
}

const SOCKET: &str = "machined.sock";

fn connection(socket: PathBuf) -> Channel {
    Endpoint::from_static("http://machined").connect_with_connector_lazy(service_fn(
        move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        },
    ))
}

pub(super) fn world() -> World {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join(SOCKET);
    let listener = UnixListener::bind(&socket).unwrap();
    let node = Arc::new(Remembering::default());
    let paths = Paths {
        syslogd: PathBuf::from("/nowhere/syslogd.sock"),
        etcd: directory.path().join("etcd"),
        machined: socket.clone(),
        ..Paths::default()
    };
    tokio::spawn(serve_from(listener, node.clone(), paths));
    let channel = connection(socket);
    World {
        directory,
        node,
        client: MachineServiceClient::new(channel.clone()),
        channel,
    }
}

/// A control plane node's config.
pub(crate) fn config_text() -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let ca = Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap();
    format!(
        "version: v1alpha1\nmachine:\n  type: controlplane\n  token: very.secret\n  ca:\n    crt: {}\n    key: {}\n  network:\n    hostname: first\ncluster:\n  controlPlane:\n    endpoint: https://10.0.2.15:6443\n",
        STANDARD.encode(&ca.pem().crt),
        STANDARD.encode(&ca.pem().key)
    )
}

/// Sets whether the time is synchronized.
fn set_time(node: &Remembering, synced: bool) {
    let status = TimeStatus {
        synced,
        epoch: 0,
        sync_disabled: false,
    };
    node.store().register::<TimeStatus>().unwrap();
    let draft = Draft::new(TimeStatus::ID, status);
    node.store().put(draft, "time.SyncController").unwrap();
}

fn applying(text: &str, mode: Mode) -> api::ApplyConfigurationRequest {
    let data = text.as_bytes().to_vec();
    api::ApplyConfigurationRequest {
        data,
        mode: mode.into(),
        ..Default::default()
    }
}
