//! What pods of the real image use: volumes of an NFS server, accounts of the node API, user namespaces, swap, and
//! network policies.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tests::client::Client;
use tests::kubectl::Kubectl;
use tests::nfs::NfsServer;
use tests::node::Node;
use tests::policies;

use super::CLUSTER;

/// The config of a node whose pods use user namespaces and swap, as docs/how-to/kubernetes.md has it.
pub const SETTINGS: &str = "
machine:
  sysctls:
    user.max_user_namespaces: '1024'
  kubelet:
    extraConfig:
      memorySwap:
        swapBehavior: LimitedSwap
---
apiVersion: v1alpha1
kind: SwapVolumeConfig
name: swap
provisioning:
  diskSelector: {match: '!system_disk'}
  maxSize: 512MiB
encryption:
  provider: luks2
  keys:
  - slot: 0
    nodeID: {}
";

/// A burstable pod in a user namespace. Only a burstable pod gets swap.
const APART: &str = "
apiVersion: v1
kind: Pod
metadata: {name: apart}
spec:
  hostUsers: false
  containers:
  - name: apart
    image: COREDNS
    resources: {requests: {memory: 512Mi}}
";

/// A name server that forwards to the DNS of the cluster.
const RELAY: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: relay}
data:
  Corefile: |
    .:1053 {
      forward . /etc/resolv.conf
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: relay}
spec:
  selector: {matchLabels: {app: relay}}
  template:
    metadata: {labels: {app: relay}}
    spec:
      containers:
      - name: relay
        image: COREDNS
        args: [-conf, /relay/Corefile]
        volumeMounts: [{name: relay, mountPath: /relay}]
      volumes: [{name: relay, configMap: {name: relay}}]
";
/// Port of this machine that leads to it.
const RELAY_PORT: u16 = 16453;

/// A pod that writes to an NFS volume and serves with a config from it. A claim takes the volume, because only a
/// PersistentVolume has mount options. The node sees this host as 10.0.2.2.
const SHARED: &str = r"
apiVersion: v1
kind: PersistentVolume
metadata: {name: shared}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteMany]
  storageClassName: ''
  mountOptions: [vers=3, nolock, proto=tcp, mountproto=tcp, port=PORT, mountport=PORT]
  nfs: {server: 10.0.2.2, path: /}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: shared}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ''
  volumeName: shared
  resources: {requests: {storage: 1Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: shared}
spec:
  initContainers:
  - name: writes
    image: KUBE-PROXY
    command: [/usr/local/bin/kube-proxy, --write-config-to=/shared/written]
    volumeMounts: [{name: shared, mountPath: /shared}]
  containers:
  - name: reads
    image: COREDNS
    args: [-conf, /shared/Corefile]
    volumeMounts: [{name: shared, mountPath: /shared}]
    readinessProbe: {httpGet: {path: /health, port: 8080}}
  volumes: [{name: shared, persistentVolumeClaim: {claimName: shared}}]
";

/// The config that gives pods access to the node API, and two accounts, of which one is refused.
const ACCESS: &str = "apiVersion: v1alpha1\nkind: KubeTalosAPIAccessConfig\nallowedRoles: [os:reader]\n\
    allowedKubernetesNamespaces: [kube-system]\n";
const ACCOUNTS: &str = "
apiVersion: talos.dev/v1alpha1
kind: ServiceAccount
metadata: {name: looks, namespace: kube-system}
spec: {roles: [os:reader]}
---
apiVersion: talos.dev/v1alpha1
kind: ServiceAccount
metadata: {name: rules, namespace: kube-system}
spec: {roles: [os:admin]}
";

/// A pod reads and writes a volume on an NFS server; when the pod is gone, the volume is unmounted.
pub fn pods_share_a_volume_of_an_nfs_server(node: &Node, cluster: &Kubectl) {
    let server = NfsServer::with_file("Corefile", ".:1053 {\n  health :8080\n}\n");
    let image = |object| cluster.image_of("kube-system", object).expect("an image");
    let shared = SHARED
        .replace("PORT", &server.port().to_string())
        .replace("KUBE-PROXY", &image("daemonset/kube-proxy"))
        .replace("COREDNS", &image("deployment/coredns"));
    let applied = cluster.apply(&node.vm.dir().join("shared.yaml"), &shared);
    applied.expect("a pod with a volume");
    let ready = "jsonpath={.status.containerStatuses[0].ready}";
    node.until("a pod that serves from the volume", CLUSTER, || {
        let get = ["get", "pod", "shared", "-o", ready];
        cluster.check(&get, |text| text == "true")
    });
    let mounts = || node.admin().must(&["read", "/proc/mounts"]);
    assert!(mounts().contains(" nfs "), "{}", mounts());
    cluster
        .call(&["delete", "pod", "shared"])
        .expect("the pod is removed");
    assert!(!mounts().contains(" nfs "), "{}", mounts());
}

/// An account of a pod opens the API of the node with its role, and an account of another role gets a reason.
pub fn pods_get_accounts(node: &Node, cluster: &Kubectl) {
    let dir = node.vm.dir();
    let admin = node.admin();
    let config = write(&dir.join("access.yaml"), ACCESS);
    admin.must(&["patch", "mc", "--patch", &format!("@{config}")]);
    node.until("a kind of accounts", CLUSTER, || {
        cluster.apply(&dir.join("accounts.yaml"), ACCOUNTS)
    });
    let get = |what: &[&str]| cluster.call(&[&["get", "-n", "kube-system"], what].concat());
    let credentials = dir.join("pod.yaml");
    node.until("credentials of an account", CLUSTER, || {
        let file = get(&["secret", "looks", "-o", "jsonpath={.data.config}"])?;
        let file = STANDARD.decode(file).map_err(|error| error.to_string())?;
        if file.is_empty() {
            return Err("the Secret has no config".to_owned());
        }
        std::fs::write(&credentials, file).map_err(|error| error.to_string())
    });
    let pod = Client::with_config(node.vm.api(), &credentials);
    pod.must(&["version"]);
    let refused = pod.call(&["read", "/etc/os-release"]);
    let refused = refused.expect_err("a reader may not read files");
    assert!(refused.to_lowercase().contains("permission"), "{refused}");
    let why = ["tsa", "rules", "-o", "jsonpath={.status.failureReason}"];
    node.until("the reason of a refusal", CLUSTER, || {
        let why = get(&why)?;
        why.starts_with("Roles not allowed: [os:admin]")
            .then_some(())
            .ok_or(why)
    });
    let endpoints = [
        "get",
        "endpointslice",
        "talos-ipv4",
        "-o",
        "jsonpath={.endpoints[0].addresses[0]}",
    ];
    node.until("the endpoint of the API", CLUSTER, || {
        cluster.check(&endpoints, |text| text == "10.0.2.15")
    });
}

fn write(path: &Path, text: &str) -> String {
    std::fs::write(path, text).expect("a file");
    path.display().to_string()
}

/// A pod has users of its own and may swap a part of its memory.
pub fn pods_run_in_user_namespaces_and_swap(node: &Node, cluster: &Kubectl) {
    let image = cluster.image_of("kube-system", "deployment/coredns");
    let pod = APART.replace("COREDNS", &image.expect("the image of CoreDNS"));
    let applied = cluster.apply(&node.vm.dir().join("apart.yaml"), &pod);
    applied.expect("a pod in a user namespace");
    let state =
        "jsonpath={.metadata.uid} {.status.containerStatuses[0].containerID} {.status.phase}";
    let state = node.until("a pod in a user namespace", CLUSTER, || {
        let state = cluster.call(&["get", "pod", "apart", "-o", state])?;
        state
            .ends_with(" Running")
            .then_some(state.clone())
            .ok_or(state)
    });
    let mut words = state.split(' ');
    let uid = words.next().expect("the UID of the pod");
    let container = words.next().and_then(|id| id.strip_prefix("containerd://"));
    let container = container.expect("a container of containerd");
    let group = format!("/sys/fs/cgroup/kubepods/burstable/pod{uid}/{container}");

    let admin = node.admin();
    let limit = admin.must(&["read", &format!("{group}/memory.swap.max")]);
    let limit: u64 = limit.trim().parse().expect("a limit of the swap in bytes");
    assert!(limit > 0, "the pod may not swap");
    let swaps = admin.must(&["read", "/proc/swaps"]);
    assert_eq!(swaps.lines().count(), 2, "{swaps}");
    let processes = admin.must(&["read", &format!("{group}/cgroup.procs")]);
    let process = processes.lines().next().expect("a process of the pod");
    let users = admin.must(&["read", &format!("/proc/{process}/uid_map")]);
    let mut users = users.split_whitespace();
    assert_eq!(users.next(), Some("0"));
    assert_ne!(
        users.next(),
        Some("0"),
        "root of the pod is root of the node"
    );
}

/// Network policies hold on the kernel of the image, which loads a module for them.
pub fn policies_are_enforced(node: &Node, cluster: &Kubectl) {
    let image = cluster.image_of("kube-system", "deployment/coredns");
    let relay = RELAY.replace("COREDNS", &image.expect("the image of CoreDNS"));
    let dir = node.vm.dir();
    let applied = cluster.apply(&dir.join("relay.yaml"), &relay);
    applied.expect("a name server that forwards");
    node.until("a name server that forwards", CLUSTER, || {
        cluster.available("default", "relay")
    });
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, RELAY_PORT));
    policies::are_enforced(cluster, dir, local, 1053);
    let modules = node.admin().must(&["read", "/proc/modules"]);
    assert!(modules.contains("nfnetlink_queue "), "{modules}");
}
