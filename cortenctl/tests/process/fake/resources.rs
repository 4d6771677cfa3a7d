//! `cosi.resource.State` of the fake nodes.

use std::sync::atomic::Ordering;

use corten_api::cosi::resource as api;
use corten_api::cosi::resource::meta::ResourceDefinitionSpec;
use corten_api::cosi::resource::meta::resource_definition_spec::PrintColumn;
use corten_api::cosi::resource::state_server::State;
use prost::Message as _;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::{Fake, frames, up};

const DEFINITIONS: &str = "ResourceDefinitions.meta.cosi.dev";
/// The only secret type that they define.
pub(super) const CONFIGS: &str = "MachineConfigs.config.talos.dev";

fn definition(kind: &str, namespace: &str, alias: &str, columns: &[(&str, &str)]) -> api::Resource {
    let spec = ResourceDefinitionSpec {
        resource_type: kind.to_owned(),
        display_type: kind
            .split('.')
            .next()
            .unwrap()
            .trim_end_matches('s')
            .to_owned(),
        default_namespace: namespace.to_owned(),
        all_aliases: vec![alias.to_owned()],
        print_columns: columns
            .iter()
            .map(|(name, path)| PrintColumn {
                name: (*name).to_owned(),
                json_path: (*path).to_owned(),
            })
            .collect(),
        sensitivity: i32::from(kind == CONFIGS),
        ..Default::default()
    };
    api::Resource {
        metadata: None,
        spec: Some(api::Spec {
            proto_spec: spec.encode_to_vec(),
            yaml_spec: String::new(),
        }),
    }
}

fn resource(namespace: &str, kind: &str, id: &str, yaml: &str) -> api::Resource {
    api::Resource {
        metadata: Some(api::Metadata {
            namespace: namespace.to_owned(),
            r#type: kind.to_owned(),
            id: id.to_owned(),
            version: "3".into(),
            owner: "a.Controller".into(),
            phase: "running".into(),
            created: Some(prost_types::Timestamp {
                seconds: 1_000_000_000,
                nanos: 0,
            }),
            updated: Some(prost_types::Timestamp {
                seconds: i64::MAX,
                nanos: 0,
            }),
            labels: [("tier".into(), "one".into())].into(),
            ..Default::default()
        }),
        spec: Some(api::Spec {
            proto_spec: Vec::new(),
            yaml_spec: yaml.to_owned(),
        }),
    }
}

impl Fake {
    /// The resources of a type on a node. The node `reader` treats every client as a reader;
    /// `closed` lists its types but refuses their resources.
    fn shown(&self, node: &str, namespace: &str, kind: &str) -> Result<Vec<api::Resource>, Status> {
        if namespace.is_empty() {
            let why = "namespace \"\" is not supported";
            return Err(Status::permission_denied(why));
        }
        let is_refused = match node {
            "reader" => kind == CONFIGS,
            "closed" => kind != DEFINITIONS,
            _ => false,
        };
        if is_refused {
            let why = format!("resource type {kind:?} holds secrets");
            return Err(Status::permission_denied(why));
        }
        let mut all = self.all(node, kind);
        all.retain(|one| {
            let metadata = one.metadata.as_ref();
            metadata.is_none_or(|metadata| metadata.namespace == namespace)
        });
        Ok(all)
    }

    fn all(&self, node: &str, kind: &str) -> Vec<api::Resource> {
        let boot = format!("bootID: boot-{}\n", self.boots.load(Ordering::Relaxed));
        match kind {
            DEFINITIONS => vec![
                definition(
                    "Hostnames.net",
                    "network",
                    "hostname",
                    &[
                        ("Hostname", "{.hostname}"),
                        ("Ready", r#"{.list[?(@.type=="Ready")].ok}"#),
                    ],
                ),
                definition(CONFIGS, "config", "mc", &[]),
                definition(
                    "Bads.x",
                    "x",
                    "bad",
                    &[("A", "{.a[*,*]}"), ("B", "{.."), ("C", "{.c}")],
                ),
            ],
            "Hostnames.net" => {
                let host = if node == "evil" { "a\u{1b}[2J" } else { node };
                let yaml = format!(
                    "hostname: {}\nlist: [{{type: Ready, ok: true}}, {{type: Other, ok: false}}]\n",
                    serde_json::Value::from(host)
                );
                vec![resource("network", kind, "hostname", &yaml)]
            }
            "Bads.x" => vec![resource("x", kind, "bad", "a: [1]\nc: [2, 3]\n")],
            CONFIGS => {
                let config = match node.starts_with("cp") {
                    true => &self.control_plane,
                    false => &self.config,
                };
                let scalar = serde_json::Value::from(&**config).to_string();
                vec![resource("config", kind, "v1alpha1", &scalar)]
            }
            "Services.v1alpha1.talos.dev" if node == "pods" => {
                vec![resource("runtime", kind, "kubelet", "running: true\n")]
            }
            "Nodenames.kubernetes.talos.dev" => {
                vec![resource("k8s", kind, "nodename", "nodename: worker-1\n")]
            }
            "BootIDs.runtime.talos.dev" => vec![resource("runtime", kind, "boot-id", &boot)],
            "MachineStatuses.runtime.talos.dev" => {
                let yaml = "stage: running\nstatus: {ready: true, unmetConditions: []}\n";
                vec![resource("runtime", kind, "machine", yaml)]
            }
            "MountStatuses.block.talos.dev" => {
                let mount = |id: &str, source: &str, target: &str| {
                    let yaml =
                        format!("spec: {{volumeID: {id}}}\nsource: {source}\ntarget: {target}\n");
                    resource("runtime", kind, id, &yaml)
                };
                vec![
                    mount("STATE", "/dev/vda5", "/system/state"),
                    mount("EPHEMERAL", "/dev/vda6", "/var"),
                ]
            }
            "OSRootSecrets.secrets.talos.dev" => {
                // A node that signs has the key too, which the client must not print.
                let key = if node.starts_with("cp") {
                    "aHVudGVyMg=="
                } else {
                    ""
                };
                let crt = if node == "other" { "b3RoZXI=" } else { "Y3J0" };
                let yaml = format!("issuingCA: {{crt: {crt}, key: \"{key}\"}}\n");
                vec![resource("secrets", kind, "os", &yaml)]
            }
            _ => Vec::new(),
        }
    }
}

#[tonic::async_trait]
impl State for Fake {
    async fn get(
        &self,
        request: Request<api::GetRequest>,
    ) -> Result<Response<api::GetResponse>, Status> {
        let node = up(&request)?;
        let asked = request.into_inner();
        let found = self.shown(&node, &asked.namespace, &asked.r#type)?;
        let mut found = found
            .into_iter()
            .filter(|one| one.metadata.as_ref().is_some_and(|m| m.id == asked.id));
        match found.next() {
            Some(resource) => Ok(Response::new(api::GetResponse {
                resource: Some(resource),
            })),
            None => Err(Status::not_found(format!("{} does not exist", asked.id))),
        }
    }

    async fn list(
        &self,
        request: Request<api::ListRequest>,
    ) -> Result<Response<BoxStream<api::ListResponse>>, Status> {
        let node = up(&request)?;
        let asked = request.into_inner();
        let found = self.shown(&node, &asked.namespace, &asked.r#type)?;
        let found = found.into_iter().map(|resource| api::ListResponse {
            resource: Some(resource),
        });
        Ok(frames(found.collect()))
    }

    async fn watch(
        &self,
        request: Request<api::WatchRequest>,
    ) -> Result<Response<BoxStream<api::WatchResponse>>, Status> {
        let node = up(&request)?;
        let asked = request.into_inner();
        let found = self.shown(&node, &asked.namespace, &asked.r#type)?;
        let resource = found.into_iter().next();
        let event = |event_type: api::EventType, error: Option<&str>| api::WatchResponse {
            event: vec![api::Event {
                resource: resource.clone(),
                event_type: event_type.into(),
                error: error.map(str::to_owned),
                ..Default::default()
            }],
        };
        Ok(frames(vec![
            api::WatchResponse::default(),
            event(api::EventType::Created, None),
            event(api::EventType::Bootstrapped, None),
            event(api::EventType::Updated, None),
            event(api::EventType::Destroyed, None),
            event(api::EventType::Errored, Some("the node shuts down")),
        ]))
    }
}
