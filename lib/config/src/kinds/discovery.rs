//! Discovery and connections between the nodes of a cluster.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_values::{Secret, Url};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::v1alpha1::{KubeSpan, check_discovery_endpoint};

section! {
    /// A discovery service, where nodes announce themselves.
    pub struct DiscoveryServiceConfig [check_service] {
        Held "name" name: String = "Name", required;
        Held "endpoint" endpoint: Url = "URL with `https`, `http` or `grpc`", required;
    }
}

fn check_service(_: &DiscoveryServiceConfig, node: &Node, reader: &mut Reader<'_>) {
    check_discovery_endpoint(node, reader);
}

section! {
    /// The identity of the cluster for discovery services.
    pub struct DiscoveryIdentityConfig [check_identity] {
        Held "clusterID" id: String = "Identifier of the cluster for the discovery service", required;
        Acted "clusterSecret" secret: Secret = "Secret of the cluster, base64 of 32 bytes; names the shim groups of system pods. The discovery service is not supported yet", required;
    }
}

fn check_identity(identity: &DiscoveryIdentityConfig, node: &Node, reader: &mut Reader<'_>) {
    let key = STANDARD.decode(identity.secret.expose());
    let good = key.is_ok_and(|key| key.len() == 32);
    if !identity.secret.is_empty() && !good {
        reader.wrong_in(node, "clusterSecret", "must be base64 of 32 bytes");
    }
}

section! {
    /// WireGuard mesh between nodes.
    pub struct KubeSpanConfig {
        .. kubespan: KubeSpan = "Settings of the mesh";
    }
}

section! {
    /// Additional addresses at which other nodes can reach this one.
    pub struct KubeSpanEndpointsConfig {
        Acted "extraAnnouncedEndpoints" extra_announced_endpoints: Vec<SocketAddr> = "Addresses and ports to announce";
    }
}
