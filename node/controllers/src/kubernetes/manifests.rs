//! Applies manifests to the cluster once the API server answers: the bootstrap manifests, those inside the config, and
//! those it refers to.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use corten_acquire::get_with;
use corten_base::console;
use corten_cluster::{Cluster, Existing, Failed, Report};
use corten_config::{Document, ExternalManifest};
use corten_credentials::access::connect;
use corten_credentials::etcd;
use corten_kubernetes::pods::HOST_SECRETS;
use corten_kubernetes::{ControlPlane, Settings, bootstrap_settings};
use corten_manifests::{BootstrapToken, Manifest, bootstrap, read};
use corten_resources::Draft;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_services::kubernetes::ETCD;
use corten_types::kubernetes::{Manifest as Wanted, ManifestStatus, StaticPod};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{Complaints, next};

/// Retry interval: an API server starts slowly.
const PAUSE: Duration = Duration::from_secs(5);

/// Lock of the cluster; the reference's name.
const LOCK: &str = "talos:v1:manifestApplyMutex";
/// Time after which another node may apply when this one has died.
const TTL: Duration = Duration::from_secs(60);
/// Limit of one wait for the lock.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
pub(super) struct Manifests {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for Manifests {
    fn name(&self) -> &'static str {
        "k8s.ManifestApplyController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<StaticPod>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<Wanted>(),
            Output::exclusive::<ManifestStatus>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut given = Given::default();
        let mut complaints = Complaints::default();
        loop {
            let config = next(&mut self.config, context).await;
            let Some(config) = config.filter(|config| config.machine.kind.is_control_plane())
            else {
                continue;
            };
            if context.list::<StaticPod>()?.is_empty() {
                continue;
            }
            while !self.config.has_changed().unwrap_or_default() {
                let outcome = given.all(&config).await;
                context.start_outputs();
                for manifest in given.wanted() {
                    let wanted = Wanted(manifest.objects.clone());
                    context.put(Draft::new(&manifest.id, wanted))?;
                }
                context.remove_others::<Wanted>()?;
                if !given.applied.is_empty() {
                    let ids = given.applied.iter().map(|manifest| manifest.id.clone());
                    let status = ManifestStatus {
                        manifests_applied: ids.collect(),
                    };
                    context.put(Draft::new(ManifestStatus::ID, status))?;
                }
                let Err(why) = outcome else {
                    complaints.none();
                    break;
                };
                complaints.say("manifests of the cluster", &why);
                sleep(PAUSE).await;
            }
        }
    }
}

/// Manifests applied to the cluster, and those fetched for it.
#[derive(Default)]
struct Given {
    /// Manifests from the config itself.
    own: Vec<Manifest>,
    applied: Vec<Manifest>,
    fetched: Vec<(ExternalManifest, Manifest)>,
}

impl Given {
    /// Applies the manifests of this config that were not applied yet. A manifest that cannot be fetched or read does
    /// not delay the others.
    async fn all(&mut self, config: &Document) -> Result<(), String> {
        let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
        let (own, mut troubles) = own(config, &settings)?;
        self.own.clone_from(&own);
        let external = config.external_manifests();
        self.applied.retain(|manifest| {
            let is_external = external.iter().any(|one| one.field == manifest.id);
            is_external || own.contains(manifest)
        });
        self.fetched.retain(|(one, _)| external.contains(one));
        if troubles.is_empty() && self.has(&own) && external.iter().all(|one| self.has_fetched(one))
        {
            return Ok(());
        }
        let cluster = connect(config, &settings, &settings.local_endpoint())?;
        cluster.is_ready().await.map_err(|error| describe(&error))?;
        if let Err(why) = self.apply(&cluster, own).await {
            troubles.push(why);
        }
        for one in external {
            let field = one.field.clone();
            let applied = match self.fetch(one).await {
                Ok(manifest) => self.apply(&cluster, vec![manifest]).await,
                Err(why) => Err(why),
            };
            if let Err(why) = applied {
                troubles.push(format!("{field}: {why}"));
            }
        }
        match troubles.is_empty() {
            true => Ok(()),
            false => Err(troubles.join("; ")),
        }
    }

    /// Manifests for the cluster, as far as they could be fetched.
    fn wanted(&self) -> impl Iterator<Item = &Manifest> {
        let fetched = self.fetched.iter().map(|(_, manifest)| manifest);
        self.own.iter().chain(fetched)
    }

    fn has(&self, manifests: &[Manifest]) -> bool {
        manifests.iter().all(|one| self.applied.contains(one))
    }

    fn has_fetched(&self, wanted: &ExternalManifest) -> bool {
        let mut fetched = self.fetched.iter();
        fetched.any(|(one, manifest)| one == wanted && self.applied.contains(manifest))
    }

    async fn apply(&mut self, cluster: &Cluster, manifests: Vec<Manifest>) -> Result<(), String> {
        if self.has(&manifests) {
            return Ok(());
        }
        let objects = manifests.iter().flat_map(|manifest| &manifest.objects);
        let objects: Vec<_> = objects.cloned().collect();
        let applied = exclusively(cluster.apply(&objects, Existing::Keep)).await?;
        told(&applied)?;
        self.applied
            .retain(|old| !manifests.iter().any(|new| new.id == old.id));
        self.applied.extend(manifests);
        Ok(())
    }

    /// Fetches an external manifest, once.
    async fn fetch(&mut self, wanted: ExternalManifest) -> Result<Manifest, String> {
        if let Some((_, manifest)) = self.fetched.iter().find(|(one, _)| *one == wanted) {
            return Ok(manifest.clone());
        }
        let asked = wanted.clone();
        let bytes = spawn_blocking(move || get_with(asked.url.expose(), &asked.headers)).await;
        let bytes = bytes.map_err(|error| describe(&error))??;
        let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
        let manifest = Manifest {
            id: wanted.field.clone(),
            objects: read(&text).map_err(|error| error.to_string())?,
        };
        self.fetched.push((wanted, manifest.clone()));
        Ok(manifest)
    }
}

/// Applies while no other control plane node does. Two that create the same objects would each miss some of them in the
/// inventory.
async fn exclusively<T>(apply: impl Future<Output = T>) -> Result<T, String> {
    let secrets = Path::new(HOST_SECRETS).join(ETCD);
    let member = etcd::connect(&secrets, &[Ipv4Addr::LOCALHOST.into()]).await?;
    let applied = member.exclusively(LOCK, (TTL, PATIENCE), apply).await;
    applied.map_err(|error| describe(&error))
}

/// The manifests inside the config, and the errors of those that cannot be parsed.
fn own(config: &Document, settings: &Settings) -> Result<(Vec<Manifest>, Vec<String>), String> {
    let own = ControlPlane::of(config).map_err(|missing| missing.to_string())?;
    let token = BootstrapToken::parse(&settings.token)
        .map_err(|error| format!("cluster.token: {error}"))?;
    let mut manifests = bootstrap(&bootstrap_settings(settings, &own), &token);
    let mut troubles = Vec::new();
    for (name, text) in config.inline_manifests() {
        match read(text.expose()) {
            Ok(objects) => manifests.push(Manifest { id: name, objects }),
            Err(error) => troubles.push(format!("inline manifest {name}: {error}")),
        }
    }
    Ok((manifests, troubles))
}

fn told(report: &Report) -> Result<(), String> {
    console::say(&format!(
        "manifests of the cluster: {} objects created, {} exist already",
        report.created.len(),
        report.kept.len()
    ));
    match report.failed.first() {
        None => Ok(()),
        Some(Failed { object, reason }) => Err(format!("{object}: {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use corten_values::Secret;

    use super::*;

    /// Answers one request.
    fn server(body: &'static str) -> ExternalManifest {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a.yaml", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).unwrap();
        });
        ExternalManifest {
            field: "cluster.extraManifests[0]".to_owned(),
            url: Secret::new(url),
            headers: Vec::new(),
        }
    }

    #[tokio::test]
    async fn external_manifest_is_fetched_once() {
        let mut given = Given::default();
        let wanted = server("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n");
        let first = given.fetch(wanted.clone()).await.unwrap();
        assert_eq!(first.id, "cluster.extraManifests[0]");
        assert_eq!(first.objects[0]["metadata"]["name"], "a");
        assert_eq!(given.fetch(wanted).await, Ok(first.clone()));
        assert_eq!(given.wanted().collect::<Vec<_>>(), [&first]);
        let error = given.fetch(server("no: manifest")).await.unwrap_err();
        assert!(error.contains("object 1"), "{error}");
    }
}
