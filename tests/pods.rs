//! Promise: the pods of a cluster reach each other, its services and its DNS, as far as network policies allow, and end by
//! themselves with their node. The cluster survives a changed config of its API server, an invalid static pod, the loss of
//! etcd's data, expired certificates, and new CAs. An upgrade deletes what no manifest has.

#![expect(clippy::expect_used, reason = "a failing step is a failing test")]

#[path = "pods/credentials.rs"]
mod credentials;
#[path = "pods/recovery.rs"]
mod recovery;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use credentials::{cas_are_replaced, cluster_outlives_its_certificates};
use recovery::snapshot_restores_the_cluster;
use tests::client::Client;
use tests::cluster::{
    self, CALL, CLUSTER, CONTROL_PLANE, Cleanup, ENDPOINT, NAME, WORKER, traces, until,
};
use tests::dns::resolve;
use tests::images;
use tests::kubectl::Kubectl;
use tests::policies;

/// Port on this machine that leads to a pod.
const PORT: u16 = 15353;
/// Port of the worker that leads to its pod.
const HOST_PORT: u16 = 1054;

/// A name server on the worker, on a volume of a claim, behind a Service; and one on the control plane node that forwards
/// to the Service, and to the DNS of its cluster.
const PODS: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: corefiles}
data:
  web: |
    example.test:1053 {
      template IN A {
        answer "{{ .Name }} 60 IN A 192.0.2.7"
      }
    }
  relay: |
    example.test:1053 {
      forward . 10.96.0.53 {
        prefer_udp
      }
    }
    cluster.local:1053 {
      forward . /etc/resolv.conf
    }
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: data}
spec:
  storageClassName: manual
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /var/local/data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  storageClassName: manual
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Mi}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {kubernetes.io/hostname: test-cluster-worker-1}
      containers:
      - name: web
        image: IMAGE
        args: [-conf, /corefiles/web]
        ports: [{containerPort: 1053, hostPort: 1054, protocol: TCP}]
        volumeMounts: [{name: corefiles, mountPath: /corefiles}, {name: data, mountPath: /data}]
      volumes:
      - {name: corefiles, configMap: {name: corefiles}}
      - {name: data, persistentVolumeClaim: {claimName: data}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  clusterIP: 10.96.0.53
  selector: {app: web}
  ports: [{port: 53, protocol: UDP, targetPort: 1053}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: relay}
spec:
  selector: {matchLabels: {app: relay}}
  template:
    metadata: {labels: {app: relay}}
    spec:
      nodeSelector: {kubernetes.io/hostname: test-cluster-controlplane-1}
      tolerations: [{operator: Exists}]
      containers:
      - name: relay
        image: IMAGE
        args: [-conf, /corefiles/relay]
        volumeMounts: [{name: corefiles, mountPath: /corefiles}]
      volumes: [{name: corefiles, configMap: {name: corefiles}}]
"#;

/// A client of the cluster with this client config.
fn client_with(config: &Path) -> Client {
    Client::with_config(ENDPOINT, config)
}

/// Pods on both nodes, and the calls of an operator that reach them.
fn pods_reach_each_other(kubectl: &Kubectl, directory: &Path) {
    until("the cluster's DNS", || {
        kubectl.available("kube-system", "coredns")
    });
    let image = kubectl.image_of("kube-system", "deployment/coredns");
    let pods = PODS.replace("IMAGE", &image.expect("the image of CoreDNS"));
    let applied = kubectl.apply(&directory.join("pods.yaml"), &pods);
    applied.expect("pods, a volume and a service");
    for deployment in ["web", "relay"] {
        until(deployment, || kubectl.available("default", deployment));
    }
    let version = kubectl.call(&["exec", "deploy/web", "--", "/coredns", "-version"]);
    let version = version.expect("a program in a pod of the worker");
    assert!(version.starts_with("CoreDNS-"), "{version}");
    let logs = kubectl.call(&["logs", "deploy/web"]).expect("its log");
    assert!(logs.contains("CoreDNS-"), "{logs}");

    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let relay = kubectl.forward("deploy/relay", local, 1053);
    let through_service = until("an answer of the other node", || {
        resolve(relay.connect()?, "www.example.test.")
    });
    assert_eq!(through_service, Ipv4Addr::new(192, 0, 2, 7));
    let host_port = until("an answer at the port of the worker", || {
        let stream = TcpStream::connect((WORKER, HOST_PORT)).map_err(|error| error.to_string())?;
        resolve(stream, "www.example.test.")
    });
    assert_eq!(host_port, through_service);
    let service = until("an answer of the cluster's DNS", || {
        resolve(relay.connect()?, "web.default.svc.cluster.local.")
    });
    assert_eq!(service, Ipv4Addr::new(10, 96, 0, 53));
}

/// Every kube-proxy restarts. The Services that were there before still answer, and so does one that comes after.
fn services_survive_a_restart_of_kube_proxy(kubectl: &Kubectl, directory: &Path) {
    let deleted = kubectl.call(&["delete", "service", "web"]);
    deleted.expect("a Service that only the new kube-proxy can add");
    let proxies = [
        "delete",
        "pods",
        "-n",
        "kube-system",
        "-l",
        "k8s-app=kube-proxy",
    ];
    kubectl.call(&proxies).expect("an end of every kube-proxy");
    let pods = directory.join("pods.yaml");
    let pods = pods.to_str().expect("a path in UTF-8");
    let applied = kubectl.call(&["apply", "-f", pods]);
    applied.expect("the Service again");

    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    let relay = kubectl.forward("deploy/relay", local, 1053);
    until("an answer through the new Service", || {
        resolve(relay.connect()?, "www.example.test.")
    });
    until("an answer through the Service of the cluster's DNS", || {
        resolve(relay.connect()?, "web.default.svc.cluster.local.")
    });
}

/// A reboot of the worker stops its pods with SIGTERM, and they end by themselves: SIGKILL leaves 137, and a pod that its
/// kubelet did not stop has no such condition.
fn pods_end_by_themselves_when_their_node_reboots(kubectl: &Kubectl, state: &Path) {
    let reboot = ["-n", WORKER, "reboot", "--wait", "--drain=false"];
    let rebooted = cluster::call(state, &reboot, CLUSTER);
    rebooted.expect("the worker is back");
    let ended = "jsonpath={range .items[*]}{.status.containerStatuses[0].state.terminated.exitCode} \
                 {.status.conditions[?(@.type=='DisruptionTarget')].reason}{'\\n'}{end}";
    let get = ["get", "pods", "-l", "app=web", "-o", ended];
    until("a pod that ended by itself", || {
        kubectl.check(&get, |pods| {
            pods.lines().any(|pod| pod == "0 TerminationByKubelet")
        })
    });
    until("its successor", || kubectl.available("default", "web"));
}

/// The processes with this name that run on this machine, nodes included.
fn processes(name: &str) -> impl Iterator<Item = String> {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let found = processes.filter(move |process| {
        let own = fs::read_to_string(process.path().join("comm"));
        own.is_ok_and(|own| own.trim() == name)
    });
    found.filter_map(|process| process.file_name().into_string().ok())
}

/// The parents of the processes with these names.
fn parents(names: &[&str]) -> BTreeSet<String> {
    let all = names.iter().flat_map(|name| processes(name));
    let parents = all.filter_map(|pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        Some(parent.trim().to_owned())
    });
    parents.collect()
}

/// On each node, the pods of a group have one shim.
fn system_pods_share_shims() {
    let control_plane = ["kube-apiserver", "kube-controller", "kube-scheduler"];
    assert_eq!(parents(&control_plane).len(), 1);
    assert_eq!(parents(&["kube-proxy"]).len(), 2, "one for each node");
    assert_eq!(
        parents(&["kube-proxy", "flanneld", "netpol"]),
        parents(&["kube-proxy"])
    );
}

/// The kubelet's iscsiadm runs that of an extension, in the namespaces of the extension's iscsid.
fn kubelet_calls_iscsiadm_of_the_extension(directory: &Path) {
    let kubelet = processes("kubelet").next().expect("a kubelet");
    let iscsiadm = || {
        let image = Path::new("/proc").join(&kubelet).join("root");
        let mut command = Command::new(image.join("usr/bin/iscsiadm"));
        let ran = command.args(["-m", "session"]).output();
        let ran = ran.expect("a program of the kubelet's image");
        String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned()
    };
    let alone = iscsiadm();
    assert!(alone.contains("no iscsid runs on this node"), "{alone}");

    let programs = directory.join("programs");
    fs::create_dir(&programs).expect("a directory");
    let answers = "#!/bin/sh\necho $0 $@\nreadlink /proc/self/ns/net\n";
    let extension = programs.join("iscsiadm");
    fs::write(&extension, answers).expect("a program");
    fs::set_permissions(&extension, Permissions::from_mode(0o755)).expect("a program");
    let daemon = directory.join("iscsid");
    fs::copy("/bin/sleep", &daemon).expect("a daemon");
    let start = "mount --bind \"$1\" /usr/local/sbin && exec \"$2\" 600";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "sh", "-c", start, "sh"]);
    let mut unshare = unshare
        .arg(&programs)
        .arg(&daemon)
        .spawn()
        .expect("unshare");
    let pid = until("iscsid", || {
        let found = processes("iscsid").next();
        found.ok_or("it is not there".to_owned())
    });
    let link = fs::read_link(format!("/proc/{pid}/ns/net")).expect("a namespace");
    let answer = iscsiadm();
    unshare.kill().expect("iscsid has run until now");
    unshare.wait().expect("iscsid has ended");
    let expected = format!("/usr/local/sbin/iscsiadm -m session\n{}\n", link.display());
    assert_eq!(answer, expected);
}

/// Static pods of the config: the kubelet refuses the first.
const STATIC_PODS: &str = r#"
machine:
  pods:
  - apiVersion: v1
    kind: Pod
    metadata: {name: invalid}
    spec: {containers: [{name: Invalid, image: IMAGE}]}
  - apiVersion: v1
    kind: Pod
    metadata: {name: static}
    spec: {hostNetwork: true, containers: [{name: static, image: IMAGE, args: [-dns.port, "1055"]}]}
"#;

/// The API server restarts with a changed argument, and a static pod of the config starts, beside an invalid one.
fn api_server_takes_a_changed_config(kubectl: &Kubectl, config: &Path) {
    let image = kubectl.image_of("kube-system", "deployment/coredns");
    let pods = STATIC_PODS.replace("IMAGE", &image.expect("the image of CoreDNS"));
    let patch = format!("{pods}cluster: {{apiServer: {{extraArgs: {{goaway-chance: '0.001'}}}}}}");
    let patch = ["-n", CONTROL_PLANE, "patch", "mc", "--patch", &patch];
    let patched = client_with(config).call_within(CALL, &patch);
    patched.expect("a changed config");
    let pod = format!("kube-apiserver-{NAME}-controlplane-1");
    let state =
        "jsonpath={.spec.containers[0].command} {.status.conditions[?(@.type=='Ready')].status}";
    let get = ["get", "pod", &pod, "-n", "kube-system", "-o", state];
    until("an API server with the argument", || {
        kubectl.check(&get, |text| {
            text.contains("--goaway-chance=0.001") && text.ends_with(" True")
        })
    });
    let pod = format!("static-{NAME}-controlplane-1");
    let get = ["get", "pod", &pod, "-o", "jsonpath={.status.phase}"];
    until("a static pod of the config", || {
        kubectl.check(&get, |phase| phase == "Running")
    });
}

/// An inline manifest of the config.
const MANIFEST: &str = "cluster: {inlineManifests: [{name: extra, contents: '{apiVersion: v1, kind: ConfigMap, \
                        metadata: {name: extra, namespace: default}}'}]}";

/// The same manifest with contents that no node can read.
const UNREADABLE: &str = "cluster: {inlineManifests: [{name: extra, contents: 'kind: ['}]}";

/// The verb that upgrades Kubernetes, to the same version, deletes an object that no manifest has. It keeps those of a
/// manifest that a node cannot read.
fn objects_come_and_go_with_the_manifests(kubectl: &Kubectl, config: &Path) {
    let owner = client_with(config);
    let manifests = ["-n", CONTROL_PLANE, "get", "manifests"];
    let get = [
        "get",
        "configmap",
        "extra",
        "--ignore-not-found",
        "-o",
        "name",
    ];
    let none = "cluster: {inlineManifests: [{name: extra, $patch: delete}]}";
    for (patch, is_there) in [(MANIFEST, true), (UNREADABLE, true), (none, false)] {
        let patch = ["-n", CONTROL_PLANE, "patch", "mc", "--patch", patch];
        let patched = owner.call_within(CALL, &patch);
        patched.expect("a changed config");
        until("the manifests of the config", || {
            let listed = owner.call_within(CALL, &manifests)?;
            let is_right = listed.contains("extra") == is_there;
            is_right.then_some(()).ok_or(listed)
        });
        let upgraded = owner.call_within(CLUSTER, &["upgrade-k8s"]);
        upgraded.expect("an upgrade to the same version");
        let found = kubectl.call(&get).expect("an answer");
        assert_eq!(found.trim() == "configmap/extra", is_there, "{found}");
    }
}

#[test]
#[ignore = "make test-cluster"]
fn container_cluster_runs_pods_from_bundled_images() {
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path();
    let _cleanup = Cleanup::begin(state);
    let before = traces(state);
    let image = images::image("-rootfs.squashfs").display().to_string();
    let cache = images::image("-image-cache.squashfs").display().to_string();
    let create = ["--image", &image, "--image-cache", &cache];
    let own = ["--config-patch-control-plane", policies::ENFORCED];
    let told = cluster::create(state, &[&create[..], &own].concat(), CLUSTER);
    let told = told.unwrap_or_else(|error| panic!("{error}"));
    assert!(told.contains("kubectl --kubeconfig "), "{told}");

    let place = state.join(NAME);
    let kubectl = Kubectl::new(place.join("kubeconfig"));
    let config = place.join("cortenconfig");
    pods_reach_each_other(&kubectl, state);
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
    policies::are_enforced(&kubectl, state, local, 1053);
    system_pods_share_shims();
    services_survive_a_restart_of_kube_proxy(&kubectl, state);
    pods_end_by_themselves_when_their_node_reboots(&kubectl, state);
    kubelet_calls_iscsiadm_of_the_extension(state);
    objects_come_and_go_with_the_manifests(&kubectl, &config);
    api_server_takes_a_changed_config(&kubectl, &config);
    snapshot_restores_the_cluster(&kubectl, &config, state);
    let (kubectl, config) = cluster_outlives_its_certificates(kubectl, config, state);
    cas_are_replaced(&kubectl, &config, state);

    cluster::destroy(state);
    assert_eq!(traces(state), before);
}
