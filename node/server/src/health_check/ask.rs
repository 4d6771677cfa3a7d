//! Asks a node about its state and judges the answers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use corten_api::roles::Role;
use corten_base::unix;
use corten_config::{Document, v1alpha1::CniName};
use corten_credentials::certificates;
use corten_kubernetes::network_plugin;
use corten_pki::{private_key_from_pem, to_pem};
use corten_resources::controller::with_causes as describe;
use corten_types::cluster::Member;
use corten_types::kubernetes_components::{
    ApiServerConfig, ControllerManagerConfig, SchedulerConfig,
};
use futures_util::{StreamExt as _, stream};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::cluster::{Components, OfCluster, asking};
use super::question::{Contact, Lack};
use super::together::{missing_pods, same_members, strangers};
use super::{Check, Nodes};
use crate::Paths;
use crate::node::Node;

/// Limit of nodes asked at once.
const AT_ONCE: usize = 8;
/// Timeout of a node's answer. A working node needs milliseconds; apid gives up on an unreachable one after 5 s.
const PATIENCE: Duration = Duration::from_secs(10);
/// Lifetime of the client certificate for apid. After half of it a new certificate and connection are made.
const LIFETIME: Duration = Duration::from_secs(10 * 60);

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
    /// URL of the API server to ask; `None` for any that answers.
    endpoint: Option<String>,
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

impl Asking {
    pub(super) fn new(
        node: Arc<dyn Node>,
        paths: Paths,
        targets: Vec<Target>,
        endpoint: Option<String>,
    ) -> Asking {
        Asking {
            node,
            paths,
            targets,
            endpoint,
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
        let ca = certificates::signer(config).map_err(|error| describe(&error))?;
        let reader = ca
            .client(&[Role::Reader.name()], SystemTime::now(), LIFETIME)
            .map_err(|error| describe(&error))?;
        let key = private_key_from_pem(reader.key.as_bytes()).map_err(|error| describe(&error))?;
        // The only PEM label that the library reads.
        let key = to_pem("PRIVATE KEY", key.secret_der());
        let tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(&ca.pem().crt))
            .identity(Identity::from_pem(reader.crt, key))
            .domain_name(self.paths.apid.ip().to_string());
        let failed =
            |error: tonic::transport::Error| format!("apid of this node: {}", describe(&error));
        Endpoint::from_shared(format!("https://{}", self.paths.apid))
            .and_then(|endpoint| endpoint.tls_config(tls))
            .map_err(failed)?
            .connect_timeout(PATIENCE)
            .connect()
            .await
            .map_err(failed)
    }
}

/// The answers of nodes, each with the node's name.
type Told<T> = Vec<(String, T)>;

impl Asking {
    /// Asks each node.
    ///
    /// # Errors
    /// The problems of the nodes that give no answer.
    async fn each<T, F>(
        &self,
        question: impl Fn(Contact) -> F + Sync,
    ) -> Result<Told<T>, Vec<String>>
    where
        T: Send,
        F: Future<Output = Result<T, Lack>> + Send,
    {
        let asks_others = self.targets.iter().any(|target| *target != Target::Itself);
        let apid = if asks_others {
            self.apid().await
        } else {
            Err(String::new())
        };
        let asked: Vec<_> = self
            .targets
            .iter()
            .map(|target| self.one(target, &apid, &question))
            .collect();
        let answers: Vec<_> = stream::iter(asked).buffered(AT_ONCE).collect().await;
        let (mut told, mut lacking) = (Vec::new(), Vec::new());
        for (node, answer) in answers {
            match answer {
                Ok(answer) => told.push((node, answer)),
                Err(why) => lacking.push(format!("{node}: {why}")),
            }
        }
        if lacking.is_empty() {
            Ok(told)
        } else {
            Err(lacking)
        }
    }

    /// Asks one node. A failed connection to apid is made anew by the next check.
    async fn one<T, F>(
        &self,
        target: &Target,
        apid: &Result<Channel, String>,
        question: &(impl Fn(Contact) -> F + Sync),
    ) -> (String, Result<T, String>)
    where
        F: Future<Output = Result<T, Lack>> + Send,
    {
        let (name, channel) = match target {
            Target::Other(name) => (Some(name.clone()), apid.clone()),
            Target::Itself => {
                let channel = unix::connect(&self.paths.machined).await;
                (
                    None,
                    channel.map_err(|_| "machined does not answer".to_owned()),
                )
            }
        };
        let shown = name.clone().unwrap_or_else(|| "this node".to_owned());
        let answer = match channel {
            Ok(channel) => {
                let asked = question(Contact { channel, name });
                let late = |_| {
                    Err(Lack::cut_off(format!(
                        "no answer within {} s",
                        PATIENCE.as_secs()
                    )))
                };
                timeout(PATIENCE, asked).await.unwrap_or_else(late)
            }
            Err(why) => Err(why.into()),
        };
        if *target != Target::Itself && answer.as_ref().is_err_and(|lack| lack.is_cut_off) {
            *self.way.lock().await = None;
        }
        (shown, answer.map_err(|lack| lack.why))
    }

    /// Whether the members of etcd are asked for: a control plane node may run none.
    fn runs_etcd(&self) -> bool {
        let config = self.node.config();
        let config = config.filter(|config| config.machine.kind.is_control_plane());
        config.is_none_or(|config| config.cluster.etcd.is_some())
    }

    /// Whether the config of the cluster brings a network plugin. Otherwise its nodes are not ready until the operator
    /// adds one.
    fn brings_network(&self) -> bool {
        let config = self.node.config();
        config.is_none_or(|config| network_plugin(&config) != CniName::None)
    }

    /// The components of the control plane that the config runs, by the names of their pods.
    fn components(&self) -> Vec<&'static str> {
        let store = self.node.store();
        let server = store
            .get_as::<ApiServerConfig>(ApiServerConfig::ID)
            .is_some();
        let manager = store.get_as::<ControllerManagerConfig>(ControllerManagerConfig::ID);
        let scheduler = store.get_as::<SchedulerConfig>(SchedulerConfig::ID);
        let all = [
            (ApiServerConfig::ID, server),
            (
                ControllerManagerConfig::ID,
                manager.is_some_and(|one| one.enabled),
            ),
            (
                SchedulerConfig::ID,
                scheduler.is_some_and(|one| one.enabled),
            ),
        ];
        let run = all.into_iter().filter(|(_, runs)| *runs);
        run.map(|(id, _)| id).collect()
    }

    async fn same_members(&self) -> Result<Vec<String>, Vec<String>> {
        let told = self.each(Contact::members).await?;
        Ok(same_members(&given(told)))
    }

    async fn strangers(&self) -> Result<Vec<String>, Vec<String>> {
        let own = given(self.each(Contact::own_member).await?);
        let members = given(self.each(Contact::members).await?);
        let known: Vec<Member> = self
            .node
            .store()
            .list_as::<Member>()
            .into_iter()
            .map(|member| (*member).clone())
            .collect();
        // A node that knows no other cannot tell whose members the others are.
        if known.is_empty() && self.targets == [Target::Itself] {
            return Ok(Vec::new());
        }
        let first = members.into_iter().next();
        Ok(first.map_or_else(Vec::new, |(_, members)| strangers(&members, &own, &known)))
    }

    async fn missing_pods(&self) -> Result<Vec<String>, Vec<String>> {
        let told = given(self.each(Contact::static_pods).await?);
        Ok(missing_pods(&told, &self.components()))
    }

    /// The problems that the cluster reports of the nodes.
    async fn of_cluster(&self, check: OfCluster) -> Result<Vec<String>, Vec<String>> {
        let Some(asking) = asking(self.node.as_ref()) else {
            return Ok(Vec::new());
        };
        let asked = match check {
            OfCluster::Registered | OfCluster::Components => {
                self.each(Contact::registration).await?
            }
            _ => Vec::new(),
        };
        let components = Components {
            nodes: given(asked).into_iter().map(|(_, own)| own).collect(),
            names: self.components(),
        };
        let endpoint = self.endpoint.as_deref();
        Ok(check.lacking(asking, endpoint, &components).await)
    }
}

/// The answers of the nodes that have one.
fn given<T>(told: Told<Option<T>>) -> Told<T> {
    let told = told.into_iter();
    told.filter_map(|(node, answer)| Some((node, answer?)))
        .collect()
}

impl Nodes for Asking {
    async fn lacking(&self, check: Check) -> Vec<String> {
        let answered = |answers: Result<Told<()>, Vec<String>>| answers.map(|_| Vec::new());
        let lacking = match check {
            Check::Apid => answered(self.each(Contact::version).await),
            Check::Memory => answered(self.each(Contact::memory).await),
            Check::Disks => answered(self.each(Contact::disks).await),
            Check::Diagnostics => answered(self.each(Contact::diagnostics).await),
            Check::Services => answered(self.each(Contact::services).await),
            Check::Boot => {
                let brings_network = self.brings_network();
                answered(self.each(|node| node.boot(brings_network)).await)
            }
            Check::Etcd | Check::Members | Check::Strangers if !self.runs_etcd() => Ok(Vec::new()),
            Check::Etcd => self.each(Contact::own_member).await.map(|_| Vec::new()),
            Check::Members => self.same_members().await,
            Check::Strangers => self.strangers().await,
            Check::StaticPods => self.missing_pods().await,
            Check::Nodes | Check::Dns if !self.brings_network() => Ok(Vec::new()),
            Check::Registered => self.of_cluster(OfCluster::Registered).await,
            Check::Components => self.of_cluster(OfCluster::Components).await,
            Check::Nodes => self.of_cluster(OfCluster::Ready).await,
            Check::Proxy => self.of_cluster(OfCluster::Proxy).await,
            Check::Dns => self.of_cluster(OfCluster::Dns).await,
            Check::Schedulable => self.of_cluster(OfCluster::Schedulable).await,
        };
        lacking.unwrap_or_else(|lacking| lacking)
    }
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
}
