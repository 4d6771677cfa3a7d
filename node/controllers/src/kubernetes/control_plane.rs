//! Makes the certificates, files and static pods of the control plane.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use corten_config::Document;
use corten_credentials::access::connect;
use corten_credentials::certificates::{Held, write_files};
use corten_kubernetes::certificates::{
    Cas, Certificates, admin_certificate, admin_lifetime, api_names,
};
use corten_kubernetes::files::{Component, File, components};
use corten_kubernetes::pods::{HOST_CONFIG, HOST_SECRETS, static_pods, versions_of_files};
use corten_kubernetes::{ControlPlane, Settings, admin};
use corten_pki::CertificateAndKey;
use corten_resources::Draft;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::clock::TimeStatus;
use corten_types::etcd::EtcdMember;
use corten_types::kubernetes::{Nodename, StaticPod};
use corten_types::kubernetes_components::{
    ApiServerConfig, ConfigStatus, ControllerManagerConfig, SchedulerConfig, SecretsStatus,
};
use corten_types::network::{HostnameStatus, NodeAddress};
use corten_types::network_names::OperatorSpec;
use corten_types::secrets::PemPair;
use corten_types::secrets_kubernetes::{EtcdCerts, KubernetesCerts, KubernetesDynamicCerts};
use corten_values::Secret;
use tokio::sync::watch;
use tokio::time::sleep;

use super::settings::{Versions, show, show_components};
use super::{Complaints, facts, time_is_known};

/// Interval of checks against the wall clock, whose changes cause no event.
const LOOK: Duration = Duration::from_secs(10 * 60);
/// Retry interval after a failure.
const PAUSE: Duration = Duration::from_secs(10);
/// Interval of checks whether the API server is ready.
const API_PAUSE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(super) struct ControlPlanes {
    pub(super) config: watch::Receiver<Option<Document>>,
}

/// Inputs of the certificates; a change makes new ones.
#[derive(Debug, Clone, PartialEq)]
struct MadeFor {
    names: Vec<String>,
    cas: [String; 2],
}

/// Results of this boot.
#[derive(Debug, Default)]
struct Made {
    certificates: Option<(Held<MadeFor>, Certificates)>,
    /// The administrator's certificate for the kubeconfigs that the node shows, with its CA and lifetime.
    admin: Option<(Held<(String, Duration)>, CertificateAndKey)>,
    written: Vec<Component>,
    /// Whether etcd has worked: without it the API server would only fail and enter back-off.
    had_etcd: bool,
    /// Whether the API server of this node has been ready: without it the other components would only fail and enter
    /// back-off, and delay it on a machine with few processors.
    had_api: bool,
}

impl Controller for ControlPlanes {
    fn name(&self) -> &'static str {
        "k8s.ControlPlaneStaticPodController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<Nodename>(Dependency::Weak).with_id(Nodename::ID),
            Input::of::<HostnameStatus>(Dependency::Weak).with_id(HostnameStatus::ID),
            Input::of::<NodeAddress>(Dependency::Weak),
            Input::of::<TimeStatus>(Dependency::Weak).with_id(TimeStatus::ID),
            Input::of::<OperatorSpec>(Dependency::Weak),
            Input::of::<EtcdMember>(Dependency::Weak).with_id(EtcdMember::ID),
            Input::of::<EtcdCerts>(Dependency::Weak).with_id(EtcdCerts::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::shared::<StaticPod>(),
            Output::exclusive::<ApiServerConfig>(),
            Output::exclusive::<ControllerManagerConfig>(),
            Output::exclusive::<SchedulerConfig>(),
            Output::exclusive::<SecretsStatus>(),
            Output::exclusive::<ConfigStatus>(),
            Output::exclusive::<KubernetesDynamicCerts>(),
            Output::exclusive::<KubernetesCerts>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut made = Made::default();
        let mut complaints = Complaints::default();
        let mut pause = LOOK;
        loop {
            tokio::select! {
                () = context.event() => {}
                Ok(()) = self.config.changed() => {}
                () = sleep(pause) => {}
            }
            pause = LOOK;
            let config = self.config.borrow_and_update().clone();
            let config = config.filter(|config| config.machine.kind.is_control_plane());
            made.had_etcd |= context.get::<EtcdMember>(EtcdMember::ID)?.is_some();
            let versions = show_components(context, config.as_ref())?;
            let rendered = match &config {
                Some(config) => match render(context, config, &versions, &mut made)? {
                    Ok(rendered) => rendered,
                    Err(why) => {
                        complaints.say("the control plane", &why);
                        pause = PAUSE;
                        continue;
                    }
                },
                None => Some(Rendered::default()),
            };
            complaints.none();
            // An input is not known yet.
            let Some(rendered) = rendered else { continue };
            context.start_outputs();
            rendered.shown.show(context)?;
            for (id, pod) in made.runnable(rendered.pods) {
                context.put(Draft::new(id, pod))?;
            }
            context.remove_others::<StaticPod>()?;
            if let Some(config) = config.filter(|_| !made.had_api) {
                made.had_api = is_api_ready(&config).await;
                pause = match made.had_api {
                    true => Duration::ZERO,
                    false => API_PAUSE,
                };
            }
        }
    }
}

/// Whether this node's API server answers, and has finished its start.
async fn is_api_ready(config: &Document) -> bool {
    let Ok(settings) = Settings::of(config) else {
        return false;
    };
    let Ok(cluster) = connect(config, &settings, &settings.local_endpoint()) else {
        return false;
    };
    cluster.is_ready().await.is_ok()
}

type Pods = Vec<(&'static str, StaticPod)>;

/// Pods and resources of a config's control plane; nothing by default.
#[derive(Debug, Default)]
struct Rendered {
    pods: Pods,
    shown: Shown,
}

/// The state of the written files, and the certificates in them.
#[derive(Debug, Default)]
struct Shown {
    secrets: Option<SecretsStatus>,
    config: Option<ConfigStatus>,
    certificates: Option<KubernetesDynamicCerts>,
    kubeconfigs: Option<KubernetesCerts>,
}

impl Shown {
    fn of(components: &[Component], certificates: &Certificates, admins: [Secret; 2]) -> Shown {
        let (secrets, config) = versions_of_files(components);
        let kubeconfig = |name: &str| {
            let component = components.iter().find(|component| component.name == name);
            let mut files = component
                .into_iter()
                .flat_map(|component| &component.secrets);
            let file = files.find(|file| file.name == "kubeconfig");
            file.map(|file| file.content.clone()).unwrap_or_default()
        };
        let [localhost_admin_kubeconfig, admin_kubeconfig] = admins;
        Shown {
            secrets: Some(SecretsStatus {
                ready: true,
                version: secrets,
            }),
            config: Some(ConfigStatus {
                ready: true,
                version: config,
            }),
            certificates: Some(KubernetesDynamicCerts {
                api_server: PemPair::from(&certificates.api_server),
                api_server_kubelet_client: PemPair::from(&certificates.kubelet_client),
                front_proxy: PemPair::from(&certificates.front_proxy),
            }),
            kubeconfigs: Some(KubernetesCerts {
                scheduler_kubeconfig: kubeconfig(SchedulerConfig::ID),
                controller_manager_kubeconfig: kubeconfig(ControllerManagerConfig::ID),
                localhost_admin_kubeconfig,
                admin_kubeconfig,
            }),
        }
    }

    fn show(self, context: &mut Context) -> Result<(), Failure> {
        show(context, SecretsStatus::ID, self.secrets)?;
        show(context, ConfigStatus::ID, self.config)?;
        show(context, KubernetesDynamicCerts::ID, self.certificates)?;
        show(context, KubernetesCerts::ID, self.kubeconfigs)
    }
}

/// Writes the files of this config's control plane; returns its pods, or the reason why there are none.
fn render(
    context: &Context,
    config: &Document,
    versions: &Versions,
    made: &mut Made,
) -> Result<Result<Option<Rendered>, String>, Failure> {
    let Ok(settings) = Settings::of(config) else {
        return Ok(Ok(Some(Rendered::default())));
    };
    let Some(facts) = facts(context)?.filter(|_| made.had_etcd) else {
        return Ok(Ok(None));
    };
    let etcd = context.get::<EtcdCerts>(EtcdCerts::ID)?;
    let (Some(etcd), true) = (etcd, time_is_known(context)?) else {
        return Ok(Ok(None));
    };
    let operators = context.list::<OperatorSpec>()?;
    let shared: Vec<IpAddr> = operators.iter().filter_map(|spec| spec.shared).collect();
    let etcd_client = CertificateAndKey {
        crt: etcd.etcd_api_server.crt.clone(),
        key: etcd.etcd_api_server.key.expose().to_owned(),
    };
    let rendered = ControlPlane::of(config)
        .map_err(|missing| missing.to_string())
        .and_then(|mut own| {
            own.names.extend(shared.iter().map(ToString::to_string));
            let names = api_names(&settings, &own, &facts);
            let cas = Cas::of(config).map_err(|error| describe(&error))?;
            let admins = made.admins(config, &settings, &cas)?;
            let certificates = made.certificates(&cas, names)?.clone();
            let key = config.service_account_key();
            let components = components(&settings, &own, &cas, &certificates, &etcd_client, key);
            made.write(&components)
                .map_err(|error| format!("its files: {error}"))?;
            let pods = static_pods(&settings, &own, &components);
            let pods = pods.into_iter().map(|mut pod| {
                if let Some(version) = versions.get(pod.id) {
                    pod.set_version(version);
                }
                (pod.id, StaticPod(pod.pod))
            });
            Ok(Some(Rendered {
                pods: pods.collect(),
                shown: Shown::of(&components, &certificates, admins),
            }))
        });
    Ok(rendered)
}

impl Made {
    /// Returns the certificates; makes new ones if their inputs changed or half of their lifetime has passed.
    fn certificates(&mut self, cas: &Cas, names: Vec<String>) -> Result<&Certificates, String> {
        let now = SystemTime::now();
        let all = [&cas.kubernetes, &cas.aggregator];
        let wanted = MadeFor {
            names,
            cas: all.map(|ca| ca.pem().crt.clone()),
        };
        let is_good = |(held, _): &(Held<MadeFor>, Certificates)| held.left(&wanted, now).is_some();
        if !self.certificates.as_ref().is_some_and(is_good) {
            let new =
                Certificates::issue(cas, &wanted.names, now).map_err(|error| describe(&error))?;
            let held = Held::new(&new.api_server, wanted, now).map_err(|error| describe(&error))?;
            self.certificates = Some((held, new));
        }
        let (_, certificates) = self
            .certificates
            .as_ref()
            .ok_or("its certificates are missing")?;
        Ok(certificates)
    }

    /// The administrator's kubeconfigs, for this node's API server and for the cluster's endpoint.
    fn admins(
        &mut self,
        config: &Document,
        settings: &Settings,
        cas: &Cas,
    ) -> Result<[Secret; 2], String> {
        let now = SystemTime::now();
        let lifetime = admin_lifetime(config);
        let wanted = (cas.kubernetes.pem().crt.clone(), lifetime);
        let is_good = |(held, _): &(Held<(String, Duration)>, _)| held.left(&wanted, now).is_some();
        if !self.admin.as_ref().is_some_and(is_good) {
            let new = admin_certificate(&cas.kubernetes, now, lifetime)
                .map_err(|error| describe(&error))?;
            let held = Held::new(&new, wanted, now).map_err(|error| describe(&error))?;
            self.admin = Some((held, new));
        }
        let (_, certificate) = self.admin.as_ref().ok_or("its certificates are missing")?;
        let servers = [settings.local_endpoint(), settings.endpoint.clone()];
        Ok(servers.map(|server| Secret::new(admin(settings, &server, certificate).to_string())))
    }

    /// The pods to run now: the API server alone until it is ready.
    fn runnable(&mut self, mut pods: Pods) -> Pods {
        // A control plane without an API server of its own has none to wait for.
        let has_api = pods.iter().any(|(id, _)| *id == ApiServerConfig::ID);
        self.had_api |= !has_api && !pods.is_empty();
        pods.retain(|(id, _)| self.had_api || *id == ApiServerConfig::ID);
        pods
    }

    fn write(&mut self, components: &[Component]) -> io::Result<()> {
        if self.written == components {
            return Ok(());
        }
        for component in components {
            for (place, files) in [
                (HOST_SECRETS, &component.secrets),
                (HOST_CONFIG, &component.config),
            ] {
                let directory = Path::new(place).join(component.name);
                fs::create_dir_all(&directory)?;
                let text = |file: &'_ File| (file.name, file.content.expose().to_owned());
                let files: Vec<_> = files.iter().map(text).collect();
                let files: Vec<_> = files
                    .iter()
                    .map(|(name, text)| (*name, Some(text.as_str())))
                    .collect();
                write_files(&directory, component.uid, &files)?;
            }
        }
        self.written = components.to_vec();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use corten_pki::{Algorithm, Ca, certificates_from_pem, verify_client};
    use serde_json::json;

    use super::*;

    fn new_ca() -> Ca {
        Ca::generate(Algorithm::EcdsaP256, "kubernetes", "", SystemTime::now()).unwrap()
    }

    #[test]
    fn certificates_are_issued_anew_when_the_ca_changes() {
        let mut cas = Cas {
            kubernetes: new_ca(),
            aggregator: new_ca(),
            etcd: new_ca(),
        };
        let names = || vec!["10.0.0.1".to_owned()];
        let mut made = Made::default();
        let first = made.certificates(&cas, names()).unwrap().clone();
        assert_eq!(made.certificates(&cas, names()), Ok(&first));
        cas.kubernetes = new_ca();
        let second = made.certificates(&cas, names()).unwrap();
        let new = certificates_from_pem(cas.kubernetes.pem().crt.as_bytes()).unwrap();
        for client in [&second.scheduler, &second.controller_manager] {
            let chain = certificates_from_pem(client.crt.as_bytes()).unwrap();
            verify_client(&chain, &new, SystemTime::now()).unwrap();
        }
        corten_pki::verify_issued(&second.api_server, &new, SystemTime::now()).unwrap();
    }

    #[test]
    fn api_server_starts_alone_until_it_is_ready() {
        let pods = |names: &[&'static str]| -> Pods {
            let pods = names.iter().map(|name| (*name, StaticPod(json!({}))));
            pods.collect()
        };
        let names =
            |pods: Pods| -> Vec<&'static str> { pods.into_iter().map(|(id, _)| id).collect() };
        let all = [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
        ];
        let mut made = Made::default();
        assert!(made.runnable(pods(&[])).is_empty());
        assert_eq!(names(made.runnable(pods(&all))), ["kube-apiserver"]);
        made.had_api = true;
        assert_eq!(names(made.runnable(pods(&all))), all);
        let mut made = Made::default();
        assert_eq!(names(made.runnable(pods(&all[1..]))), all[1..]);
    }
}
