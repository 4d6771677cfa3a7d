//! Settings that Kubernetes would refuse, in both forms.

use super::{bare, doc, future_problems, good, problems};

/// A kind, the fields of a document, and the expected problem.
const INVALID: &[(&str, &str, &str)] = &[
    (
        "KubeClusterConfig",
        "endpoint: https://a",
        "clusterName is required",
    ),
    (
        "KubeClusterConfig",
        "clusterName: a",
        "endpoint is required",
    ),
    (
        "KubeClusterConfig",
        "clusterName: a\nendpoint: http://a",
        "endpoint must be a URL such as https://10.0.0.1:6443",
    ),
    (
        "KubeNetworkConfig",
        "podSubnets: [10.0.0.0/8]",
        "serviceSubnets is required",
    ),
    (
        "KubeNetworkConfig",
        "podSubnets: [10.0.0.0/16, 10.1.0.0/16]\nserviceSubnets: [10.2.0.0/16]",
        "podSubnets must have at most one IPv4 and one IPv6 network",
    ),
    (
        "KubeNetworkConfig",
        "podSubnets: [10.0.0.0/16, 'fd00::/56']\nserviceSubnets: [10.2.0.0/16]",
        "serviceSubnets must be as many as podSubnets",
    ),
    (
        "KubeNetworkConfig",
        "podSubnets: [10.0.0.0/16]\nserviceSubnets: [10.2.0.0/16]\nnodeCIDRMaskSizeIPv4: 33",
        "nodeCIDRMaskSizeIPv4 must be from 1 to 32",
    ),
    (
        "KubeNodeConfig",
        "labels: {-a: b}",
        "labels has an invalid name",
    ),
    (
        "KubeNodeConfig",
        "labels: {a: b/c}",
        "labels.a must be at most 63 letters",
    ),
    (
        "KubeNodeConfig",
        "annotations: {a/b/c: d}",
        "annotations has an invalid name",
    ),
    (
        "KubeNodeConfig",
        "taints: {a: Never}",
        "taints.a must be NoSchedule, PreferNoSchedule or NoExecute",
    ),
    (
        "KubeNodeConfig",
        "taints: {a: }",
        "taints.a must be NoSchedule",
    ),
    (
        "KubeNodeConfig",
        "nodeIP: {validSubnets: [10.0.0.0/33]}",
        "nodeIP.validSubnets[0] must be a network",
    ),
    (
        "KubeletConfig",
        "clusterDNS: [10.96.0.10]",
        "image is required",
    ),
    ("KubePrismConfig", "port: 0", "port must be from 1 to 65535"),
    ("KubePrismConfig", "tlsServerName: a", "port is required"),
    (
        "KubeAPIServerCAConfig",
        "issuingCA: {cert: a}",
        "issuingCA.key is required",
    ),
    (
        "KubeAPIServerCAConfig",
        "issuingCA: {cert: a, key: b}",
        "issuingCA.cert must be PEM certificates",
    ),
    (
        "KubeAPIServerCAConfig",
        "issuingCA: {cert: a, key: b}",
        "issuingCA.key must be a PEM PRIVATE KEY",
    ),
    (
        "KubeAPIServerCAConfig",
        "acceptedCAs: [a]",
        "acceptedCAs[0] must be PEM certificates",
    ),
    (
        "KubeAggregatorCAConfig",
        "acceptedCAs: []",
        "issuingCA is required",
    ),
    (
        "KubeServiceAccountConfig",
        "issuer: {issuerURL: https://a}",
        "issuer.privateKey is required",
    ),
    (
        "KubeServiceAccountConfig",
        "issuer: {issuerURL: a}",
        "issuer.issuerURL must be a URL",
    ),
    (
        "KubeEtcdEncryptionConfig",
        "config: {}",
        "config is required",
    ),
    (
        "KubeAPIServerConfig",
        "image: a\napiPort: 0",
        "apiPort must be from 1 to 65535",
    ),
    (
        "KubeAPIServerConfig",
        "image: a\nresources: {limits: {gpu: 1}}",
        "resources.limits must hold cpu and memory only",
    ),
    (
        "KubeControllerManagerConfig",
        "enabled: true",
        "image is required",
    ),
    (
        "KubeSchedulerConfig",
        "extraArgs: {v: 1}",
        "image is required",
    ),
    (
        "KubeProxyConfig",
        "image: a\nmode: ebpf",
        "mode must be one of nftables, iptables, ipvs",
    ),
    (
        "KubeAuthorizerConfig",
        "name: a\ntype: Webhook",
        "webhook is required with type: Webhook",
    ),
    (
        "KubeAuthorizerConfig",
        "name: a\ntype: Everybody",
        "type must be one of Node, RBAC, Webhook",
    ),
    (
        "KubeFlannelCNIConfig",
        "backendPort: 4789",
        "backendType is required",
    ),
    (
        "KubeExternalManifestConfig",
        "name: a\nurl: git://example.org/a.yaml",
        "url must begin with https:// or http://",
    ),
    (
        "KubeExternalManifestConfig",
        "name: a\nurl: https://example.org/a.yaml\nheaders: {a b: c}",
        "headers must hold headers",
    ),
    (
        "KubeFlannelCNIConfig",
        "backendType: vxlan\nextraArgs: [iface=eth1]",
        "extraArgs must be arguments with their dashes",
    ),
    (
        "KubeProxyConfig",
        "image: a\nconfig: [a]",
        "config must be a map of KubeProxyConfiguration fields",
    ),
    (
        "KubeCredentialProviderConfig",
        "configuration: a",
        "configuration must be a map of CredentialProviderConfig fields",
    ),
    (
        "KubeNetworkConfig",
        "podSubnets: [10.0.0.0/20]\nserviceSubnets: [10.2.0.0/16]\nnodeCIDRMaskSizeIPv4: 16",
        "nodeCIDRMaskSizeIPv4 must be 20 or more",
    ),
    (
        "KubeAPIServerConfig",
        "image: a\nresources: {limits: {memory: 1GB}}",
        "resources.limits.memory must be a quantity of Kubernetes",
    ),
    (
        "KubeAPIServerConfig",
        "image: a\nresources: {requests: {cpu: 2}, limits: {cpu: 1500m}}",
        "resources.requests.cpu must be at most limits.cpu",
    ),
    (
        "KubeAPIServerConfig",
        "image: a\nenv: {POD_IP: 10.0.0.1}",
        "env must not have POD_IP",
    ),
    (
        "KubeAPIServerConfig",
        "image: a\nextraArgs: {tls-min-version: VersionTLS12}",
        "extraArgs.tls-min-version is set by the node",
    ),
    (
        "KubeStaticPodConfig",
        "name: A\npod: {kind: Pod}",
        "name must be a name of lower-case letters",
    ),
    (
        "DiscoveryServiceConfig",
        "name: a\nendpoint: ftp://a",
        "endpoint must begin with https://",
    ),
    (
        "DiscoveryIdentityConfig",
        "clusterID: a\nclusterSecret: c2hvcnQ=",
        "clusterSecret must be base64 of 32 bytes",
    ),
    (
        "KubeSpanConfig",
        "enabled: true\nmtu: 1000",
        "mtu must be 1280 or more",
    ),
    (
        "UnattendedInstallConfig",
        "installer: {image: a}",
        "provisioning is required",
    ),
    (
        "UnattendedInstallConfig",
        "provisioning: {wipe: true}",
        "provisioning.diskSelector is required",
    ),
    (
        "VolumeConfig",
        "name: EPHEMERAL\nmount: {secure: false}",
        "mount.secure must not be false",
    ),
];

fn with(document: &str) -> String {
    let bare = bare("controlplane");
    format!("{bare}cluster: {{controlPlane: {{endpoint: 'https://192.0.2.1:6443'}}}}\n{document}")
}

#[test]
fn invalid_kubernetes_settings_are_refused_with_their_field() {
    for (kind, fields, why) in INVALID {
        let found = future_problems(&with(&doc(kind, fields)));
        assert!(
            found.iter().any(|p| p.contains(why)),
            "{kind} {fields}: {found:?}"
        );
    }
}

#[test]
fn v1alpha1_fields_are_validated_like_the_documents() {
    let text = with("");
    for (from, to, why) in [
        (
            "    type:",
            "    nodeTaints: {a: Never}\n    type:",
            "machine.nodeTaints.a must be NoSchedule",
        ),
        (
            "    type:",
            "    nodeLabels: {a: b/c}\n    type:",
            "machine.nodeLabels.a must be at most 63",
        ),
        (
            "    type:",
            "    features: {kubePrism: {port: 0}}\n    type:",
            "kubePrism.port must be from 1",
        ),
        (
            "{controlPlane",
            "{network: {podSubnets: [10.0.0.0/16, 10.1.0.0/16]}, controlPlane",
            "podSubnets must have at most one IPv4",
        ),
        (
            "{controlPlane",
            "{apiServer: {authorizationConfig: [{name: a}]}, controlPlane",
            "authorizationConfig[0].type is required",
        ),
        (
            "{controlPlane",
            "{scheduler: {extraVolumes: [{hostPath: /a, mountPath: /tmp/}]}, controlPlane",
            "extraVolumes[0].mountPath is a directory of the component itself",
        ),
        (
            "{controlPlane",
            "{apiServer: {extraVolumes: [{hostPath: /a, mountPath: /b}, {hostPath: /c, mountPath: /b}]}, controlPlane",
            "extraVolumes[1].mountPath is given twice",
        ),
        (
            "{controlPlane",
            "{network: {cni: {name: none, flannel: {extraArgs: [--iface=eth1]}}}, controlPlane",
            "cluster.network.cni.flannel needs name: flannel",
        ),
        (
            "{controlPlane",
            "{externalCloudProvider: {manifests: ['https://a.example.org/b']}, controlPlane",
            "externalCloudProvider.manifests needs enabled: true",
        ),
        (
            "{controlPlane",
            "{extraManifestHeaders: {a: b}, controlPlane",
            "cluster.extraManifestHeaders is for requests of extraManifests",
        ),
        (
            "{controlPlane",
            "{inlineManifests: [{name: ' ', contents: a}], controlPlane",
            "cluster.inlineManifests has a manifest without a name",
        ),
        (
            "{controlPlane",
            "{proxy: {mode: ebpf}, controlPlane",
            "cluster.proxy.mode must be one of",
        ),
        (
            "{controlPlane",
            "{discovery: {registries: {service: {endpoint: 'ftp://a'}}}, controlPlane",
            "service.endpoint must begin with https://",
        ),
    ] {
        let found = problems(&text.replace(from, to));
        assert!(
            found.len() == 1 && found[0].contains(why),
            "{why}: {found:?}"
        );
    }
}

#[test]
fn arguments_that_override_a_configuration_file_are_refused_beside_it() {
    let oidc = "image: a\nextraArgs: {oidc-issuer-url: 'https://id.example.org'}";
    let mode = "image: a\nextraArgs: {authorization-mode: Webhook}";
    let webhook = "name: a\ntype: Webhook\nwebhook: {timeout: 3s}";
    for (args, kind, fields) in [
        (oidc, "KubeAuthenticationConfig", "configuration: {jwt: []}"),
        (mode, "KubeAuthorizerConfig", webhook),
    ] {
        let server = doc("KubeAPIServerConfig", args);
        assert_eq!(problems(&with(&server)), Vec::<String>::new());
        let found = problems(&with(&format!("{server}{}", doc(kind, fields))));
        let why = format!("{kind} excludes the argument");
        assert!(found.len() == 1 && found[0].contains(&why), "{found:?}");
    }
}

#[test]
fn invalid_static_pods_are_refused_with_their_position() {
    let text = with("").replace("    type:", "    pods: PODS\n    type:");
    for (pods, why) in [
        ("[{kind: Pod}]", "machine.pods[0] needs metadata.name"),
        (
            "[{kind: Deployment, metadata: {name: a}}]",
            "machine.pods[0] must have apiVersion: v1 and kind: Pod",
        ),
        (
            "[{metadata: {name: a}}, {metadata: {name: a, namespace: default}}]",
            "machine.pods[1] has the name and namespace of machine.pods[0]",
        ),
        (
            "[{metadata: {name: kube-scheduler, namespace: kube-system}}]",
            "machine.pods[0] is called kube-scheduler in kube-system",
        ),
    ] {
        let found = problems(&text.replace("PODS", pods));
        assert!(found.len() == 1 && found[0].contains(why), "{found:?}");
    }
    let pod = "name: a\npod: {metadata: {namespace: b}}";
    let found = problems(&with(&doc("KubeStaticPodConfig", pod)));
    let why = "KubeStaticPodConfig a: pod needs metadata.name";
    assert!(found.len() == 1 && found[0].contains(why), "{found:?}");
}

#[test]
fn arguments_are_validated_and_must_not_override_those_of_the_node() {
    let with = |field: &str, text: &str| {
        let machine = format!("machine:\n    kubelet: {{{field}: {text}}}");
        problems(&good().replacen("machine:", &machine, 1))
    };
    assert!(with("extraArgs", "{v: 4, feature-gates: [A=true, B=false]}").is_empty());
    for (text, word) in [
        ("{--v: 4}", "without the dashes"),
        ("{v: {a: b}}", "must be a text, or a list of texts"),
        ("{kubeconfig: /x}", "is set by the node"),
        ("[v]", "must be a map"),
    ] {
        let found = with("extraArgs", text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].contains(word), "{text}: {found:?}");
    }
    let found = with("extraConfig", "{staticPodPath: /x}");
    assert!(
        found[0].contains("extraConfig.staticPodPath is set by the node"),
        "{found:?}"
    );
}
