//! The server on a real socket, with a node that only remembers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use corten_api::machine as api;
use corten_api::machine::apply_configuration_request::Mode;
use corten_api::machine::machine_service_client::MachineServiceClient;
use corten_config::Document;
use corten_meta::Tag;
use corten_pki::{Algorithm, Ca};
use corten_resources::Store;
use hyper_util::rt::TokioIo;
use tempfile::TempDir;
use tokio::net::{UnixListener, UnixStream};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request};
use tower::service_fn;

use super::{Paths, serve_from};
use crate::events::Events;
use crate::meta::{Meta, MetaError};
use crate::node::{
    Action, Apply, Node, ServiceEvent, ServiceState, ServiceView, Stage, SubmitError,
};

#[derive(Default)]
pub(super) struct Remembering {
    config: Mutex<Option<Document>>,
    applied: Mutex<Vec<Apply>>,
    actions: Mutex<Vec<Action>>,
    store: Store,
    events: Events,
    pub(super) meta: Meta,
}

impl Node for Remembering {
    fn stage(&self) -> Stage {
        if self.config().is_some() {
            Stage::Running
        } else {
            Stage::Maintenance
        }
    }

    fn services(&self) -> Vec<ServiceView> {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        let event = ServiceEvent {
            message: "went".into(),
            state: ServiceState::Failed,
            at,
        };
        vec![ServiceView {
            id: "udevd".into(),
            state: ServiceState::Running,
            healthy: None,
            health_message: String::new(),
            health_changed: at,
            events: vec![event],
        }]
    }

    fn store(&self) -> &Store {
        &self.store
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn config(&self) -> Option<Document> {
        self.config.lock().unwrap().clone()
    }

    fn check_config(&self, document: &Document) -> Result<(), SubmitError> {
        match document.hostname() {
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
        *self.config.lock().unwrap() = Some(document);
        self.applied.lock().unwrap().push(how);
        Ok(())
    }

    fn submit(&self, action: Action, _actor: &str) -> Result<(), SubmitError> {
        let mut actions = self.actions.lock().unwrap();
        if !actions.is_empty() {
            return Err(SubmitError::Busy("a reboot"));
        }
        actions.push(action);
        Ok(())
    }
}

pub(super) struct World {
    _directory: TempDir,
    pub(super) node: Arc<Remembering>,
    pub(super) channel: Channel,
    client: MachineServiceClient<Channel>,
}

pub(super) fn world() -> World {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("machined.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let node = Arc::new(Remembering::default());
    let paths = Paths {
        syslogd: PathBuf::from("/nowhere/syslogd.sock"),
        ..Paths::default()
    };
    tokio::spawn(serve_from(listener, node.clone(), paths));
    let channel = Endpoint::from_static("http://machined").connect_with_connector_lazy(service_fn(
        move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        },
    ));
    World {
        _directory: directory,
        node,
        client: MachineServiceClient::new(channel.clone()),
        channel,
    }
}

fn config_text() -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let ca = Ca::generate(Algorithm::Ed25519, "talos", "", SystemTime::now()).unwrap();
    format!(
        "version: v1alpha1\nmachine:\n  type: controlplane\n  token: very.secret\n  ca:\n    crt: {}\n    key: {}\n  network:\n    hostname: first\ncluster:\n  controlPlane:\n    endpoint: https://10.0.2.15:6443\n",
        STANDARD.encode(&ca.pem().crt),
        STANDARD.encode(&ca.pem().key)
    )
}

fn applying(text: &str, mode: Mode) -> api::ApplyConfigurationRequest {
    let data = text.as_bytes().to_vec();
    api::ApplyConfigurationRequest {
        data,
        mode: mode.into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn the_system_is_read_from_this_machine() {
    let World {
        _directory,
        mut client,
        ..
    } = world();
    let version = client
        .version(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0);
    assert_eq!(version.version.unwrap().tag, corten_api::version_tag());
    assert!(!version.features.unwrap().rbac);
    let memory = client
        .memory(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0)
        .meminfo
        .unwrap();
    assert!(memory.memtotal > memory.memfree && memory.memfree > 0);
    let load = client.load_avg(()).await.unwrap().into_inner();
    assert_eq!(load.messages.len(), 1);
    let stat = client
        .system_stat(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0);
    assert!(stat.boot_time > 0 && !stat.cpu.is_empty());
    let cpus = client
        .cpu_info(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0)
        .cpu_info;
    assert_eq!(cpus.len(), stat.cpu.len());
    client.disk_stats(()).await.unwrap();
    let devices = client
        .network_device_stats(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0);
    assert!(devices.devices.iter().any(|device| device.name == "lo"));
    let mounts = client
        .mounts(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0)
        .stats;
    assert!(mounts.iter().any(|mount| mount.mounted_on == "/"));
    assert!(
        !client.hostname(()).await.unwrap().into_inner().messages[0]
            .hostname
            .is_empty()
    );
}

#[tokio::test]
async fn services_are_listed_with_their_history() {
    let reply = world().client.service_list(()).await.unwrap().into_inner();
    let service = &reply.messages[0].services[0];
    assert_eq!(
        (service.id.as_str(), service.state.as_str()),
        ("udevd", "Running")
    );
    assert!(service.health.as_ref().unwrap().unknown);
    let event = &service.events.as_ref().unwrap().events[0];
    assert_eq!(
        (event.state.as_str(), event.ts.unwrap().seconds),
        ("Failed", 5)
    );
}

#[tokio::test]
async fn a_config_is_applied_whole_or_not_at_all() {
    let mut world = world();
    let good = config_text();
    let broken = good
        .replace("hostname", "hostnam")
        .replace("controlplane", "master");
    let refused = world
        .client
        .apply_configuration(applying(&broken, Mode::Auto))
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("machine.network.hostnam"),
        "{refused}"
    );
    assert!(refused.message().contains("machine.type"), "{refused}");
    assert!(world.node.config().is_none());

    let mut dry = applying(&good, Mode::Auto);
    dry.dry_run = true;
    let reply = world
        .client
        .apply_configuration(dry)
        .await
        .unwrap()
        .into_inner();
    let details = &reply.messages[0].mode_details;
    assert!(details.contains("+        hostname: first"), "{details}");
    assert!(details.contains("the node stays reachable"), "{details}");
    assert!(!details.contains("very.secret"), "{details}");
    assert!(world.node.config().is_none());

    let reply = world
        .client
        .apply_configuration(applying(&good, Mode::Auto))
        .await
        .unwrap();
    let reply = reply.into_inner().messages.remove(0);
    assert_eq!(reply.mode(), Mode::NoReboot);
    assert_eq!(reply.mode_details, "Applied configuration without a reboot");
    assert_eq!(reply.warnings.len(), 1);
    assert_eq!(world.node.config().unwrap().source(), good);

    let refused = world
        .client
        .apply_configuration(applying(&good, Mode::Reboot))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn modes_reach_the_node_and_a_dry_run_does_not() {
    let mut world = world();
    let good = config_text();
    let mut long = applying(&good, Mode::Try);
    long.try_mode_timeout = prost_types::Duration::try_from(Duration::from_secs(300)).ok();
    let mut dry = applying(&good.replace("first", "second"), Mode::Staged);
    dry.dry_run = true;
    for (request, mode, details) in [
        (
            applying(&good, Mode::NoReboot),
            Mode::NoReboot,
            "without a reboot",
        ),
        (
            applying(&good, Mode::Staged),
            Mode::Staged,
            "after the next reboot",
        ),
        (applying(&good, Mode::Try), Mode::Try, "tried for 60 s"),
        (long, Mode::Try, "tried for 300 s"),
        (dry, Mode::Staged, "~ machine.network.hostname"),
    ] {
        let reply = world.client.apply_configuration(request).await.unwrap();
        let reply = reply.into_inner().messages.remove(0);
        assert_eq!(reply.mode(), mode);
        assert!(
            reply.mode_details.contains(details),
            "{}",
            reply.mode_details
        );
    }
    let applied = world.node.applied.lock().unwrap().clone();
    let tries = [60, 300].map(|seconds| Apply::Try(Duration::from_secs(seconds)));
    assert_eq!(applied, [Apply::Now, Apply::Staged, tries[0], tries[1]]);

    // What the node would refuse, a dry run refuses.
    let mut impossible = applying(&good.replace("first", "impossible"), Mode::Auto);
    impossible.dry_run = true;
    let refused = world
        .client
        .apply_configuration(impossible)
        .await
        .unwrap_err();
    assert_eq!(refused.message(), "not that one");
    let mut never = applying(&good, Mode::Try);
    never.try_mode_timeout = Some(prost_types::Duration::default());
    let refused = world.client.apply_configuration(never).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn an_action_is_submitted_once() {
    let mut world = world();
    let reply = world
        .client
        .reboot(api::RebootRequest::default())
        .await
        .unwrap()
        .into_inner();
    assert_eq!(reply.messages[0].actor_id.len(), 36);
    let refused = world
        .client
        .shutdown(api::ShutdownRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(*world.node.actions.lock().unwrap(), [Action::Reboot]);
}

#[tokio::test]
async fn what_is_missing_is_said_in_a_sentence() {
    let World {
        _directory,
        mut client,
        ..
    } = world();
    let missing = client.etcd_status(()).await.unwrap_err();
    assert_eq!(missing.code(), Code::Unimplemented);
    assert_eq!(
        missing.message(),
        "this version of the node does not answer machine.MachineService/EtcdStatus"
    );
    let logs = api::LogsRequest {
        id: "udevd".into(),
        ..Default::default()
    };
    assert_eq!(
        client.logs(logs).await.unwrap_err().code(),
        Code::Unavailable
    );
    let pod = api::LogsRequest {
        namespace: "k8s.io".into(),
        id: "x".into(),
        ..Default::default()
    };
    assert_eq!(
        client.logs(pod).await.unwrap_err().code(),
        Code::Unimplemented
    );
}

#[tokio::test]
async fn roles_are_checked_on_the_socket() {
    let World {
        _directory,
        mut client,
        ..
    } = world();
    let mut request = Request::new(api::RebootRequest::default());
    request
        .metadata_mut()
        .append("talos-role", "os:reader".parse().unwrap());
    assert_eq!(
        client.reboot(request).await.unwrap_err().code(),
        Code::PermissionDenied
    );
}
