//! Golden file tests: the manifests of clusters that differ in one setting each.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::json;

use super::*;

fn token() -> BootstrapToken {
    BootstrapToken::parse("abcdef.0123456789abcdef").unwrap()
}

fn settings() -> Settings {
    Settings {
        server: "https://127.0.0.1:7445".to_owned(),
        domain: "cluster.local".to_owned(),
        pod_subnets: vec!["10.244.0.0/16".to_owned()],
        proxy: Some(Proxy {
            image: "registry.k8s.io/kube-proxy:v1.37.0".to_owned(),
            args: vec!["--proxy-mode=nftables".to_owned()],
            ..Proxy::default()
        }),
        dns: Some(Dns {
            image: "registry.k8s.io/coredns/coredns:v1.14.7".to_owned(),
            ipv4: Some("10.96.0.10".parse().unwrap()),
            ipv6: None,
        }),
        flannel: Some(Flannel {
            image: "ghcr.io/siderolabs/flannel:v0.28.9".to_owned(),
            backend: "vxlan".to_owned(),
            port: Some(4789),
            api: Some(("127.0.0.1".parse().unwrap(), 7445)),
            ..Flannel::default()
        }),
        has_pod_access: false,
        shim_group: None,
    }
}

/// Settings with every optional feature enabled.
fn everything() -> Settings {
    let mut settings = settings();
    settings.pod_subnets.push("fc00:db8:10::/56".to_owned());
    let limits = BTreeMap::from([("memory".to_owned(), "128Mi".to_owned())]);
    let requests = BTreeMap::from([("cpu".to_owned(), "150m".to_owned())]);
    let resources = Resources { requests, limits };
    let proxy = settings.proxy.as_mut().unwrap();
    proxy.args = vec!["--config=/var/lib/kube-proxy/config.conf".to_owned()];
    proxy.config = Some(json!({ "kind": "KubeProxyConfiguration", "mode": "nftables" }));
    proxy.resources = resources.clone();
    let flannel = settings.flannel.as_mut().unwrap();
    flannel.mtu = Some(1420);
    flannel.extra = BTreeMap::from([("VNI".to_owned(), json!(4096))]);
    flannel.args = vec!["--iface=eth1".to_owned()];
    flannel.resources = resources;
    flannel.policies_image = Some("registry.k8s.io/networking/kube-network-policies:v1".to_owned());
    settings.dns.as_mut().unwrap().ipv6 = Some("fc00:db8:20::a".parse().unwrap());
    settings.has_pod_access = true;
    settings.shim_group = Some("addons-0123456789abcdef".to_owned());
    settings
}

fn yaml(manifests: &[Manifest]) -> String {
    let mut text = String::new();
    for manifest in manifests {
        for object in &manifest.objects {
            let object = serde_saphyr::to_string(object).unwrap();
            write!(text, "---\n# {}\n{object}", manifest.id).unwrap();
        }
    }
    text
}

/// Compares with `src/golden/<name>.yaml`; `UPDATE=1` rewrites the file.
fn golden(name: &str, settings: &Settings) {
    let manifests = bootstrap(settings, &token());
    let text = yaml(&manifests);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/golden/{name}.yaml"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{} differs; UPDATE=1 writes it",
        path.display()
    );
    // The output reads back as the same objects.
    let objects: Vec<Value> = manifests
        .into_iter()
        .flat_map(|manifest| manifest.objects)
        .collect();
    assert_eq!(read(&text), Ok(objects));
}

#[test]
fn manifests_of_a_default_cluster_match_the_golden_file() {
    golden("defaults", &settings());
}

#[test]
fn manifests_of_a_cluster_with_every_option_match_the_golden_file() {
    golden("everything", &everything());
}

#[test]
fn manifests_of_an_ipv6_cluster_without_cni_and_proxy_match_the_golden_file() {
    let mut settings = settings();
    settings.pod_subnets = vec!["fc00:db8:10::/56".to_owned()];
    settings.proxy = None;
    let dns = settings.dns.as_mut().unwrap();
    dns.ipv4 = None;
    dns.ipv6 = Some("fc00:db8:20::a".parse().unwrap());
    settings.flannel = None;
    settings.domain = String::new();
    golden("ipv6", &settings);
}

#[test]
fn disabled_components_are_not_rendered() {
    let settings = Settings {
        flannel: None,
        proxy: None,
        dns: None,
        ..settings()
    };
    let manifests = bootstrap(&settings, &token());
    let ids: Vec<&str> = manifests
        .iter()
        .map(|manifest| manifest.id.as_str())
        .collect();
    assert_eq!(
        ids,
        [
            "00-kubelet-bootstrapping-token",
            "01-csr-approver-role-binding",
            "01-csr-node-bootstrap",
            "01-csr-renewal-role-binding",
            "11-kube-config-in-cluster",
            "11-talos-node-rbac-template",
        ]
    );
}

#[test]
fn every_object_has_a_unique_name() {
    let mut seen = std::collections::BTreeSet::new();
    for object in bootstrap(&everything(), &token())
        .iter()
        .flat_map(|manifest| &manifest.objects)
    {
        let identity = Identity::of(object).unwrap();
        assert!(seen.insert(identity.inventory_key()), "{identity}");
    }
}

#[test]
fn changed_kube_proxy_configuration_has_a_new_name() {
    let name = |mode: &str| {
        let mut settings = everything();
        settings.proxy.as_mut().unwrap().config = Some(json!({ "mode": mode }));
        let objects = proxy::objects(settings.proxy.as_ref().unwrap());
        let volumes = objects[1]
            .pointer("/spec/template/spec/volumes/3/configMap/name")
            .cloned();
        assert_eq!(volumes.as_ref(), objects[0].pointer("/metadata/name"));
        volumes
    };
    assert_ne!(name("nftables"), name("iptables"));
    assert_eq!(name("nftables"), name("nftables"));
}
