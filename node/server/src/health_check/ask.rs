//! Asks a node about its state and judges the answers.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use corten_api::cosi::resource::GetRequest;
use corten_api::cosi::resource::state_client::StateClient;
use corten_api::machine::machine_service_client::MachineServiceClient;
use corten_api::metadata;
use corten_api::resource::config::{MachineType as Type, MachineTypeSpec};
use corten_api::roles::Role;
use corten_api::storage::storage_service_client::StorageServiceClient;
use corten_api::talos::resource::definitions::runtime::MachineStatusSpec;
use corten_base::unix;
use corten_config::Document;
use corten_credentials::certificates;
use corten_pki::{private_key_from_pem, to_pem};
use corten_resources::Spec;
use corten_types::config::MachineType;
use corten_types::etcd::EtcdMember;
use corten_types::runtime::MachineStatus;
use futures_util::{StreamExt as _, stream};
use prost::Message as _;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status};

use super::cluster::OfCluster;
use super::judge::{boot, disks, memory, services};
use super::{Check, Nodes};
use crate::Paths;
use crate::node::Node;

/// Limit of nodes asked at once.
const AT_ONCE: usize = 8;
/// Timeout of a node's answer. A working node needs milliseconds; apid gives up on an unreachable one after 5 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lifetime of the client certificate for apid. After half of it a new certificate and connection are made.
const LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Size limit of an answer in bytes; a list of services with histories is the largest.
const LARGEST_ANSWER: usize = 1 << 20;

/// A node to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// This node, through its socket.
    Itself,
    /// Another node, through apid.
    Other(String),
}

/// The nodes of one health check.
pub(super) struct Asking {
    node: Arc<dyn Node>,
    paths: Paths,
    targets: Vec<Target>,
    /// Connection to this node's apid, opened on demand.
    way: Mutex<Option<Way>>,
}

/// A connection to apid, and the parameters it was made with.
struct Way {
    channel: Channel,
    /// Certificate of the CA.
    ca: String,
    made: SystemTime,
}

impl Way {
    /// Whether apid still accepts the certificate. The clock may have been set back.
    fn is_good(&self, ca: &str, now: SystemTime) -> bool {
        let age = now.duration_since(self.made);
        self.ca == ca && age.is_ok_and(|age| age < LIFETIME / 2)
    }
}

/// Reason why a node fails a check.
#[derive(Debug)]
struct Lack {
    why: String,
    /// The failure is in the connection, not the node's answer.
    is_cut_off: bool,
}

impl From<String> for Lack {
    fn from(why: String) -> Lack {
        Lack {
            why,
            is_cut_off: false,
        }
    }
}

impl From<Status> for Lack {
    fn from(status: Status) -> Lack {
        // A status from the wire has no source. Unauthenticated means that apid no longer accepts the certificate.
        let is_cut_off = status.source().is_some() || status.code() == Code::Unauthenticated;
        Lack {
            why: status.message().to_owned(),
            is_cut_off,
        }
    }
}

impl Asking {
    pub(super) fn new(node: Arc<dyn Node>, paths: Paths, targets: Vec<Target>) -> Asking {
        Asking {
            node,
            paths,
            targets,
            way: Mutex::default(),
        }
    }

    /// Connects to this node's apid; reuses the connection unless it failed or the CA changed.
    async fn apid(&self) -> Result<Channel, String> {
        let config = self.node.config().ok_or("the node has no config")?;
        let ca = config.machine.ca.as_ref().map_or("", |ca| &*ca.crt);
        let mut way = self.way.lock().await;
        let made = SystemTime::now();
        if let Some(way) = way.as_ref().filter(|way| way.is_good(ca, made)) {
            return Ok(way.channel.clone());
        }
        *way = None;
        let channel = self.connect(&config).await?;
        *way = Some(Way {
            channel: channel.clone(),
            ca: ca.to_owned(),
            made,
        });
        Ok(channel)
    }

    /// Connects with a new reader certificate.
    async fn connect(&self, config: &Document) -> Result<Channel, String> {
        let ca = certificates::signer(config)
            .map_err(|error| corten_resources::controller::with_causes(&error))?;
        let reader = ca
            .client(&[Role::Reader.name()], SystemTime::now(), LIFETIME)
            .map_err(|error| corten_resources::controller::with_causes(&error))?;
        let key = private_key_from_pem(reader.key.as_bytes())
            .map_err(|error| corten_resources::controller::with_causes(&error))?;
        // The only PEM label that the library reads.
        let key = to_pem("PRIVATE KEY", key.secret_der());
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&ca.pem().crt))
            .identity(Identity::from_pem(reader.crt, key))
            .domain_name(self.paths.apid.ip().to_string());
        let failed = |error: tonic::transport::Error| {
            format!(
                "apid of this node: {}",
                corten_resources::controller::with_causes(&error)
            )
        };
        Endpoint::from_shared(format!("https://{}", self.paths.apid))
            .and_then(|endpoint| endpoint.tls_config(tls))
            .map_err(failed)?
            .connect_timeout(PATIENCE)
            .connect()
            .await
            .map_err(failed)
    }
}

impl Nodes for Asking {
    async fn lacking(&self, check: Check) -> Vec<String> {
        if let Some(of_cluster) = OfCluster::of(check) {
            return of_cluster.lacking(self.node.as_ref()).await;
        }
        let asks_others = self.targets.iter().any(|target| *target != Target::Itself);
        let apid = if asks_others {
            self.apid().await
        } else {
            Err(String::new())
        };
        let asked = self.targets.clone().into_iter().map(|target| {
            let (apid, socket) = (apid.clone(), self.paths.machined.clone());
            async move {
                let (name, way) = match target {
                    Target::Other(name) => (Some(name), apid),
                    Target::Itself => {
                        let way = unix::connect(&socket).await;
                        (None, way.map_err(|_| "machined does not answer".to_owned()))
                    }
                };
                let shown = name.clone().unwrap_or_else(|| "this node".to_owned());
                let is_other = name.is_some();
                let answer = match way {
                    Ok(channel) => timeout(PATIENCE, ask(check, channel, name)).await,
                    Err(why) => Ok(Err(why.into())),
                };
                let late = |_| {
                    Err(Lack {
                        why: format!("no answer within {} s", PATIENCE.as_secs()),
                        is_cut_off: true,
                    })
                };
                let Lack { why, is_cut_off } = answer.unwrap_or_else(late).err()?;
                if is_other && is_cut_off {
                    *self.way.lock().await = None;
                }
                Some(format!("{shown}: {why}"))
            }
        });
        let asked: Vec<_> = asked.collect();
        let lacking = stream::iter(asked).buffered(AT_ONCE);
        lacking.filter_map(std::future::ready).collect().await
    }
}

/// Checks a node; `name` routes the call through apid.
async fn ask(check: Check, channel: Channel, name: Option<String>) -> Result<(), Lack> {
    let machine = MachineServiceClient::new(channel.clone());
    let mut machine = machine.max_decoding_message_size(LARGEST_ANSWER);
    let name = name.as_deref();
    match check {
        Check::Apid => drop(machine.version(asking((), name)?).await?),
        Check::Memory => {
            let answer = machine.memory(asking((), name)?).await?;
            let first = answer.into_inner().messages.into_iter().next();
            memory(&first.and_then(|first| first.meminfo).unwrap_or_default())?;
        }
        Check::Disks => {
            let mut storage = StorageServiceClient::new(channel);
            let answer = storage.disks(asking((), name)?).await?;
            let first = answer.into_inner().messages.into_iter().next();
            disks(&first.unwrap_or_default().disks)?;
        }
        Check::Services => {
            let answer = machine.service_list(asking((), name)?).await?;
            let first = answer.into_inner().messages.into_iter().next();
            services(&first.unwrap_or_default().services)?;
        }
        Check::Etcd => {
            let kind = resource::<MachineType>(channel.clone(), MachineType::ID, name).await;
            let kind = match kind {
                Err(lack) if lack.is_cut_off => return Err(lack),
                // A node without a config has no type yet; its boot check reports that.
                kind => kind.unwrap_or_default(),
            };
            let kind = MachineTypeSpec::decode(kind.as_slice());
            let kind = kind.map_err(|error| format!("MachineType: {error}"))?;
            if kind.machine_type() == Type::ControlPlane {
                resource::<EtcdMember>(channel, EtcdMember::ID, name)
                    .await
                    .map_err(without_member)?;
            }
        }
        Check::Boot => {
            let spec = resource::<MachineStatus>(channel, MachineStatus::ID, name).await?;
            let status = MachineStatusSpec::decode(spec.as_slice());
            boot(&status.map_err(|error| format!("MachineStatus: {error}"))?)?;
        }
        Check::Nodes | Check::Proxy | Check::Dns | Check::Schedulable => {}
    }
    Ok(())
}

/// The protobuf spec of a node's resource, by type and id.
async fn resource<S: Spec>(
    channel: Channel,
    id: &str,
    name: Option<&str>,
) -> Result<Vec<u8>, Lack> {
    let definition = S::DEFINITION;
    let wanted = GetRequest {
        namespace: definition.default_namespace.to_owned(),
        r#type: definition.type_name.to_owned(),
        id: id.to_owned(),
        options: None,
    };
    let answer = StateClient::new(channel).get(asking(wanted, name)?).await;
    let spec = answer?
        .into_inner()
        .resource
        .and_then(|resource| resource.spec);
    Ok(spec.unwrap_or_default().proto_spec)
}

fn without_member(lack: Lack) -> Lack {
    if lack.is_cut_off {
        return lack;
    }
    Lack::from(
        "it has no working etcd member: `cortenctl logs etcd` and `cortenctl service etcd` say why; a new cluster \
         begins with `cortenctl bootstrap`"
            .to_owned(),
    )
}

/// A reader's request; with `node` apid forwards it to that node.
fn asking<T>(message: T, node: Option<&str>) -> Result<Request<T>, String> {
    let mut request = Request::new(message);
    let fields = request.metadata_mut();
    let reader = tonic::metadata::MetadataValue::from_static(Role::Reader.name());
    fields.insert(metadata::ROLE, reader);
    if let Some(node) = node {
        let node = node
            .parse()
            .map_err(|_| "not the name of a node".to_owned())?;
        fields.insert(metadata::NODE, node);
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connection_is_reused_for_half_its_certificate_life_and_one_ca() {
        let made = SystemTime::now();
        let way = Way {
            channel: Endpoint::from_static("http://127.0.0.1:1").connect_lazy(),
            ca: "one".to_owned(),
            made,
        };
        let second = Duration::from_secs(1);
        assert!(way.is_good("one", made));
        assert!(way.is_good("one", made + LIFETIME / 2 - second));
        assert!(!way.is_good("one", made + LIFETIME / 2));
        assert!(!way.is_good("one", made - second));
        assert!(!way.is_good("another", made));
    }

    #[test]
    fn answer_of_a_node_is_distinguished_from_a_broken_connection() {
        let said = Status::unavailable("n2: no connection within 5 s");
        assert!(!Lack::from(said).is_cut_off);
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(Lack::from(Status::from_error(reset.into())).is_cut_off);
        assert!(Lack::from(Status::unauthenticated("come again")).is_cut_off);
    }
}
