//! Containers, sockets and client configs of the fake nodes.

use corten_api::machine as api;
use tonic::{Request, Response, Status};

use super::answer;

pub(super) fn containers(
    request: &Request<api::ContainersRequest>,
) -> Result<Response<api::ContainersResponse>, Status> {
    let namespace = request.get_ref().namespace.clone();
    answer!(
        *request,
        api::ContainersResponse,
        api::Container,
        |node, metadata| {
            let one = |id: &str, pod: &str| api::ContainerInfo {
                namespace: namespace.clone(),
                id: id.to_owned(),
                image: "registry.example/a:1".into(),
                pid: 1234,
                status: if node == "evil" {
                    "RUN\u{7}NING".into()
                } else {
                    "RUNNING".into()
                },
                pod_id: pod.to_owned(),
                network_namespace: format!("ns-{pod}"),
                ..Default::default()
            };
            let containers = if namespace == "system" {
                vec![one("apid", "apid")]
            } else {
                vec![
                    one("default/web", "default/web"),
                    one("default/web:nginx", "default/web"),
                    one("kube-system/dns", "kube-system/dns"),
                    one("kube-system/dns:coredns", "kube-system/dns"),
                ]
            };
            api::Container {
                metadata,
                containers,
            }
        }
    )
}

pub(super) fn stats(
    request: &Request<api::StatsRequest>,
) -> Result<Response<api::StatsResponse>, Status> {
    answer!(
        *request,
        api::StatsResponse,
        api::Stats,
        |node, metadata| {
            let stat = api::Stat {
                namespace: "system".into(),
                id: "apid".into(),
                memory_usage: if node == "evil" { u64::MAX } else { 12_345_678 },
                cpu_usage: 42,
                ..Default::default()
            };
            api::Stats {
                metadata,
                stats: vec![stat],
            }
        }
    )
}

pub(super) fn netstat(
    request: &Request<api::NetstatRequest>,
) -> Result<Response<api::NetstatResponse>, Status> {
    answer!(
        *request,
        api::NetstatResponse,
        api::Netstat,
        |node, metadata| {
            let listening = api::ConnectRecord {
                l4proto: "tcp6".into(),
                localip: "::".into(),
                localport: 50000,
                remoteip: "::".into(),
                state: 10,
                uid: 50,
                inode: 4711,
                process: Some(api::connect_record::Process {
                    pid: 321,
                    name: "apid".into(),
                }),
                ..Default::default()
            };
            let mut open = api::ConnectRecord {
                l4proto: "tcp".into(),
                localip: "10.0.0.1".into(),
                localport: 34567,
                remoteip: "10.0.0.9".into(),
                remoteport: 443,
                state: 1,
                txqueue: 12,
                tr: 2,
                timerwhen: 1234,
                netns: "ns-default/web".into(),
                ..Default::default()
            };
            if node == "evil" {
                open.l4proto = "t\rcp".into();
                open.state = -9;
                open.tr = 99;
            }
            let mut connectrecord = vec![listening, open];
            let namespaces = request.get_ref().netns.as_ref().map(|one| &one.netns);
            if let Some(namespaces) = namespaces.filter(|some| !some.is_empty()) {
                connectrecord.retain(|socket| namespaces.contains(&socket.netns));
            }
            api::Netstat {
                metadata,
                connectrecord,
            }
        }
    )
}

pub(super) fn generate_client_configuration(
    request: &Request<api::GenerateClientConfigurationRequest>,
) -> Result<Response<api::GenerateClientConfigurationResponse>, Status> {
    let text = format!(
        "context: made\ncontexts: {{made: {{endpoints: [], ca: YQ==, crt: YQ==, key: {}}}}}\n",
        request.get_ref().roles.join("")
    );
    answer!(
        *request,
        api::GenerateClientConfigurationResponse,
        api::GenerateClientConfiguration,
        |node, metadata| api::GenerateClientConfiguration {
            metadata,
            talosconfig: if node == "evil" {
                vec![0xff]
            } else {
                text.clone().into_bytes()
            },
            ..Default::default()
        }
    )
}
