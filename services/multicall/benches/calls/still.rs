//! machined's server in front of an idle node with resources.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;

use corten_api::talos::resource::definitions::network::HostnameStatusSpec;
use corten_base::events::Events;
use corten_config::Document;
use corten_meta::Tag;
use corten_resources::controller::{Graph, GraphError, Runtime};
use corten_resources::{Definition, Draft, Sensitivity, Spec, Store};
use corten_server::node::{
    Action, Actor, Apply, Begin, Control, DeviceWipe, Install, MetaError, Node, Reset, ServiceView,
    Stage, SubmitError, Upgrade,
};
use corten_server::{Local, Paths, serve_from};
use futures_util::future::{BoxFuture, ready};
use serde::Serialize;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

/// Number of resources of one type.
pub const RESOURCES: usize = 1_000;

/// Serves at `socket` for ever, with machined's number of threads. Calls `is_up` when it serves. Reads logs from the
/// syslogd at `syslogd`.
pub fn serve(socket: &Path, syslogd: &Path, is_up: impl FnOnce(&Store)) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(4)
        .enable_all()
        .build()
        .unwrap();
    let paths = Paths {
        syslogd: syslogd.to_owned(),
        // The callers are separate processes here.
        local: Local::User(owner(socket)),
        ..Paths::default()
    };
    let store = Store::new();
    store.register::<Status>().unwrap();
    for n in 0..RESOURCES {
        let hostname = format!("resource-{n}");
        store.put(status(&hostname, &hostname), "").unwrap();
    }
    let node = Arc::new(Still {
        store,
        events: Events::default(),
    });
    runtime.block_on(async {
        let listener = UnixListener::bind(socket).unwrap();
        is_up(&node.store);
        serve_from(listener, node, paths).await.unwrap();
    });
}

/// Owner of the socket's directory.
fn owner(socket: &Path) -> u32 {
    std::fs::metadata(socket.parent().unwrap()).unwrap().uid()
}

/// As large as many resources of a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    hostname: String,
    domainname: String,
}

impl Spec for Status {
    const DEFINITION: Definition = Definition {
        type_name: "Statuses.bench.corten",
        default_namespace: "bench",
        aliases: &[],
        columns: &[],
        sensitivity: Sensitivity::NonSensitive,
        only_declared_aliases: false,
    };

    type Message = HostnameStatusSpec;

    fn message(&self) -> HostnameStatusSpec {
        let Status {
            hostname,
            domainname,
        } = self.clone();
        HostnameStatusSpec {
            hostname,
            domainname,
        }
    }
}

pub fn status(id: &str, hostname: &str) -> Draft {
    let status = Status {
        hostname: hostname.to_owned(),
        domainname: "a.domain.of.the.node".to_owned(),
    };
    Draft::new(id, status)
}

struct Still {
    store: Store,
    events: Events,
}

fn refused() -> SubmitError {
    SubmitError::Refused("this node is only read".to_owned())
}

impl Node for Still {
    fn end_member(&self) -> BoxFuture<'_, Result<(), SubmitError>> {
        Box::pin(async { Ok(()) })
    }

    fn begin_cluster(&self, _: Begin) -> Result<(), SubmitError> {
        Ok(())
    }

    fn upgrade(
        &self,
        _: Upgrade,
        _: mpsc::Sender<String>,
    ) -> BoxFuture<'_, Result<String, SubmitError>> {
        Box::pin(ready(Err(refused())))
    }

    fn install_target(&self, _: &Document) -> Result<Option<String>, SubmitError> {
        Ok(None)
    }

    fn install(
        &self,
        _: Install,
        _: mpsc::Sender<String>,
    ) -> BoxFuture<'_, Result<String, SubmitError>> {
        Box::pin(ready(Err(refused())))
    }

    fn roll_back(&self) -> BoxFuture<'_, Result<String, SubmitError>> {
        Box::pin(ready(Err(refused())))
    }

    fn leave(&self) -> BoxFuture<'_, Result<(), SubmitError>> {
        Box::pin(async { Ok(()) })
    }

    fn stay(&self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    fn check_reset<'a>(&'a self, _: &'a Reset) -> BoxFuture<'a, Result<(), SubmitError>> {
        Box::pin(ready(Err(refused())))
    }

    fn audit(&self, _: &str) {}

    fn stage(&self) -> Stage {
        Stage::Running
    }

    fn services(&self) -> Vec<ServiceView> {
        Vec::new()
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
        None
    }

    fn check_config(&self, _: &Document) -> Result<(), SubmitError> {
        Err(refused())
    }

    fn apply_config(&self, _: Document, _: Apply) -> Result<(), SubmitError> {
        Err(refused())
    }

    fn change_meta(&self, _: Tag, _: Option<Vec<u8>>) -> Result<(), MetaError> {
        Err(MetaError::NoPartition)
    }

    fn config_is_kept(&self) -> bool {
        false
    }

    fn control(&self, _: &str, _: Control) -> Result<oneshot::Receiver<()>, SubmitError> {
        Err(refused())
    }

    fn wipe_devices(&self, _: &[DeviceWipe]) -> Result<(), SubmitError> {
        Err(refused())
    }

    fn submit(&self, _: Action, _: Actor) -> Result<(), SubmitError> {
        Err(refused())
    }
}
