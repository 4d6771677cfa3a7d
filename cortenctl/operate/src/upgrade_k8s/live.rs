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
use corten_cluster::{Cluster, Existing, Failed, Machine, Requested, Workload};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::component::Component;
use super::execute::Fleet;
use super::plan::{Member, Place};
use super::version::{self, Version};
use crate::args::{ApplyMode, How, ImageName, ImageNamespace};
use crate::wait;
use crate::{image, kubernetes, patch};

/// Time for a node to render its manifests from a changed config.
const RENDER: Duration = Duration::from_secs(60);
/// Interval of the checks.
const LOOK: Duration = Duration::from_secs(1);
/// Number of refused objects that an error names; the others are counted.
const NAMED: usize = 5;

pub(super) struct Live {
    global: Global,
    cluster: Cluster,
    control_planes: Vec<Place>,
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
            let is_control_plane = document.machine.kind.is_control_plane();
            let has_member = !is_control_plane || resources::has_member(node).await?;
            let mut troubles: Vec<String> = wait::unready(node).await.into_iter().collect();
            if !has_member {
                troubles.push("its member of etcd has no leader".to_owned());
            }
            Ok((is_control_plane, images, troubles))
        });
        let (is_control_plane, images, mut troubles) = asked.await.map_err(|why| {
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

    /// The objects of the node's manifests, in the order of the manifests' IDs.
    async fn objects(&self, place: &Place) -> Result<Vec<Value>, String> {
        let kind = "Manifests.kubernetes.talos.dev";
        let listed = self.on(place, async |node| {
            let mut manifests = BTreeMap::new();
            for resource in resources::list(node, "controlplane", kind).await? {
                let id = resource.metadata.clone().unwrap_or_default().id;
                manifests.insert(id, resources::spec(&resource)?);
            }
            Ok(manifests)
        });
        let manifests = listed.await?;
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
        self.on(place, async |node| {
            let config = patch::config(node).await?.into_bytes();
            let document = configfile::parse("the machine config", &config)?;
            let patch = component.patch(&document, name);
            let changed = configfile::patched(config, &[patch])?;
            patch::give(node, changed, &how, true).await
        })
        .await
    }

    async fn look(
        &mut self,
        place: &Place,
        component: Component,
        name: &str,
    ) -> Result<(), String> {
        if component == Component::Kubelet {
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

    async fn apply_manifests(
        &mut self,
        place: &Place,
        proxy: Option<&str>,
    ) -> Result<Vec<String>, String> {
        let end = Instant::now() + RENDER;
        let objects = loop {
            let objects = self.objects(place).await;
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
        all_done("applied", &report.failed)?;
        let made = report.created.iter().map(|one| format!("created {one}"));
        let changed = report.updated.iter().map(|one| format!("updated {one}"));
        Ok(made.chain(changed).collect())
    }

    async fn workloads(&mut self) -> Result<(), String> {
        for (workload, namespace, name) in &self.workloads {
            let state = self.cluster.rollout(*workload, namespace, name).await;
            match state.map_err(|error| error.to_string())? {
                Some(Ok(())) => {}
                Some(Err(why)) => return Err(format!("{namespace}/{name}: {why}")),
                None => return Err(format!("{namespace}/{name} does not exist")),
            }
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
            wanted.extend(self.objects(place).await?);
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

/// The error that names the objects with which an operation failed, if there are any.
fn all_done(done: &str, failed: &[Failed]) -> Result<(), String> {
    if failed.is_empty() {
        return Ok(());
    }
    let named = failed.iter().take(NAMED);
    let named: Vec<String> = named
        .map(|one| format!("{}: {}", one.object, one.reason))
        .collect();
    Err(format!(
        "{} objects were not {done}: {}",
        failed.len(),
        named.join("; ")
    ))
}

/// Checks that a node is ready with this version of the kubelet. An image without a version in its tag skips the check
/// of the version.
fn is_new(machine: Option<Machine>, wanted: Option<&Version>) -> Result<(), String> {
    let machine = machine.ok_or("the Kubernetes API does not list the node")?;
    match wanted {
        Some(wanted) if Version::parse(&machine.kubelet).as_ref() != Some(wanted) => {
            Err(format!("the kubelet reports version {}", machine.kubelet))
        }
        _ => machine.ready,
    }
}

fn has_proxy(objects: &[Value], image: &str) -> bool {
    let name = Component::Proxy.name();
    objects.iter().any(|object| {
        object.get("kind") == Some(&Value::from("DaemonSet"))
            && object.pointer("/metadata/name") == Some(&Value::from(name))
            && object.pointer("/spec/template/spec/containers/0/image") == Some(&Value::from(image))
    })
}

fn workloads(objects: &[Value]) -> Vec<(Workload, String, String)> {
    let text = |object: &Value, path: &str| {
        let text = object.pointer(path).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    let found = objects.iter().filter_map(|object| {
        if text(object, "/apiVersion")? != "apps/v1" {
            return None;
        }
        let workload = match text(object, "/kind")?.as_str() {
            "Deployment" => Workload::Deployment,
            "DaemonSet" => Workload::DaemonSet,
            _ => return None,
        };
        let namespace = text(object, "/metadata/namespace");
        let namespace = namespace.unwrap_or_else(|| "default".to_owned());
        Some((workload, namespace, text(object, "/metadata/name")?))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kubelet_is_upgraded_when_its_node_is_ready_and_reports_the_version() {
        let machine = |kubelet: &str, ready| Machine {
            name: "a".to_owned(),
            addresses: Vec::new(),
            kubelet: kubelet.to_owned(),
            ready,
        };
        let wanted = Version::parse("1.37.2").unwrap();
        assert_eq!(
            is_new(Some(machine("v1.37.2", Ok(()))), Some(&wanted)),
            Ok(())
        );
        assert_eq!(is_new(Some(machine("v1.36.4", Ok(()))), None), Ok(()));
        let old = is_new(Some(machine("v1.36.4", Ok(()))), Some(&wanted));
        assert_eq!(old.unwrap_err(), "the kubelet reports version v1.36.4");
        let not_ready = machine("v1.37.2", Err("no network".to_owned()));
        assert_eq!(
            is_new(Some(not_ready), Some(&wanted)).unwrap_err(),
            "no network"
        );
        is_new(None, Some(&wanted)).unwrap_err();
    }

    #[test]
    fn workloads_and_the_kube_proxy_image_are_found_in_manifests() {
        let object = |kind: &str, name: &str| {
            let container = json!({ "image": format!("r/{name}:v1") });
            json!({
                "apiVersion": "apps/v1", "kind": kind,
                "metadata": { "name": name, "namespace": "kube-system" },
                "spec": { "template": { "spec": { "containers": [container] } } },
            })
        };
        let objects = [
            object("DaemonSet", "kube-proxy"),
            object("Deployment", "coredns"),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" } }),
            Value::Null,
        ];
        let named = |name: &str| ("kube-system".to_owned(), name.to_owned());
        let found = workloads(&objects).into_iter();
        let found: Vec<_> = found
            .map(|(_, namespace, name)| (namespace, name))
            .collect();
        assert_eq!(found, [named("kube-proxy"), named("coredns")]);
        assert!(has_proxy(&objects, "r/kube-proxy:v1"));
        assert!(!has_proxy(&objects, "r/kube-proxy:v2"));
        assert!(!has_proxy(&objects[1..], "r/kube-proxy:v1"));
    }
}
