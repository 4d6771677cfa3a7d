//! The cluster of a rotation: its nodes through their API, and Kubernetes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use corten_client::configfile;
use corten_client::connect::Target;
use corten_client::failure::Failure;
use corten_client::resources;
use corten_client::stream::{Node, Trouble, alone, each};
use corten_client::table::printable;
use corten_cluster::{Access, Cluster, ClusterError};
use corten_pki::{CertificateAndKey, Leaf, Usage, certificates_from_pem, to_pem};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Step;
use super::execute::{Addon, Fleet, Mark, With};
use super::plan::{Member, Plan};
use super::trust::Trusted;
use crate::args::{ApplyMode, How};
use crate::{kubelet, kubernetes, patch};

const NAMESPACE: &str = "kube-system";
const MANAGER: &str = "kube-controller-manager";
/// Static pods with secrets of the Kubernetes CA.
const STATIC_PODS: [&str; 3] = ["kube-apiserver", MANAGER, "kube-scheduler"];
/// Annotation of a static pod with the digest of the secrets that it reads at its start only.
const SECRETS: &str = "/metadata/annotations/talos.dev~1secrets-version";
/// Lifetime of the client certificate: longer than any rotation.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// Time for a node to apply a changed config.
const APPLY: Duration = Duration::from_secs(60);
/// Time to connect to an API server. Not every operator can reach each of them.
const CONNECT: Duration = Duration::from_secs(3);

/// The nodes of a target that run Kubernetes.
pub(super) async fn members(target: &Target) -> Result<Vec<Member>, Failure> {
    let mut members = Vec::new();
    let failed = each(target.open().await?, async |node| {
        let config = patch::config(node).await?;
        let document = configfile::parse("the machine config", config.as_bytes())?;
        let trusted = Trusted::of(&document).map_err(Failure::from)?;
        if trusted.all().map_err(Failure::from)?.is_empty() {
            eprintln!("{}: runs no Kubernetes", printable(&node.name));
            return Ok(());
        }
        let named = resources::find(node, "k8s", "Nodenames.kubernetes.talos.dev", "nodename");
        let named = named.await?;
        let nodename = named
            .as_ref()
            .and_then(|spec| spec.get("nodename")?.as_str());
        members.push(Member {
            name: node.name.clone(),
            nodename: nodename.unwrap_or_default().to_owned(),
            is_control_plane: document.machine.kind.is_control_plane(),
            trusted,
        });
        Ok(())
    })
    .await?;
    corten_client::failure::finish(&failed)?;
    Ok(members)
}

pub(super) struct Live<'a> {
    target: Target,
    plan: &'a Plan,
    /// The access of the kubeconfig.
    first: Access,
    /// A client certificate of the new CA.
    client: CertificateAndKey,
    /// API servers that this machine cannot reach, which has been printed.
    unreached: BTreeSet<SocketAddr>,
}

impl<'a> Live<'a> {
    /// Connects to the cluster, and checks that every node of it is a member.
    pub(super) async fn connect(
        target: Target,
        server: Option<&str>,
        members: &[Member],
        plan: &'a Plan,
    ) -> Result<Live<'a>, Failure> {
        let first = kubernetes::access(target.clone(), server).await?;
        let first = first.map_err(Failure::call)?;
        let said = |error: ClusterError| Failure::call(error.to_string());
        let machines = Cluster::connect(&first).map_err(said)?;
        let machines = machines.machines().await.map_err(said)?;
        let is_named = |name: &str| members.iter().any(|member| member.nodename == name);
        if let Some(other) = machines.iter().find(|machine| !is_named(&machine.name)) {
            return Err(Failure::usage(format!(
                "node {} of the cluster is not among the nodes: it would lose its access; name all nodes with \
                 --control-plane-nodes and --worker-nodes",
                other.name
            )));
        }
        let leaf = Leaf {
            common_name: "admin",
            organizations: &["system:masters"],
            names: &[],
            usage: Usage::Client,
        };
        let client = plan.new.leaf(&leaf, SystemTime::now(), LIFETIME);
        Ok(Live {
            client: client.context("making the client certificate")?,
            target,
            plan,
            first,
            unreached: BTreeSet::new(),
        })
    }

    /// The access for a check.
    fn access(&self, with: With) -> Access {
        let new = &self.plan.new_issuing.crt;
        let olds = self.plan.forgotten.iter();
        let olds: String = olds.map(|der| to_pem("CERTIFICATE", der)).collect();
        let server = self.first.server.clone();
        match with {
            With::Kubeconfig => Access {
                ca: format!("{}\n{new}\n{olds}", self.first.ca),
                ..self.first.clone()
            },
            With::Both | With::New => Access {
                server,
                server_name: self.first.server_name.clone(),
                ca: match with {
                    With::New => new.clone(),
                    With::Kubeconfig | With::Both => format!("{new}\n{olds}"),
                },
                crt: self.client.crt.clone(),
                key: self.client.key.clone(),
            },
        }
    }

    fn cluster(&self, with: With) -> Result<Cluster, String> {
        Cluster::connect(&self.access(with)).map_err(|error| error.to_string())
    }

    /// Runs `work` on a node over a new connection: a step may close existing ones.
    async fn on<T>(
        &self,
        member: &Member,
        work: impl AsyncFnMut(&Node) -> Result<T, Trouble>,
    ) -> Result<T, String> {
        let mut target = self.target.clone();
        // Without names, the one node is the endpoint itself.
        if !target.nodes.is_empty() {
            target.nodes = vec![member.name.clone()];
        }
        alone(&target, work).await
    }

    async fn can_reach(&mut self, server: SocketAddr) -> bool {
        let connected = timeout(CONNECT, TcpStream::connect(server)).await;
        let reached = matches!(connected, Ok(Ok(_)));
        if !reached && self.unreached.insert(server) {
            self.say(&format!(
                "kube-apiserver at {server} cannot be reached from here: it is checked through the endpoint only"
            ));
        }
        reached
    }
}

impl Fleet for Live<'_> {
    async fn change(&mut self, member: &Member, step: Step) -> Result<Option<Mark>, String> {
        let how = How {
            mode: ApplyMode::NoReboot,
            dry_run: false,
            timeout: APPLY,
        };
        let change = self.plan.change();
        self.on(member, async |node| {
            let config = patch::config(node).await?.into_bytes();
            let document = configfile::parse("the machine config", &config)?;
            let before = Trusted::of(&document).map_err(Failure::from)?;
            let after = before.after(step, &change, member.is_control_plane);
            let after = after.map_err(Failure::from)?;
            if before == after {
                return Ok(None);
            }
            let mark = Mark {
                kubelet: kubelet::pid(node).await?,
                manager: static_pods(node).await?.remove(MANAGER),
            };
            let changed = configfile::patched(config, &after.patches())?;
            patch::give(node, changed, &how, true).await?;
            Ok(Some(mark))
        })
        .await
    }

    async fn settled(
        &mut self,
        member: &Member,
        mark: Option<&Mark>,
        with: With,
    ) -> Result<(), String> {
        let mark = mark.cloned().unwrap_or_default();
        let (pods, kubelet) = self
            .on(member, async |node| {
                let kubelet = kubelet::has_restarted(node, mark.kubelet).await?;
                Ok((static_pods(node).await?, kubelet))
            })
            .await?;
        kubelet?;
        let manager = pods.get(MANAGER);
        if manager.is_some() && manager == mark.manager.as_ref() {
            return Err("it has not rewritten the files of kube-controller-manager".to_owned());
        }
        let cluster = self.cluster(with)?;
        let said = |error: ClusterError| error.to_string();
        for (name, digest) in &pods {
            let found = cluster.static_pod(name, &member.nodename);
            match found.await.map_err(said)? {
                Some(pod) if pod.secrets == *digest => {
                    pod.ready.map_err(|why| format!("{name}: {why}"))?;
                }
                Some(_) => return Err(format!("{name} has not restarted")),
                None => return Err(format!("the Kubernetes API does not list its {name}")),
            }
        }
        cluster.node_ready(&member.nodename).await.map_err(said)?
    }

    async fn ready(&mut self, with: With) -> Result<(), String> {
        let said = |error: ClusterError| error.to_string();
        let cluster = self.cluster(with)?;
        let machines = cluster.machines().await.map_err(said)?;
        for machine in machines {
            let name = machine.name;
            machine
                .ready
                .map_err(|why| format!("node {name} is not ready: {why}"))?;
        }
        for server in cluster.api_servers().await.map_err(said)? {
            if !self.can_reach(server).await {
                continue;
            }
            let access = Access {
                server: format!("https://{server}"),
                ..self.access(with)
            };
            let of = |error: ClusterError| format!("kube-apiserver at {server}: {error}");
            let one = Cluster::connect(&access).map_err(of)?;
            one.machines().await.map_err(of)?;
        }
        Ok(())
    }

    async fn published(&mut self) -> Result<(), String> {
        let found = self.cluster(With::Both)?;
        let found = found.published_cas(NAMESPACE).await;
        let text = found
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        let all = certificates_from_pem(text.as_bytes()).unwrap_or_default();
        match all.iter().any(|one| one.as_ref() == self.plan.new_der) {
            true => Ok(()),
            false => Err(format!(
                "ConfigMap {NAMESPACE}/kube-root-ca.crt does not have the new CA; see the log of \
                 kube-controller-manager (`logs -k`)"
            )),
        }
    }

    async fn restart(&mut self, (workload, name): Addon) -> Result<bool, String> {
        let cluster = self.cluster(With::Both)?;
        let now = OffsetDateTime::now_utc().format(&Rfc3339);
        let now = now.map_err(|error| error.to_string())?;
        let restarted = cluster.restart(workload, NAMESPACE, name, &now).await;
        restarted.map_err(|error| error.to_string())
    }

    async fn runs(&mut self, (workload, name): Addon) -> Result<(), String> {
        let cluster = self.cluster(With::Both)?;
        let state = cluster.rollout(workload, NAMESPACE, name).await;
        let state = state.map_err(|error| error.to_string())?;
        let of = |why| format!("{NAMESPACE}/{name}: {why}");
        state.map_or(Ok(()), |state| state.map_err(of))
    }

    fn say(&mut self, line: &str) {
        eprintln!("{}", printable(line));
    }
}

/// The node's static pods of the control plane, with the digests of their secrets.
async fn static_pods(node: &Node) -> Result<BTreeMap<String, String>, Trouble> {
    let kind = "StaticPods.kubernetes.talos.dev";
    let mut found = BTreeMap::new();
    for resource in resources::list(node, "k8s", kind).await? {
        let id = resource.metadata.clone().unwrap_or_default().id;
        let spec = resources::spec(&resource)?;
        let digest = spec.pointer(SECRETS).and_then(Value::as_str);
        if let (true, Some(digest)) = (STATIC_PODS.contains(&&*id), digest) {
            found.insert(id, digest.to_owned());
        }
    }
    Ok(found)
}
