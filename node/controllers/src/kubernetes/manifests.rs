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
use corten_manifests::{BootstrapToken, Identity, Manifest, bootstrap, read};
use corten_resources::Draft;
use corten_resources::controller::with_causes as describe;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::kubernetes::ETCD;
use corten_types::kubernetes::{Manifest as Wanted, ManifestStatus, StaticPod};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::{Complaints, next};

/// Retry interval: an API server starts slowly.
const PAUSE: Duration = Duration::from_secs(5);
/// Time that the API server gets to start before its absence is logged.
const STARTS: Duration = Duration::from_secs(60);
/// Longest retry interval while the API server is ready, but refuses an object.
const LONG_PAUSE: Duration = Duration::from_secs(60);

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
        let mut absence = Complaints::of_lasting(STARTS);
        loop {
            let config = next(&mut self.config, context).await;
            let Some(config) = config.filter(|config| config.machine.kind.is_control_plane())
            else {
                continue;
            };
            if context.list::<StaticPod>()?.is_empty() {
                continue;
            }
            let mut pause = PAUSE;
            while !self.config.has_changed().unwrap_or_default() {
                let mut shown = Ok(());
                let show = |given: &Given| {
                    if shown.is_ok() {
                        shown = show(context, given);
                    }
                };
                let outcome = given.all(&config, show).await;
                shown?;
                if !given.applied.is_empty() {
                    let ids = given.applied.iter().map(|manifest| manifest.id.clone());
                    let status = ManifestStatus {
                        manifests_applied: ids.collect(),
                    };
                    context.put(Draft::new(ManifestStatus::ID, status))?;
                }
                let Err(why) = outcome else {
                    complaints.none();
                    absence.none();
                    break;
                };
                let complaints = match given.has_cluster {
                    true => &mut complaints,
                    false => &mut absence,
                };
                complaints.say("manifests of the cluster", &why);
                let mut fresh = self.config.clone();
                tokio::select! {
                    () = sleep(pause) => {}
                    Ok(()) = fresh.changed() => {}
                }
                pause = match given.has_cluster {
                    true => LONG_PAUSE.min(pause * 2),
                    false => PAUSE,
                };
            }
        }
    }
}

/// Shows the manifests of the node.
fn show(context: &mut Context, given: &Given) -> Result<(), Failure> {
    context.start_outputs();
    for manifest in given.wanted() {
        let wanted = Wanted(manifest.objects.clone());
        context.put(Draft::new(&manifest.id, wanted))?;
    }
    context.remove_others::<Wanted>()?;
    Ok(())
}

/// Manifests applied to the cluster, and those fetched for it.
#[derive(Default)]
struct Given {
    /// Manifests from the config itself. An unreadable one stays as it was: `upgrade-k8s` deletes the objects of a
    /// manifest that is gone.
    own: Vec<Manifest>,
    applied: Vec<Manifest>,
    /// Fetched manifests, one for each id. For the same reason, one stays until its successor is fetched.
    fetched: Vec<(ExternalManifest, Manifest)>,
    /// Whether the API server was ready at the last attempt.
    has_cluster: bool,
}

impl Given {
    /// Applies the manifests of this config that were not applied yet. A manifest that cannot be fetched or read does
    /// not delay the others. Each one is shown before it is applied: a client deletes listed objects of no manifest.
    async fn all(
        &mut self,
        config: &Document,
        mut show: impl FnMut(&Given) + Send,
    ) -> Result<(), String> {
        let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
        let (own, mut troubles) = own(config, &settings, &self.own)?;
        self.own.clone_from(&own);
        let external = config.external_manifests();
        let is_wanted = |id: &str| external.iter().any(|one| one.field == id);
        self.applied
            .retain(|manifest| is_wanted(&manifest.id) || own.contains(manifest));
        self.fetched.retain(|(one, _)| is_wanted(&one.field));
        show(self);
        self.has_cluster = false;
        if troubles.is_empty() && self.has(&own) && external.iter().all(|one| self.has_fetched(one))
        {
            return Ok(());
        }
        let cluster = connect(config, &settings, &settings.local_endpoint())?;
        cluster.is_ready().await.map_err(|error| describe(&error))?;
        self.has_cluster = true;
        if let Err(why) = self.apply(&cluster, own).await {
            troubles.push(why);
        }
        for one in external {
            let field = one.field.clone();
            let applied = match self.fetch(one, &mut show).await {
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

    /// Applies the manifests that were not applied yet. One with an object that fails keeps no other from being applied.
    async fn apply(&mut self, cluster: &Cluster, manifests: Vec<Manifest>) -> Result<(), String> {
        let is_new = |manifest: &Manifest| !self.applied.contains(manifest);
        let manifests: Vec<Manifest> = manifests.into_iter().filter(is_new).collect();
        if manifests.is_empty() {
            return Ok(());
        }
        let objects = manifests.iter().flat_map(|manifest| &manifest.objects);
        let objects: Vec<_> = objects.cloned().collect();
        let report = exclusively(cluster.apply(&objects, Existing::Keep)).await?;
        self.applied
            .retain(|old| !manifests.iter().any(|new| new.id == old.id));
        let is_done = |manifest: &Manifest| !has_failed(manifest, &report.failed);
        self.applied.extend(manifests.into_iter().filter(is_done));
        told(&report)
    }

    /// Fetches an external manifest, once, and shows it.
    async fn fetch(
        &mut self,
        wanted: ExternalManifest,
        mut show: impl FnMut(&Given) + Send,
    ) -> Result<Manifest, String> {
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
        self.fetched.retain(|(one, _)| one.field != wanted.field);
        self.fetched.push((wanted, manifest.clone()));
        show(self);
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

/// The manifests inside the config, and the errors of those that cannot be parsed. Those are taken from `before`.
fn own(
    config: &Document,
    settings: &Settings,
    before: &[Manifest],
) -> Result<(Vec<Manifest>, Vec<String>), String> {
    let own = ControlPlane::of(config).map_err(|missing| missing.to_string())?;
    let token = BootstrapToken::parse(&settings.token)
        .map_err(|error| format!("cluster.token: {error}"))?;
    let mut manifests = bootstrap(&bootstrap_settings(settings, &own), &token);
    let mut troubles = Vec::new();
    for (name, text) in config.inline_manifests() {
        match read(text.expose()) {
            Ok(objects) => manifests.push(Manifest { id: name, objects }),
            Err(error) => {
                troubles.push(format!("inline manifest {name}: {error}"));
                manifests.extend(before.iter().find(|old| old.id == name).cloned());
            }
        }
    }
    Ok((manifests, troubles))
}

/// Whether an object of the manifest is among the failed ones, in any namespace: an object without one gets the default.
fn has_failed(manifest: &Manifest, failed: &[Failed]) -> bool {
    let mut own = manifest
        .objects
        .iter()
        .filter_map(|object| Identity::of(object).ok());
    own.any(|own| {
        failed.iter().any(|Failed { object, .. }| {
            (&own.group, &own.kind, &own.name) == (&object.group, &object.kind, &object.name)
        })
    })
}

fn told(report: &Report) -> Result<(), String> {
    // Repeated attempts for one failed object say nothing new.
    if !report.created.is_empty() || report.failed.is_empty() {
        console::say(&format!(
            "manifests of the cluster: {} objects created, {} exist already",
            report.created.len(),
            report.kept.len()
        ));
    }
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

    use super::super::settings::tests::config as sample;
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

    /// A config with this inline manifest `b`, whose API server does not answer.
    fn config(inline: &str) -> Document {
        let (mut config, _) = sample("v1.37.2");
        config.cluster.control_plane.local_api_server_port = Some(1);
        for manifest in &mut config.cluster.inline_manifests {
            manifest.contents = Secret::new(inline);
        }
        config
    }

    const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n";

    fn ids(given: &Given) -> Vec<String> {
        given.wanted().map(|manifest| manifest.id.clone()).collect()
    }

    #[test]
    fn manifest_with_a_failed_object_is_not_applied_and_the_others_are() {
        let manifest = |text: &str| Manifest {
            id: "a".to_owned(),
            objects: read(text).unwrap(),
        };
        let good = manifest(NAMESPACE);
        let bad = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let bad = manifest(&format!("{NAMESPACE}---\n{bad}"));
        let object = Identity {
            namespace: "default".to_owned(),
            ..Identity::of(&bad.objects[1]).unwrap()
        };
        let reason = "refused".to_owned();
        let failed = [Failed { object, reason }];
        assert!(has_failed(&bad, &failed));
        assert!(!has_failed(&good, &failed));
    }

    #[tokio::test]
    async fn own_manifests_are_shown_before_the_api_server_answers() {
        let mut given = Given::default();
        let mut shown = Vec::new();
        let show = |given: &Given| shown = ids(given);
        given.all(&config(NAMESPACE), show).await.unwrap_err();
        assert!(shown.contains(&"b".to_owned()), "{shown:?}");
        assert!(shown.len() > 1, "{shown:?}");
    }

    #[tokio::test]
    async fn unreadable_inline_manifest_leaves_its_last_good_text_until_it_leaves_the_config() {
        let mut given = Given::default();
        given.all(&config(NAMESPACE), |_| ()).await.unwrap_err();
        let good = given.own.clone();
        given
            .all(&config("no: manifest"), |_| ())
            .await
            .unwrap_err();
        assert_eq!(given.own, good);
        let mut without = config("");
        without.cluster.inline_manifests.clear();
        given.all(&without, |_| ()).await.unwrap_err();
        assert!(!ids(&given).contains(&"b".to_owned()));
    }

    #[tokio::test]
    async fn external_manifest_stays_until_its_successor_is_fetched() {
        let mut given = Given::default();
        let first = given.fetch(server(NAMESPACE), |_| ()).await.unwrap();
        let mut config = config(NAMESPACE);
        given.all(&config, |_| ()).await.unwrap_err();
        let wanted = ExternalManifest {
            field: first.id.clone(),
            url: Secret::new("http://127.0.0.1:1/gone.yaml"),
            headers: Vec::new(),
        };
        given.fetch(wanted, |_| ()).await.unwrap_err();
        assert!(given.wanted().any(|manifest| *manifest == first));
        let second = "apiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n";
        let second = given.fetch(server(second), |_| ()).await.unwrap();
        let shown: Vec<&Manifest> = given.wanted().filter(|one| one.id == first.id).collect();
        assert_eq!(shown, [&second]);
        config.cluster.extra_manifests.clear();
        given.all(&config, |_| ()).await.unwrap_err();
        assert!(!ids(&given).contains(&first.id));
    }

    #[tokio::test]
    async fn external_manifest_is_fetched_once_and_shown_at_once() {
        let mut given = Given::default();
        let mut shown = Vec::new();
        let mut show = |given: &Given| shown.push(ids(given));
        let wanted = server(NAMESPACE);
        let first = given.fetch(wanted.clone(), &mut show).await.unwrap();
        assert_eq!(first.id, "cluster.extraManifests[0]");
        assert_eq!(first.objects[0]["metadata"]["name"], "a");
        assert_eq!(given.fetch(wanted, &mut show).await, Ok(first.clone()));
        assert_eq!(shown, [[first.id.clone()]]);
        assert_eq!(given.wanted().collect::<Vec<_>>(), [&first]);
        let failed = given.fetch(server("no: manifest"), |_| ()).await;
        let error = failed.unwrap_err();
        assert!(error.contains("object 1"), "{error}");
    }
}
