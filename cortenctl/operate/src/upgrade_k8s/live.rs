//! The cluster of an upgrade: its nodes through their API, and Kubernetes.

use std::collections::BTreeMap;
use std::time::Duration;

use corten_client::configfile;
use corten_client::connect::Target;
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::resources;
use corten_client::stream::{Node, Trouble, alone};
use corten_client::table::printable;
use corten_cluster::{Cluster, Existing, Machine, Requested, Workload};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::component::Component;
use super::execute::{Applied, Fleet};
use super::gates;
use super::manifests::{NAMESPACE, all_done, has_proxy, is_new, is_proxy, workloads};
use super::plan::{Member, Place};
use super::version::{self, Version};
use crate::args::{ApplyMode, How, ImageName, ImageNamespace};
use crate::{image, kubelet, kubernetes, patch, wait};

/// Time for a node to render its manifests from a changed config.
const RENDER: Duration = Duration::from_secs(60);
/// Interval of the checks.
const LOOK: Duration = Duration::from_secs(1);

pub(super) struct Live {
    global: Global,
    cluster: Cluster,
    control_planes: Vec<Place>,
    /// The PID of the kubelet whose image was changed last.
    kubelet: Option<u64>,
    /// The last applied workloads: kind, namespace, name.
    workloads: Vec<(Workload, String, String)>,
}

impl Live {
    pub(super) async fn connect(global: &Global, server: Option<&str>) -> Result<Live, Failure> {
        let cluster = kubernetes::connect(global, server).await?;
        Ok(Live {
            global: global.clone(),
            cluster: cluster.map_err(Failure::call)?,
            control_planes: Vec::new(),
            kubelet: None,
            workloads: Vec::new(),
        })
    }

    /// Queries every node of the cluster at its own API.
    pub(super) async fn members(&mut self) -> Result<Vec<Member>, Failure> {
        let machines = self.cluster.machines().await;
        let machines = machines.map_err(|error| Failure::call(error.to_string()))?;
        let mut members = Vec::new();
        for machine in machines {
            members.push(self.member(machine).await?);
        }
        let control_planes = members.iter().filter(|member| member.is_control_plane);
        self.control_planes = control_planes.map(|member| member.place.clone()).collect();
        Ok(members)
    }

    async fn member(&mut self, machine: Machine) -> Result<Member, Failure> {
        let Some(address) = machine.addresses.first() else {
            return Err(Failure::call(format!(
                "node {} has no address in the Kubernetes API",
                machine.name
            )));
        };
        let place = Place {
            name: machine.name,
            address: address.to_string(),
        };
        let asked = self.on(&place, async |node| {
            let config = patch::config(node).await?;
            let document = configfile::parse("the machine config", config.as_bytes())?;
            let images = Component::ALL.into_iter();
            let images = images.filter_map(|one| Some((one, one.image(&document)?)));
            let images: BTreeMap<Component, String> = images.collect();
            let gates = images
                .keys()
                .map(|one| (*one, gates::used(*one, &document)));
            let gates: BTreeMap<Component, Vec<String>> = gates.collect();
            let is_control_plane = document.machine.kind.is_control_plane();
            let has_member = !is_control_plane || resources::has_member(node).await?;
            let mut troubles: Vec<String> = wait::unready(node).await.into_iter().collect();
            if !has_member {
                troubles.push("its member of etcd has no leader".to_owned());
            }
            Ok((is_control_plane, images, gates, troubles))
        });
        let (is_control_plane, images, gates, mut troubles) = asked.await.map_err(|why| {
            Failure::call(format!(
                "node {} ({}) cannot be queried: {why}",
                place.name, place.address
            ))
        })?;
        if let Err(why) = machine.ready {
            troubles.push(format!("its kubelet is not ready: {why}"));
        }
        for (component, image) in images.iter().filter(|(one, _)| one.is_static_pod()) {
            if let Err(why) = self.look(&place, *component, image).await {
                troubles.push(format!("{}: {why}", component.name()));
            }
        }
        Ok(Member {
            is_control_plane,
            kubelet: Version::parse(&machine.kubelet),
            place,
            images,
            gates,
            troubles,
        })
    }

    pub(super) async fn requested_old_apis(&self) -> Result<Vec<Requested>, Failure> {
        let requested = self.cluster.requested_old_apis().await;
        requested.map_err(|error| Failure::call(error.to_string()))
    }

    /// Runs `work` on a node over a new connection: the restart of an API server may close existing ones.
    async fn on<T>(
        &self,
        place: &Place,
        work: impl AsyncFnMut(&Node) -> Result<T, Trouble>,
    ) -> Result<T, String> {
        let target = Target::of(&self.global).map_err(Failure::sentence)?;
        let target = Target {
            nodes: vec![place.address.clone()],
            ..target
        };
        alone(&target, work).await
    }

    /// Checks that a workload runs as its manifest specifies.
    async fn runs(
        &self,
        (workload, namespace, name): (Workload, &str, &str),
    ) -> Result<(), String> {
        let state = self.cluster.rollout(workload, namespace, name).await;
        let state = state.map_err(|error| error.to_string())?;
        state.unwrap_or_else(|| Err("it does not exist".to_owned()))
    }

    /// The objects of all manifests in the node's config. A manifest that the node cannot fetch or read is an error: its
    /// objects are not obsolete.
    async fn all_objects(&self, place: &Place) -> Result<Vec<Value>, String> {
        let wanted = self.on(place, async |node| {
            let config = patch::config(node).await?;
            let document = configfile::parse("the machine config", config.as_bytes())?;
            Ok(document.manifest_ids())
        });
        let wanted = wanted.await?;
        let manifests = self.manifests(place).await?;
        let missing: Vec<String> = { wanted.into_iter() }
            .filter(|id| !manifests.contains_key(id))
            .collect();
        if !missing.is_empty() {
            return Err(format!(
                "node {} could not fetch or read {}: its console has the reason; nothing was deleted",
                place.name,
                missing.join(", ")
            ));
        }
        objects(place, manifests)
    }

    /// The node's manifests by their IDs.
    async fn manifests(&self, place: &Place) -> Result<BTreeMap<String, Value>, String> {
        let kind = "Manifests.kubernetes.talos.dev";
        let listed = self.on(place, async |node| {
            let mut manifests = BTreeMap::new();
            for resource in resources::list(node, "controlplane", kind).await? {
                let id = resource.metadata.clone().unwrap_or_default().id;
                manifests.insert(id, resources::spec(&resource)?);
            }
            Ok(manifests)
        });
        listed.await
    }
}

/// The objects of a node's manifests, in the order of the manifests' IDs.
fn objects(place: &Place, manifests: BTreeMap<String, Value>) -> Result<Vec<Value>, String> {
    let lists = manifests.into_values().filter_map(|spec| match spec {
        Value::Array(objects) => Some(objects),
        _ => None,
    });
    let objects: Vec<Value> = lists.flatten().collect();
    match objects.is_empty() {
        true => Err(format!("node {} has no manifests", place.name)),
        false => Ok(objects),
    }
}

impl Fleet for Live {
    async fn pull(
        &mut self,
        place: &Place,
        component: Component,
        name: &str,
    ) -> Result<(), String> {
        let wanted = ImageName {
            image: name.to_owned(),
            namespace: match component {
                Component::Kubelet => ImageNamespace::System,
                _ => ImageNamespace::Cri,
            },
        };
        self.on(place, async |node| image::pull(node, &wanted).await)
            .await
    }

    async fn set_image(
        &mut self,
        place: &Place,
        component: Component,
        name: &str,
    ) -> Result<(), String> {
        let how = How {
            mode: ApplyMode::NoReboot,
            dry_run: false,
            timeout: RENDER,
        };
        // Without a change of the image, the kubelet does not restart.
        let kubelet = self.on(place, async |node| {
            let config = patch::config(node).await?.into_bytes();
            let document = configfile::parse("the machine config", &config)?;
            let is_new = component.image(&document).as_deref() != Some(name);
            let kubelet = match component {
                Component::Kubelet if is_new => kubelet::pid(node).await?,
                _ => None,
            };
            let patch = component.patch(&document, name);
            let changed = configfile::patched(config, &[patch])?;
            patch::give(node, changed, &how, true).await?;
            Ok(kubelet)
        });
        self.kubelet = kubelet.await?;
        Ok(())
    }

    async fn look(
        &mut self,
        place: &Place,
        component: Component,
        name: &str,
    ) -> Result<(), String> {
        if component == Component::Kubelet {
            // Kubernetes notices only after a while that a kubelet has ended, and its new image may have the same version.
            let former = self.kubelet;
            let restarted = self.on(place, async |node| {
                kubelet::has_restarted(node, former).await
            });
            restarted.await??;
            let machine = self.cluster.machine(&place.name).await;
            let machine = machine.map_err(|error| error.to_string())?;
            return is_new(machine, version::of_image(name).as_ref());
        }
        let pod = self.cluster.static_pod(component.name(), &place.name).await;
        match pod.map_err(|error| error.to_string())? {
            Some(pod) if pod.image == name => pod.ready,
            Some(pod) => Err(format!("its pod has the image {}", pod.image)),
            None => Err("the Kubernetes API does not list its pod".to_owned()),
        }
    }

    async fn proxy_image(&mut self) -> Result<Option<String>, String> {
        let name = Component::Proxy.name();
        let image = self.cluster.image_of(Workload::DaemonSet, NAMESPACE, name);
        image.await.map_err(|error| error.to_string())
    }

    async fn apply_manifests(
        &mut self,
        place: &Place,
        proxy: Option<&str>,
    ) -> Result<Applied, String> {
        let end = Instant::now() + RENDER;
        let objects = loop {
            let manifests = self.manifests(place).await;
            let objects = manifests.and_then(|manifests| objects(place, manifests));
            let is_there =
                |objects: &Vec<Value>| proxy.is_none_or(|image| has_proxy(objects, image));
            match objects {
                Ok(objects) if is_there(&objects) => break objects,
                Err(why) if Instant::now() >= end => return Err(why),
                Ok(_) if Instant::now() >= end => {
                    return Err(format!(
                        "the manifests of node {} do not have {} after {} s",
                        place.name,
                        proxy.unwrap_or_default(),
                        RENDER.as_secs()
                    ));
                }
                Ok(_) | Err(_) => sleep(LOOK).await,
            }
        };
        self.workloads = workloads(&objects);
        let report = self.cluster.apply(&objects, Existing::Update).await;
        let refused = all_done("applied", &report.failed).err();
        if let Some(refused) = &refused
            && report.failed.iter().any(|one| is_proxy(&one.object))
        {
            return Err(refused.clone());
        }
        let made = report.created.iter().map(|one| format!("created {one}"));
        let changed = report.updated.iter().map(|one| format!("updated {one}"));
        Ok(Applied {
            lines: made.chain(changed).collect(),
            refused,
        })
    }

    async fn proxy(&mut self) -> Result<(), String> {
        let proxy = (Workload::DaemonSet, NAMESPACE, Component::Proxy.name());
        self.runs(proxy).await
    }

    async fn workloads(&mut self) -> Result<(), String> {
        for (workload, namespace, name) in &self.workloads {
            let runs = self.runs((*workload, namespace, name)).await;
            runs.map_err(|why| format!("{namespace}/{name}: {why}"))?;
        }
        Ok(())
    }

    async fn prune(&mut self) -> Result<(), String> {
        // A control plane node may have manifests that the others do not have.
        if self.control_planes.is_empty() {
            return Err("no control plane node is known".to_owned());
        }
        let mut wanted = Vec::new();
        for place in &self.control_planes {
            wanted.extend(self.all_objects(place).await?);
        }
        let pruned = self.cluster.prune(&wanted).await;
        let pruned = pruned.map_err(|error| error.to_string())?;
        for one in &pruned.deleted {
            self.say(&format!("deleted {one}"));
        }
        for one in &pruned.kept {
            self.say(&format!("kept {}: {}", one.object, one.reason));
        }
        all_done("deleted", &pruned.failed)
    }

    fn say(&mut self, line: &str) {
        eprintln!("{}", printable(line));
    }
}
