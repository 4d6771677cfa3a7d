//! Tests against a real kube-apiserver and etcd, each a child process.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{env, fs};

use corten_manifests::{BootstrapToken, Dns, Flannel, Proxy, Settings, bootstrap};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::sleep;

use crate::{Access, Cluster, Existing, Metadata, Taint};

/// Two processes and their directory; dropping it ends them.
struct Kubernetes {
    access: Access,
    folder: TempDir,
    children: [Child; 2],
}

fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn start(programs: &Path, name: &str, args: &[String], folder: &Path) -> Child {
    let log = fs::File::create(folder.join(format!("{name}.log"))).unwrap();
    let mut command = Command::new(programs.join(name));
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command.stderr(log).kill_on_drop(true).spawn().unwrap()
}

struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    fn new() -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        params.distinguished_name.push(DnType::CommonName, "test");
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Ca { issuer, pem }
    }

    fn issue(
        &self,
        name: &str,
        organization: &str,
        usage: ExtendedKeyUsagePurpose,
    ) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
        params.extended_key_usages = vec![usage];
        params.subject_alt_names = vec![SanType::IpAddress("127.0.0.1".parse().unwrap())];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }
}

impl Kubernetes {
    fn start() -> Kubernetes {
        let programs = env::var_os("CORTEN_KUBERNETES").expect("CORTEN_KUBERNETES");
        let programs = PathBuf::from(programs);
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (clients, peers, api) = (port(), port(), port());

        let (clients, peers) = (
            format!("http://127.0.0.1:{clients}"),
            format!("http://127.0.0.1:{peers}"),
        );
        let etcd = [
            "--name=test".to_owned(),
            format!("--data-dir={}", path("etcd")),
            format!("--listen-client-urls={clients}"),
            format!("--advertise-client-urls={clients}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=test={peers}"),
            "--unsafe-no-fsync".to_owned(),
        ];
        let etcd = start(&programs, "etcd", &etcd, folder.path());

        let ca = Ca::new();
        let (crt, key) = ca.issue(
            "kube-apiserver",
            "test",
            ExtendedKeyUsagePurpose::ServerAuth,
        );
        fs::write(path("ca.crt"), &ca.pem).unwrap();
        fs::write(path("server.crt"), crt).unwrap();
        fs::write(path("server.key"), key).unwrap();
        let signer = KeyPair::generate().unwrap();
        fs::write(path("sa.key"), signer.serialize_pem()).unwrap();
        fs::write(path("sa.pub"), signer.public_key_pem()).unwrap();
        let api_server = [
            format!("--etcd-servers={clients}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={api}"),
            format!("--tls-cert-file={}", path("server.crt")),
            format!("--tls-private-key-file={}", path("server.key")),
            format!("--client-ca-file={}", path("ca.crt")),
            format!("--service-account-key-file={}", path("sa.pub")),
            format!("--service-account-signing-key-file={}", path("sa.key")),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--service-cluster-ip-range=10.96.0.0/12".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            // kube-proxy is privileged.
            "--allow-privileged=true".to_owned(),
            // This cluster has no controller that creates service accounts.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
            format!("--cert-dir={}", path("certificates")),
        ];
        let api_server = start(&programs, "kube-apiserver", &api_server, folder.path());

        let (crt, key) = ca.issue(
            "admin",
            "system:masters",
            ExtendedKeyUsagePurpose::ClientAuth,
        );
        Kubernetes {
            access: Access {
                server: format!("https://127.0.0.1:{api}"),
                server_name: None,
                ca: ca.pem,
                crt,
                key,
            },
            folder,
            children: [etcd, api_server],
        }
    }

    async fn ready(&mut self) -> Cluster {
        let cluster = Cluster::connect(&self.access).unwrap();
        for _ in 0..120 {
            let mut ended = self
                .children
                .iter_mut()
                .map(|child| child.try_wait().unwrap());
            if ended.any(|status| status.is_some()) {
                break;
            }
            match cluster.is_ready().await {
                Ok(()) => return cluster,
                Err(_) => sleep(Duration::from_millis(500)).await,
            }
        }
        let log = |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap();
        let (etcd, api) = (log("etcd.log"), log("kube-apiserver.log"));
        panic!("{}\n{etcd}\n{api}", cluster.is_ready().await.unwrap_err());
    }
}

fn objects() -> Vec<Value> {
    let settings = Settings {
        has_pod_access: true,
        shim_group: None,
        server: "https://127.0.0.1:7445".to_owned(),
        domain: "cluster.local".to_owned(),
        pod_subnets: vec!["10.244.0.0/16".to_owned()],
        proxy: Some(Proxy {
            image: "registry.k8s.io/kube-proxy:v1.37.0".to_owned(),
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
            ..Flannel::default()
        }),
    };
    let token = BootstrapToken::parse("abcdef.0123456789abcdef").unwrap();
    let manifests = bootstrap(&settings, &token);
    let mut objects: Vec<Value> = manifests
        .into_iter()
        .flat_map(|manifest| manifest.objects)
        .collect();
    objects.insert(
        0,
        json!({ "apiVersion": "example.org/v1", "kind": "Widget", "metadata": { "name": "w" }, "spec": { "size": 1 } }),
    );
    objects.push(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.example.org" },
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": { "kind": "Widget", "plural": "widgets", "singular": "widget" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    }));
    objects
}

fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default", "labels": { "app": name } },
        "spec": {
            "nodeName": "n",
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "c", "image": "c" }],
        },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        pod["metadata"][field] = value.clone();
    }
    pod
}

#[tokio::test]
#[ignore = "needs Kubernetes: CORTEN_KUBERNETES"]
async fn a_real_cluster_takes_the_bootstrap_manifests_twice() {
    let mut kubernetes = Kubernetes::start();
    let cluster = kubernetes.ready().await;
    let objects = objects();

    let first = cluster.apply(&objects, Existing::Keep).await;
    assert_eq!(first.failed, []);
    assert_eq!(first.created.len(), objects.len(), "{first:?}");
    for existing in [Existing::Keep, Existing::Update] {
        let again = cluster.apply(&objects, existing).await;
        assert_eq!(again.failed, []);
        assert_eq!(again.kept.len(), objects.len(), "{again:?}");
    }
    let mut changed = objects[0].clone();
    changed["spec"]["size"] = json!(2);
    let kept = cluster.apply(&[changed.clone()], Existing::Keep).await;
    assert_eq!((kept.kept.len(), kept.failed.len()), (1, 0), "{kept:?}");
    let updated = cluster.apply(&[changed], Existing::Update).await;
    assert_eq!(
        (updated.updated.len(), updated.failed.len()),
        (1, 0),
        "{updated:?}"
    );

    node(&cluster).await;
}

async fn node(cluster: &Cluster) {
    assert_eq!(cluster.node("n").await.unwrap(), None);
    let pods = [
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n", "labels": { "foreign": "f" } } }),
        json!({
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": { "name": "kept", "namespace": "default" },
            "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "kept" } } },
        }),
        pod("free", &json!({})),
        pod("kept", &json!({})),
        pod(
            "daemon",
            &json!({ "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true,
        }] }),
        ),
    ];
    let report = cluster.apply(&pods, Existing::Keep).await;
    assert_eq!(report.failed, []);

    let wanted = Metadata {
        labels: BTreeMap::from([("role".to_owned(), "edge".to_owned())]),
        annotations: BTreeMap::from([("note".to_owned(), "x".to_owned())]),
        taints: BTreeMap::from([(
            "t".to_owned(),
            Taint {
                value: "v".to_owned(),
                effect: "NoSchedule".to_owned(),
            },
        )]),
    };
    for (wanted, label, taints) in [
        (&wanted, json!("edge"), 1),
        (&Metadata::default(), Value::Null, 0),
    ] {
        let applied = cluster.apply_node_metadata("n", wanted, |_| true).await;
        assert!(applied.unwrap().is_empty());
        let node = cluster.node("n").await.unwrap().unwrap();
        assert_eq!(node["metadata"]["labels"]["foreign"], "f");
        assert_eq!(node["metadata"]["labels"]["role"], label);
        let ours = |taint: &&Value| taint["key"] == "t";
        let found = node["spec"]["taints"].as_array();
        assert_eq!(
            found.map_or(0, |all| all.iter().filter(ours).count()),
            taints
        );
    }
    for on in [true, false] {
        let done = if on {
            cluster.cordon("n").await
        } else {
            cluster.uncordon("n").await
        };
        done.unwrap();
        let node = cluster.node("n").await.unwrap().unwrap();
        assert_eq!(node["spec"]["unschedulable"] == json!(true), on);
    }
    // A disruption budget counts running pods.
    let running = json!({ "status": { "phase": "Running" } });
    let request = http::Request::patch("/api/v1/namespaces/default/pods/kept/status")
        .header("content-type", "application/merge-patch+json")
        .body(running.to_string().into_bytes());
    cluster
        .client
        .request::<Value>(request.unwrap())
        .await
        .unwrap();
    let drained = cluster.drain("n", Duration::from_secs(5)).await.unwrap();
    assert_eq!(drained.gone, ["default/free"]);
    let left: Vec<&str> = drained.left.iter().map(|left| left.pod.as_str()).collect();
    assert_eq!(left, ["default/kept"]);
    assert!(drained.left[0].reason.contains("code 429"), "{drained:?}");
}
