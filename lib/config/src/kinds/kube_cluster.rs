//! Settings shared by all nodes of a Kubernetes cluster: name, networks, authorities and keys.

use crate::read::{Reader, section};
use crate::tree::Node;
use crate::v1alpha1::check_subnets;
use crate::values::{
    Cidr, HostName, HttpsUrl, Object, PemCertificates, PemKey, PemKeyPair, PemPublicKey, Url,
};

section! {
    /// The cluster's name, and where Kubernetes answers.
    pub struct KubeClusterConfig {
        Acted "clusterName" name: String = "The cluster's name", required;
        Acted "endpoint" endpoint: HttpsUrl = "The URL of the Kubernetes API", required;
    }
}

section! {
    /// The cluster's networks.
    pub struct KubeNetworkConfig [check_network] {
        Acted "dnsDomain" dns_domain: Option<HostName> = "The domain of its DNS";
        Acted "podSubnets" pod_subnets: Vec<Cidr> = "Addresses of pods", required, replace;
        Acted "serviceSubnets" service_subnets: Vec<Cidr> = "Addresses of services", required, replace;
        Acted "nodeCIDRMaskSizeIPv4" node_mask_v4: Option<u8> = "Bits that the IPv4 addresses of a node's pods share, 1 to 32";
        Acted "nodeCIDRMaskSizeIPv6" node_mask_v6: Option<u8> = "The same for IPv6, 1 to 128";
    }
}

fn check_network(network: &KubeNetworkConfig, node: &Node, reader: &mut Reader<'_>) {
    let (pods, services) = (&network.pod_subnets, &network.service_subnets);
    check_subnets(pods, node, "podSubnets", reader);
    check_subnets(services, node, "serviceSubnets", reader);
    if !pods.is_empty() && !services.is_empty() && pods.len() != services.len() {
        let what = "must be as many as podSubnets, of the same families";
        reader.wrong_in(node, "serviceSubnets", what);
    }
    for (field, bits, most) in [
        ("nodeCIDRMaskSizeIPv4", network.node_mask_v4, 32),
        ("nodeCIDRMaskSizeIPv6", network.node_mask_v6, 128),
    ] {
        if bits.is_some_and(|bits| !(1..=most).contains(&bits)) {
            reader.wrong_in(node, field, &format!("must be from 1 to {most}"));
        } else if let Some(bits) = bits
            && let Some(subnet) = pods
                .iter()
                .find(|pods| pods.address.is_ipv4() == (most == 32))
            && bits < subnet.prefix
        {
            let what = format!(
                "must be {} or more: a node's pods are within {subnet}",
                subnet.prefix
            );
            reader.wrong_in(node, field, &what);
        }
    }
}

section! {
    /// The authority of the Kubernetes API.
    pub struct KubeAPIServerCAConfig {
        Acted "issuingCA" issuing_ca: Option<PemKeyPair> = "Signs certificates; on control plane nodes only";
        Acted "acceptedCAs" accepted_cas: Vec<PemCertificates> = "Further authorities of Kubernetes";
    }
}

section! {
    /// The authority of the aggregation layer.
    pub struct KubeAggregatorCAConfig {
        Acted "issuingCA" issuing_ca: PemKeyPair = "Signs certificates", required;
        Acted "acceptedCAs" accepted_cas: Vec<PemCertificates> = "Further authorities of the layer";
    }
}

section! {
    /// The key that signs service account tokens, and further accepted keys and issuers.
    pub struct KubeServiceAccountConfig {
        Acted "issuer" issuer: ServiceAccountIssuer = "The signing key", required;
        Acted "accepted" accepted: AcceptedServiceAccounts = "Whose are believed beside";
    }
}

section! {
    /// The key that signs service account tokens.
    pub struct ServiceAccountIssuer {
        Acted "privateKey" private_key: PemKey = "The key, in PEM", required;
        Acted "issuerURL" url: Url = "The issuer that tokens name", required;
    }
}

section! {
    /// Further issuers and keys of accepted service account tokens.
    pub struct AcceptedServiceAccounts {
        Acted "publicKeys" public_keys: Vec<PemPublicKey> = "Keys that check them";
        Acted "issuers" issuers: Vec<Url> = "Issuers they may name";
        Acted "audiences" audiences: Vec<String> = "For whom tokens may be; absent: for the issuer";
    }
}

section! {
    /// The encryption of Kubernetes' data in etcd.
    pub struct KubeEtcdEncryptionConfig {
        Acted "config" config: Option<Object> = "EncryptionConfiguration fields", required, secret;
    }
}
