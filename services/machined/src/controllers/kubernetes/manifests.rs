//! Gives a new cluster what it runs: the bootstrap manifests, once the API server answers.

use std::time::Duration;

use corten_cluster::{Existing, Failed, Report};
use corten_config::Document;
use corten_kubernetes::{ControlPlane, Node, Settings, bootstrap_settings, inline_manifests};
use corten_manifests::{BootstrapToken, Manifest, bootstrap, read};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::sync::watch;
use tokio::time::sleep;

use super::access::connect;
use super::{Complaints, next};
use crate::console;
use crate::describe;
use crate::resources::kubernetes::{ManifestStatus, StaticPod};

/// Between attempts: an API server needs its time to start.
const PAUSE: Duration = Duration::from_secs(5);

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
        vec![Output::exclusive::<ManifestStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut applied: Vec<Manifest> = Vec::new();
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
                match apply(&config, &applied).await {
                    Ok(manifests) => {
                        complaints.none();
                        let manifests_applied = manifests
                            .iter()
                            .map(|manifest| manifest.id.clone())
                            .collect();
                        applied = manifests;
                        let status = ManifestStatus { manifests_applied };
                        context.put(Draft::new(ManifestStatus::ID, status))?;
                        break;
                    }
                    Err(why) => {
                        complaints.say("manifests of the cluster", &why);
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }
}

/// Applies what this config gives to the cluster, unless it is what `applied` says.
async fn apply(config: &Document, applied: &[Manifest]) -> Result<Vec<Manifest>, String> {
    let settings = Settings::of(config).map_err(|missing| missing.to_string())?;
    let node = Node::of(config, &settings).map_err(|missing| missing.to_string())?;
    let own = ControlPlane::of(config).map_err(|missing| missing.to_string())?;
    let token = BootstrapToken::parse(&settings.token)
        .map_err(|error| format!("cluster.token: {error}"))?;
    let mut manifests = bootstrap(&bootstrap_settings(&settings, &node, &own), &token);
    for (name, text) in inline_manifests(config) {
        let objects = read(text.expose());
        let objects = objects.map_err(|error| format!("inline manifest {name}: {error}"))?;
        manifests.push(Manifest { id: name, objects });
    }
    if manifests == applied {
        return Ok(manifests);
    }
    let cluster = connect(config, &settings, &settings.local_endpoint())?;
    cluster.is_ready().await.map_err(|error| describe(&error))?;
    let objects = manifests.iter().flat_map(|manifest| &manifest.objects);
    let objects: Vec<_> = objects.cloned().collect();
    told(&cluster.apply(&objects, Existing::Keep).await)?;
    Ok(manifests)
}

fn told(report: &Report) -> Result<(), String> {
    console::say(&format!(
        "manifests of the cluster: {} objects made, {} there already",
        report.created.len(),
        report.kept.len()
    ));
    match report.failed.first() {
        None => Ok(()),
        Some(Failed { object, reason }) => Err(format!("{object}: {reason}")),
    }
}
