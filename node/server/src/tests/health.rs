//! The health check of this node over its own socket.

use std::sync::Arc;
use std::time::Duration;

use corten_api::cluster::cluster_service_client::ClusterServiceClient;
use corten_api::cluster::{ClusterInfo, HealthCheckRequest};
use corten_config::{Document, MachineType as Kind};
use corten_resources::Draft;
use corten_types::cluster::Member;
use corten_types::config::MachineType;
use corten_types::runtime::{MachineStatus, Readiness};
use corten_types::secrets::CertSans;
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::{DEADLINE, Remembering, World, config_text, world};
use crate::node::{Apply, Node as _};

/// Limit of concurrent health checks.
const AT_A_TIME: usize = 16;

fn be(node: &Arc<Remembering>, stage: &'static str) {
    let status = MachineStatus {
        stage,
        status: Readiness {
            ready: true,
            unmet_conditions: Vec::new(),
        },
    };
    let store = node.store();
    store.register::<MachineStatus>().unwrap();
    store
        .put(Draft::new(MachineStatus::ID, status), "")
        .unwrap();
    store.register::<CertSans>().unwrap();
    let sans = CertSans {
        ips: vec!["10.0.2.15".to_owned()],
        dns_names: vec!["cp-1".to_owned()],
        fqdn: "cp-1".to_owned(),
    };
    store.put(Draft::new(CertSans::ID, sans), "").unwrap();
}

fn asking(control_plane: &[&str], workers: &[&str]) -> HealthCheckRequest {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    HealthCheckRequest {
        wait_timeout: None,
        cluster_info: Some(ClusterInfo {
            control_plane_nodes: names(control_plane),
            worker_nodes: names(workers),
            force_endpoint: String::new(),
        }),
    }
}

#[tokio::test]
async fn healthy_node_passes_the_health_check() {
    let world = world();
    be(&world.node, "running");
    let mut client = ClusterServiceClient::new(world.channel.clone());
    // Without a name, and by its own names.
    for request in [
        HealthCheckRequest::default(),
        asking(&["cp-1"], &["10.0.2.15"]),
    ] {
        let mut stream = client.health_check(request).await.unwrap().into_inner();
        let mut told = Vec::new();
        while let Some(progress) = stream.message().await.unwrap() {
            told.push(progress.message);
        }
        assert_eq!(told[0], "waiting for apid to be ready: ...");
        assert!(told.contains(&"waiting for all nodes to finish boot sequence: OK".to_owned()));
        assert_eq!(
            told.last().unwrap(),
            "waiting for all k8s nodes to report schedulable: OK"
        );
    }
}

#[tokio::test]
async fn without_a_name_all_nodes_of_the_cluster_are_checked() {
    let world = world();
    be(&world.node, "running");
    let store = world.node.store();
    store.register::<Member>().unwrap();
    let mut client = ClusterServiceClient::new(world.channel.clone());
    // A member without an address is asked by its name.
    for (addresses, name) in [
        (vec!["192.0.2.1".parse().unwrap()], "192.0.2.1"),
        (vec![], "w-1"),
    ] {
        let member = Member {
            node_id: String::new(),
            addresses,
            hostname: "w-1".to_owned(),
            machine_type: MachineType::from(Kind::Worker),
            operating_system: "Corten 1.2.3".to_owned(),
            control_plane: None,
        };
        store.put(Draft::new("w-1", member), "").unwrap();
        let answer = client.health_check(HealthCheckRequest::default()).await;
        // The node without a config is no control plane node: it may not ask others.
        let status = answer.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains(name), "{status}");
    }
}

#[tokio::test]
async fn unmet_checks_are_reported_until_the_timeout() {
    let world = world();
    be(&world.node, "maintenance");
    let mut client = ClusterServiceClient::new(world.channel.clone());
    let request = HealthCheckRequest {
        wait_timeout: prost_types::Duration::try_from(Duration::from_secs(2)).ok(),
        cluster_info: None,
    };
    let mut stream = client.health_check(request).await.unwrap().into_inner();
    let end = loop {
        match stream.message().await {
            Ok(progress) => assert!(progress.is_some(), "it passes"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::DeadlineExceeded);
    assert!(end.message().contains("timeout after 2 s"), "{end}");
}

#[tokio::test]
async fn invalid_node_names_are_refused_with_their_field() {
    let world = world();
    be(&world.node, "running");
    let mut client = ClusterServiceClient::new(world.channel.clone());
    for (request, code, word) in [
        (
            asking(&["a b"], &[]),
            Code::InvalidArgument,
            "control_plane_nodes",
        ),
        (asking(&[], &[""]), Code::InvalidArgument, "worker_nodes"),
        (
            asking(&["10.0.0.1:50000"], &[]),
            Code::InvalidArgument,
            "control_plane_nodes",
        ),
        (
            asking(&["a"; 600], &["b"; 600]),
            Code::InvalidArgument,
            "more than 1024",
        ),
        // The node has no config yet, and so no certificate to show.
        (
            asking(&[], &["10.0.0.9"]),
            Code::FailedPrecondition,
            "worker_nodes",
        ),
    ] {
        let refused = client.health_check(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(word), "{refused}");
    }
}

#[tokio::test]
async fn endpoint_that_is_no_url_of_an_api_server_is_refused() {
    let world = world();
    be(&world.node, "running");
    let mut client = ClusterServiceClient::new(world.channel.clone());
    for forced in ["192.0.2.1:6443", "http://192.0.2.1:6443", "https://", "a b"] {
        let mut request = asking(&[], &[]);
        if let Some(info) = &mut request.cluster_info {
            forced.clone_into(&mut info.force_endpoint);
        }
        let refused = client.health_check(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("force_endpoint"), "{refused}");
    }
}

#[tokio::test]
async fn concurrent_health_checks_are_bounded_and_a_hang_up_frees_a_slot() {
    let world: World = world();
    // The other node never answers, so the checks keep running.
    let document = Document::parse(config_text().as_bytes()).unwrap();
    world.node.apply_config(document, Apply::Now).unwrap();
    let mut client = ClusterServiceClient::new(world.channel.clone());
    let endless = || asking(&["10.0.0.9"], &[]);
    let mut streams = Vec::new();
    for _ in 0..AT_A_TIME {
        streams.push(client.health_check(endless()).await.unwrap());
    }
    let refused = client.health_check(endless()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    streams.pop();
    let room = async {
        while client.health_check(endless()).await.is_err() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, room).await.unwrap();
}
