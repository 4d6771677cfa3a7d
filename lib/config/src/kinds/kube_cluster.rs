//! Settings shared by all nodes of a Kubernetes cluster: name, networks, CAs and keys.

use corten_values::{
    Cidr, HostName, HttpsUrl, Object, PemCertificates, PemKey, PemKeyPair, PemPublicKey, Url,
};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::Node;

use crate::v1alpha1::check_subnets;

section! {
    /// The cluster's name, and the endpoint of the Kubernetes API.
    pub struct KubeClusterConfig {
        Acted "clusterName" name: String = "Name of the cluster", required;
        Acted "endpoint" endpoint: HttpsUrl = "URL of the Kubernetes API", required;
    }
}

section! {
    /// The cluster's networks.
    pub struct KubeNetworkConfig [check_network] {
        Acted "dnsDomain" dns_domain: Option<HostName> = "Domain of the cluster's DNS";
        Acted "podSubnets" pod_subnets: Vec<Cidr> = "Networks of pods", required, replace;
        Acted "serviceSubnets" service_subnets: Vec<Cidr> = "Networks of services", required, replace;
        Acted "nodeCIDRMaskSizeIPv4" node_mask_v4: Option<u8> = "Prefix length of a node's IPv4 pod network, 1 to 32";
        Acted "nodeCIDRMaskSizeIPv6" node_mask_v6: Option<u8> = "Prefix length of a node's IPv6 pod network, 1 to 128";
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
    /// The CA of the Kubernetes API.
    pub struct KubeAPIServerCAConfig {
        Acted "issuingCA" issuing_ca: Option<PemKeyPair> = "Certificate and key that sign certificates; on control plane nodes only";
        Acted "acceptedCAs" accepted_cas: Vec<PemCertificates> = "Additional accepted CAs of Kubernetes";
    }
}

section! {
    /// The CA of the aggregation layer.
    pub struct KubeAggregatorCAConfig {
        Acted "issuingCA" issuing_ca: PemKeyPair = "Certificate and key that sign certificates", required;
        Acted "acceptedCAs" accepted_cas: Vec<PemCertificates> = "Additional accepted CAs of the aggregation layer";
    }
}

section! {
    /// The key that signs service account tokens, and further accepted keys and issuers.
    pub struct KubeServiceAccountConfig {
        Acted "issuer" issuer: ServiceAccountIssuer = "Signing key", required;
        Acted "accepted" accepted: AcceptedServiceAccounts = "Additional accepted issuers and keys";
    }
}

section! {
    /// The key that signs service account tokens.
    pub struct ServiceAccountIssuer {
        Acted "privateKey" private_key: PemKey = "Private key in PEM", required;
        Acted "issuerURL" url: Url = "URL of the issuer in tokens", required;
    }
}

section! {
    /// Further issuers and keys of accepted service account tokens.
    pub struct AcceptedServiceAccounts {
        Acted "publicKeys" public_keys: Vec<PemPublicKey> = "Public keys that verify tokens";
        Acted "issuers" issuers: Vec<Url> = "Accepted issuers of tokens";
        Acted "audiences" audiences: Vec<String> = "Accepted audiences of tokens; absent: the issuer";
    }
}

section! {
    /// The encryption of Kubernetes' data in etcd.
    pub struct KubeEtcdEncryptionConfig {
        Acted "config" config: Option<Object> = "Fields of EncryptionConfiguration", required, secret;
    }
}
