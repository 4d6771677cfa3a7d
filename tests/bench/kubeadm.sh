# Run as root in the Debian machine by the bench (cluster.rs): kubeadm makes a cluster of one node from the programs and
# images of ours. $1: the port of the API server. $2: seconds between the start of the last pod and the measurement.
# Each result is one line on the console, which begins with `kubeadm: `.
exec </dev/null >/dev/ttyS0 2>&1
PORT=$1 IDLE=$2
NODE=/run/bench/node IMAGES=/run/bench/images PROGRAMS=/run/bench/programs DATA=/run/bench/data
REGISTRY=127.0.0.1:5000

# The only tag of an image.
tag() { ls "$IMAGES/manifests/images.corten.internal/$1/reference"; }

containerd_config() {
    cat <<END
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'images.corten.internal/pause:$(tag pause)'
[plugins.'io.containerd.cri.v1.images'.registry]
config_path = '/etc/containerd/certs.d'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = true
END
}

# As in kubeadm's package.
kubelet_unit() {
    cat <<END
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=$PROGRAMS/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \$KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=10
END
}

# One node needs no leader election, as in qemu/cluster.yaml.
kubeadm_config() {
    cat <<END
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.0.2.15, bindPort: $PORT}
nodeRegistration: {name: debian, taints: [], criSocket: 'unix:///run/containerd/containerd.sock'}
timeouts: {controlPlaneComponentHealthCheck: 20m, kubeletHealthCheck: 20m, kubernetesAPICall: 10m, etcdAPICall: 10m}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: $(tag kube-apiserver)
imageRepository: images.corten.internal
networking: {podSubnet: 10.244.0.0/16}
etcd: {local: {imageTag: $(tag etcd)}}
dns: {imageTag: $(tag coredns)}
apiServer: {certSANs: [127.0.0.1]}
controllerManager: {extraArgs: [{name: leader-elect, value: 'false'}]}
scheduler: {extraArgs: [{name: leader-elect, value: 'false'}]}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
END
}

# flannel as on a node of ours (node/manifests/src/flannel.rs), which does not wait for kube-proxy either.
flannel() {
    local image=images.corten.internal/flannel:$(tag flannel)
    cat <<END
apiVersion: v1
kind: ServiceAccount
metadata: {name: flannel, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: flannel}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: flannel, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-flannel-cfg, namespace: kube-system}
data:
  cni-conf.json: |
    {"name": "cbr0", "cniVersion": "1.0.0", "plugins": [
     {"type": "flannel", "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
     {"type": "portmap", "capabilities": {"portMappings": true}}]}
  net-conf.json: |
    {"Network": "10.244.0.0/16", "EnableNFTables": true, "Backend": {"Type": "vxlan"}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kube-flannel, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: flannel}}
  template:
    metadata: {labels: {k8s-app: flannel}}
    spec:
      hostNetwork: true
      priorityClassName: system-node-critical
      serviceAccountName: flannel
      tolerations: [{operator: Exists}]
      initContainers:
      - name: install-config
        image: $image
        command: [cp, -f, /etc/kube-flannel/cni-conf.json, /etc/cni/net.d/10-flannel.conflist]
        volumeMounts: [{name: cni, mountPath: /etc/cni/net.d}, {name: config, mountPath: /etc/kube-flannel}]
      containers:
      - name: kube-flannel
        image: $image
        command: [/opt/bin/flanneld, --ip-masq, --kube-subnet-mgr]
        env:
        - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        - {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
        - {name: KUBERNETES_SERVICE_HOST, value: 10.0.2.15}
        - {name: KUBERNETES_SERVICE_PORT, value: '$PORT'}
        securityContext: {capabilities: {add: [NET_ADMIN, NET_RAW]}}
        volumeMounts: [{name: run, mountPath: /run/flannel}, {name: config, mountPath: /etc/kube-flannel}]
      volumes:
      - {name: run, hostPath: {path: /run/flannel, type: DirectoryOrCreate}}
      - {name: cni, hostPath: {path: /etc/cni/net.d}}
      - {name: config, configMap: {name: kube-flannel-cfg}}
END
}

# Name and PSS of each process, without those of the bench.
memory() {
    local process name value
    for process in /proc/[0-9]*; do
        case ${process#/proc/} in $$ | "$registryd") continue ;; esac
        name=$(cat "$process/comm" 2>/dev/null) || continue
        # A thread of the kernel has no memory; a process may have ended.
        value=$(sed -n 's/^Pss: *\([0-9]*\) kB$/\1/p' "$process/smaps_rollup" 2>/dev/null) || continue
        [ -z "$value" ] || echo "kubeadm: memory $value $name"
    done
}

set -e
dmesg --console-off
mkdir -p "$NODE" "$IMAGES" "$PROGRAMS" "$DATA" /usr/lib/modules /opt/cni/bin /etc/cni/net.d /etc/kubernetes
mount -t squashfs -o ro /dev/vdb "$NODE"
mount -t squashfs -o ro /dev/vdd "$IMAGES"
mount -t squashfs -o ro /dev/vde "$PROGRAMS"
mount -t xfs /dev/vdf "$DATA"
for place in containerd etcd kubelet; do
    mkdir -p "$DATA/$place" "/var/lib/$place"
    mount --bind "$DATA/$place" "/var/lib/$place"
done
mount --bind "$NODE/usr/lib/modules" /usr/lib/modules
mount --bind "$NODE/opt/cni/bin" /opt/cni/bin
"$NODE/usr/bin/registryd" serve --root "$IMAGES" --listen "$REGISTRY" &
registryd=$!

# The command of the kernel command line runs before the default target. A login prompt would take the console.
systemctl mask --quiet --runtime serial-getty@ttyS0.service
systemctl start --no-block multi-user.target
until grep -q '10\.0\.2\.15' /proc/net/fib_trie; do sleep 0.2; done
echo 'nameserver 10.0.2.3' >/etc/resolv.conf
printf '127.0.0.1 localhost\n10.0.2.15 debian\n' >/etc/hosts
# Our kernel loads modules by this program; kmod acts as the program that the kernel names.
ln -sf kmod /usr/bin/init
modprobe --all br_netfilter nf_conntrack
echo 1 >/proc/sys/net/ipv4/ip_forward
mkdir -p /etc/containerd/certs.d/images.corten.internal
echo "[host.'http://$REGISTRY']" >/etc/containerd/certs.d/images.corten.internal/hosts.toml
containerd_config >/etc/containerd/config.toml
kubelet_unit >/etc/systemd/system/kubelet.service
kubeadm_config >/etc/kubernetes/kubeadm.yaml
systemctl daemon-reload
export PATH=$PROGRAMS:$NODE/usr/bin:$PATH
systemd-run --quiet --unit=containerd --property=Delegate=yes --property=KillMode=process --setenv="PATH=$PATH" \
    "$NODE/usr/bin/containerd"
until [ -S /run/containerd/containerd.sock ]; do sleep 0.2; done
# Minimal Debian has fewer tools than kubeadm looks for.
kubeadm init --config /etc/kubernetes/kubeadm.yaml --ignore-preflight-errors=all \
    --skip-phases=upload-certs,show-join-command
flannel | kubectl --kubeconfig /etc/kubernetes/admin.conf apply -f -
base64 /etc/kubernetes/admin.conf | sed 's/^/kubeadm: kubeconfig /'
echo "kubeadm: initialised"
# CoreDNS starts when the node is ready.
until grep -qx coredns /proc/[0-9]*/comm 2>/dev/null; do sleep 5; done
sleep "$IDLE"
memory
df --block-size=1 --output=used / "$DATA" | sed -n 's/^ *\([0-9]\)/kubeadm: disk \1/p'
echo "kubeadm: done"
exit 0
