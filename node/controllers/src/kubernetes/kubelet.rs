//! Writes the kubelet's files and runs the kubelet.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_base::cmdline::Cmdline;
use corten_base::console;
use corten_base::durable::{Access, replace_now};
use corten_base::mode::{Ability, Mode};
use corten_config::Document;
use corten_credentials::access::KUBECONFIG;
use corten_credentials::certificates::write_files;
use corten_credentials::kubelet as kubelet_certificate;
use corten_kubernetes::certificates::kubernetes_ca;
use corten_kubernetes::kubelet::{CERTIFICATES, CREDENTIAL_PROGRAMS, CREDENTIALS};
use corten_kubernetes::{Identity, Node, Settings, kubelet};
use corten_network::host_dns::service_addresses;
use corten_resources::Draft;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::environment::{variables, with_variables};
use corten_supervisor::kubernetes::{KUBELET, kubelet_service};
use corten_supervisor::supervisor::Supervisor;
use corten_supervisor::{CONTAINERD, KUBELET_FILES, KUBELET_PKI};
use corten_types::clock::TimeStatus;
use corten_types::kubernetes::{NodeIp, Nodename, StaticPodServerStatus};
use corten_types::kubernetes_kubelet::{ID, KubeletLifecycle, KubeletSpec};
use corten_types::network::{HostnameStatus, NodeAddress};
use corten_types::network_names::ResolverStatus;
use corten_types::runtime::{KernelCmdline, Service};
use corten_values::Secret;
use corten_volumes::Progress;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use super::settings::{credentials, mounts};
use super::volume::lacks_volume;
use super::{Complaints, extra_pods, facts, kubelet_state, next_within, time_is_known};

/// File that becomes `/etc/resolv.conf` in pods that do not use cluster DNS. The node's own file names a cache on
/// loopback, which pods cannot reach.
const RESOLVER: &str = "/run/kubernetes/resolv.conf";
/// Certificate and key of the kubelet: on a worker once the cluster has issued them, on a control plane node always.
const CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// Directory of the kubelet's records.
const STATE: &str = "/var/lib/kubelet";
/// Error if the config requires credential programs that are not installed.
const NO_PROGRAMS: &str = "machine.kubelet.credentialProviderConfig, or a KubeCredentialProviderConfig, names programs, \
                           and there are none below /usr/local/lib/kubelet/credentialproviders: give the node a system \
                           extension that has them";

/// Interval of checks of the certificates' age.
const LOOK: Duration = Duration::from_secs(60 * 60);

#[derive(Debug, Clone)]
pub(super) struct Kubelet {
    pub(super) config: watch::Receiver<Option<Document>>,
    /// Progress of the node's own volumes, which is over before containerd starts.
    pub(super) volumes: watch::Receiver<Progress>,
    pub(super) supervisor: Option<Supervisor>,
}

impl Controller for Kubelet {
    fn name(&self) -> &'static str {
        "k8s.KubeletServiceController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID),
            Input::of::<NodeIp>(Dependency::Weak).with_id(NodeIp::ID),
            Input::of::<HostnameStatus>(Dependency::Weak).with_id(HostnameStatus::ID),
            Input::of::<NodeAddress>(Dependency::Weak),
            Input::of::<ResolverStatus>(Dependency::Weak).with_id(ResolverStatus::ID),
            Input::of::<StaticPodServerStatus>(Dependency::Weak).with_id(StaticPodServerStatus::ID),
            Input::of::<Service>(Dependency::Weak).with_id(CONTAINERD),
            // A kubelet that was still running may write a removed record again, and its successor then ends.
            Input::of::<Service>(Dependency::Weak).with_id(KUBELET),
            Input::of::<TimeStatus>(Dependency::Weak).with_id(TimeStatus::ID),
            Input::of::<KernelCmdline>(Dependency::Weak).with_id(KernelCmdline::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<KubeletSpec>(),
            Output::exclusive::<KubeletLifecycle>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut complaints = Complaints::default();
        // A running kubelet takes new certificates by a restart.
        let mut changed_certificates = 0_u64;
        loop {
            let Some(config) = next_within(LOOK, &mut self.config, context).await else {
                continue;
            };
            let Ok(settings) = Settings::of(&config) else {
                continue;
            };
            let node = match Node::of(&config, &settings) {
                Ok(node) => node,
                Err(missing) => {
                    complaints.say(KUBELET, &missing.to_string());
                    continue;
                }
            };
            let facts = facts(context)?;
            let addresses = context.get::<NodeIp>(NodeIp::ID)?;
            let pods = context.get::<StaticPodServerStatus>(StaticPodServerStatus::ID)?;
            let (Some(facts), Some(addresses), Some(pods)) = (facts, addresses, pods) else {
                continue;
            };
            // Until containerd has started, the kubelet's directory is the image's and read-only.
            let runtime = context.get::<Service>(CONTAINERD)?;
            if !runtime.is_some_and(|service| service.healthy) {
                continue;
            }
            if let Some(why) = lacks_volume(&self.volumes.borrow()) {
                complaints.say(KUBELET, &why);
                continue;
            }
            // A certificate gets its dates from the clock.
            if node.is_control_plane && !node.is_alone && !time_is_known(context)? {
                continue;
            }
            let client = prepare_certificate(&config, &settings, &node, &facts.nodename);
            // A wrong clock tells nothing about the age of a certificate.
            let serving = match time_is_known(context)? {
                true => {
                    let (directory, now) = (Path::new(CERTIFICATES), SystemTime::now());
                    kubelet_certificate::forget_serving(directory, &facts.nodename, now)
                        .map_err(old_certificate)
                }
                false => Ok(false),
            };
            // One counts even if the other fails: the next turn does not find it again.
            let changed = [&client, &serving].map(|step| u64::from(*step == Ok(true)));
            changed_certificates += changed.iter().sum::<u64>();
            if let Err(why) = client.and(serving) {
                complaints.say(KUBELET, &why);
                continue;
            }
            let resolvers = context.get::<ResolverStatus>(ResolverStatus::ID)?;
            let resolver = resolvers
                .map(|status| resolver(&status, &service_addresses(&config)))
                .unwrap_or_default();
            let files = Files::of(&settings, &node, &pods.url);
            let written = write_resolver(&resolver)
                .and_then(|()| files.write(&settings, &node))
                .and_then(|()| extra_pods::write_files(&config));
            if let Err(error) = written.and_then(|()| forget_records(&files, &node)) {
                complaints.say(KUBELET, &format!("its files: {error}"));
                continue;
            }
            match node.credentials.is_some() && !Path::new(CREDENTIAL_PROGRAMS).is_dir() {
                true => complaints.say(KUBELET, NO_PROGRAMS),
                false => complaints.none(),
            }
            let args = kubelet::args(&facts, &node, &addresses.addresses);
            let shown = files.spec(&node, &facts.nodename, &args);
            context.put(Draft::new(ID, shown))?;
            context.put(Draft::new(ID, KubeletLifecycle {}))?;
            if let Some(supervisor) = &self.supervisor {
                let digest = format!("{}-{changed_certificates}", files.digest());
                let service = kubelet_service(&node, args, &digest);
                let line = context.get::<KernelCmdline>(KernelCmdline::ID)?;
                let line = line.map(|line| Cmdline::parse(&line.cmdline));
                let variables = variables(Some(&config), &line.unwrap_or_default());
                supervisor.declare(with_variables(service, &variables));
            }
        }
    }
}

/// Issues a control plane node's certificate, or removes a worker's that the cluster rejects. Returns whether it did.
fn prepare_certificate(
    config: &Document,
    settings: &Settings,
    node: &Node,
    nodename: &str,
) -> Result<bool, String> {
    let directory = Path::new(CERTIFICATES);
    if node.is_alone {
        return Ok(false);
    }
    if node.is_control_plane {
        let ca = kubernetes_ca(config).map_err(|error| describe(&error))?;
        let now = SystemTime::now();
        // Another control plane node may accept the CA that signs and no other one any more.
        return kubelet_certificate::ensure(directory, (&ca, &ca.pem().crt), nodename, now);
    }
    let kubeconfig = Path::new(KUBELET_FILES).join(KUBECONFIG);
    let removed = kubelet_certificate::forget(directory, &kubeconfig, &settings.cas, nodename);
    let removed = removed.map_err(old_certificate)?;
    if removed {
        console::say(
            "kubelet: requests a new certificate, because its old one is of another CA or node name",
        );
    }
    Ok(removed)
}

/// Removes records of resources under another policy than the config's.
fn forget_records(files: &Files, node: &Node) -> io::Result<()> {
    let removed =
        kubelet_state::forget_other_policies(Path::new(STATE), &files.config, &node.args)?;
    for file in removed {
        console::say(&format!(
            "kubelet: removed its {file}, because the config has another policy"
        ));
    }
    Ok(())
}

fn old_certificate(error: io::Error) -> String {
    format!("its old certificate: {error}")
}

/// The name servers and search domains (resolv.conf(5)). The addresses of the node's cache, if pods may use it, replace
/// the servers behind it.
fn resolver(status: &ResolverStatus, cache: &[IpAddr]) -> String {
    let servers = match cache {
        [] => &status.dns_servers,
        cache => cache,
    };
    let servers = servers
        .iter()
        .map(|server| format!("nameserver {server}\n"));
    let domains = match status.search_domains.as_slice() {
        [] => String::new(),
        domains => format!("search {}\n", domains.join(" ")),
    };
    servers.chain([domains]).collect()
}

fn write_resolver(text: &str) -> io::Result<()> {
    replace_now(Path::new(RESOLVER), text, Access::ALL)
}

/// Creates a directory that only the kubelet may read, unless the path exists.
fn make_source(path: &Path) -> io::Result<()> {
    if fs::exists(path)? {
        return Ok(());
    }
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|error| {
        let text = format!(
            "machine.kubelet.extraMounts: cannot make {}: {error}",
            path.display()
        );
        io::Error::new(error.kind(), text)
    })
}

/// Files that the kubelet reads at startup.
struct Files {
    bootstrap: String,
    kubeconfig: String,
    config: Value,
    /// Credential provider config for image registries.
    credentials: Option<Secret>,
}

/// In a container, lets the kubelet itself set the kernel parameters that it requires, since the node does not set
/// them.
fn fitted(mut config: Value, mode: Mode) -> Value {
    if let Some(fields) = config.as_object_mut()
        && !mode.can(Ability::Sysctls)
    {
        fields.insert("protectKernelDefaults".to_owned(), Value::Bool(false));
    }
    config
}

impl Files {
    fn of(settings: &Settings, node: &Node, static_pods: &str) -> Files {
        let server = settings.server(node.is_control_plane);
        let certificate = Identity::Files(CERTIFICATE, CERTIFICATE);
        Files {
            bootstrap: kubelet::bootstrap_kubeconfig(settings, &server).to_string(),
            kubeconfig: kubelet::own_kubeconfig(settings, &server, certificate).to_string(),
            config: fitted(
                kubelet::config(settings, node, static_pods, RESOLVER),
                Mode::now(),
            ),
            credentials: node.credentials.clone(),
        }
    }

    /// Digest of the files whose change restarts a running kubelet. It excludes the bootstrap token, which only a new
    /// node uses.
    fn digest(&self) -> String {
        let digest = Sha256::new().chain_update(&self.kubeconfig);
        let credentials = self.credentials.as_ref().map_or("", |file| file.expose());
        let digest = digest.chain_update(self.config.to_string());
        hex::encode(digest.chain_update(credentials).finalize())
    }

    /// The kubelet as clients see it. `args` begin with the program.
    fn spec(&self, node: &Node, nodename: &str, args: &[String]) -> KubeletSpec {
        let is_renamed = node.args.0.contains_key("hostname-override");
        KubeletSpec {
            image: node.image.clone(),
            args: args.iter().skip(1).cloned().collect(),
            extra_mounts: mounts(node),
            expected_nodename: if is_renamed { "" } else { nodename }.to_owned(),
            config: self.config.clone(),
            credential_provider_config: credentials(node),
        }
    }

    fn write(&self, settings: &Settings, node: &Node) -> io::Result<()> {
        for directory in [KUBELET_FILES, KUBELET_PKI] {
            fs::create_dir_all(directory)?;
        }
        let cas = [("ca.crt", Some(settings.cas.as_str()))];
        write_files(Path::new(KUBELET_PKI), 0, &cas)?;
        let config = self.config.to_string();
        let files = [
            (
                "bootstrap-kubeconfig",
                (!node.is_alone).then_some(self.bootstrap.as_str()),
            ),
            ("kubelet.yaml", Some(config.as_str())),
            (CREDENTIALS, self.credentials.as_ref().map(Secret::expose)),
        ];
        write_files(Path::new(KUBELET_FILES), 0, &files)?;
        for mount in &node.mounts {
            make_source(Path::new(&*mount.source))?;
        }
        // The kubelet writes its own kubeconfig along with its first certificate, and never updates the server in it.
        if !fs::exists(CERTIFICATE)? {
            return Ok(());
        }
        let own = [(KUBECONFIG, Some(self.kubeconfig.as_str()))];
        write_files(Path::new(KUBELET_FILES), 0, &own)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_with_the_dns_of_the_node_get_servers_and_search_domains() {
        let mut status = ResolverStatus {
            dns_servers: vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            search_domains: vec!["a.example".to_owned(), "b.example".to_owned()],
        };
        let servers = "nameserver 10.0.0.2\nnameserver fd00::2\n";
        let wanted = format!("{servers}search a.example b.example\n");
        assert_eq!(resolver(&status, &[]), wanted);
        status.search_domains.clear();
        assert_eq!(resolver(&status, &[]), servers);
        // With `forwardKubeDNSToHost` pods use the node's cache.
        let cache = ["169.254.116.108".parse().unwrap()];
        assert_eq!(resolver(&status, &cache), "nameserver 169.254.116.108\n");
    }

    #[test]
    fn kubelet_in_a_container_sets_the_kernel_parameters_itself() {
        let config = json!({ "protectKernelDefaults": true, "port": 10250 });
        assert_eq!(fitted(config.clone(), Mode::Machine), config);
        let own = json!({ "protectKernelDefaults": false, "port": 10250 });
        assert_eq!(fitted(config, Mode::Container), own);
    }
}
