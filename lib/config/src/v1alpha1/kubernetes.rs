//! The kubelet and the parts of the control plane. What is only known by name
//! is read when the node runs Kubernetes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::read::section;
use crate::values::{AbsolutePath, Cidr, KeyPair, Object};

section! {
    /// `machine.kubelet`.
    pub struct Kubelet {
        Held "image" image: Option<String> = "Its image";
        Held "clusterDNS" cluster_dns: Vec<IpAddr> = "Name servers of pods";
        Later "extraArgs" extra_args: Option<Object> = "Arguments";
        Later "extraMounts" extra_mounts: Vec<Object> = "Mounts";
        Later "extraConfig" extra_config: Option<Object> = "KubeletConfiguration fields";
        Later "credentialProviderConfig" credential_provider_config: Option<Object> = "Image credentials", secret;
        Held "defaultRuntimeSeccompProfileEnabled" default_runtime_seccomp_profile_enabled: Option<bool> = "Pods run under the runtime's seccomp profile";
        Later "registerWithFQDN" register_with_fqdn: Option<bool> = "The node's full name in Kubernetes";
        Later "nodeIP" node_ip: Option<Object> = "Which address the node has in Kubernetes";
        Later "skipNodeRegistration" skip_node_registration: Option<bool> = "Run pods without a cluster";
        Held "disableManifestsDirectory" disable_manifests_directory: Option<bool> = "No static pods from files";
    }
}

section! {
    /// `cluster.apiServer`.
    pub struct ApiServer {
        Held "image" image: Option<String> = "Its image";
        Later "extraArgs" extra_args: Option<Object> = "Arguments";
        Later "extraVolumes" extra_volumes: Vec<VolumeMount> = "Mounts";
        Later "env" env: BTreeMap<String, String> = "Variables", secret;
        Held "certSANs" cert_sans: Vec<String> = "Further names of its certificate";
        Held "disablePodSecurityPolicy" disable_pod_security_policy: Option<bool> = "No effect any more";
        Held "admissionControl" admission_control: Vec<AdmissionPlugin> = "Admission plugins", by(&["name"]);
        Held "auditPolicy" audit_policy: Option<Object> = "What is audited", replace;
        Later "resources" resources: Option<Object> = "Requests and limits";
        Later "authorizationConfig" authorization_config: Vec<Object> = "Authorizers", by(&["name"]);
    }
}

section! {
    /// An admission plugin.
    pub struct AdmissionPlugin {
        Held "name" name: String = "Its name", required;
        Held "configuration" configuration: Option<Object> = "Its configuration";
    }
}

section! {
    /// A folder of the host in a container.
    pub struct VolumeMount {
        Held "hostPath" host_path: AbsolutePath = "On the node", required;
        Held "mountPath" mount_path: AbsolutePath = "In the container", required;
        Held "readonly" readonly: bool = "Not to be written to";
    }
}

section! {
    /// `cluster.controllerManager`.
    pub struct ControllerManager {
        Held "image" image: Option<String> = "Its image";
        Later "extraArgs" extra_args: Option<Object> = "Arguments";
        Later "extraVolumes" extra_volumes: Vec<VolumeMount> = "Mounts";
        Later "env" env: BTreeMap<String, String> = "Variables", secret;
        Later "resources" resources: Option<Object> = "Requests and limits";
    }
}

section! {
    /// `cluster.scheduler`.
    pub struct Scheduler {
        Held "image" image: Option<String> = "Its image";
        Later "extraArgs" extra_args: Option<Object> = "Arguments";
        Later "extraVolumes" extra_volumes: Vec<VolumeMount> = "Mounts";
        Later "env" env: BTreeMap<String, String> = "Variables", secret;
        Later "resources" resources: Option<Object> = "Requests and limits";
        Later "config" config: Option<Object> = "KubeSchedulerConfiguration fields";
    }
}

section! {
    /// `cluster.proxy`.
    pub struct Proxy {
        Held "disabled" disabled: bool = "Leave it out";
        Held "image" image: Option<String> = "Its image";
        Held "mode" mode: Option<String> = "`nftables`, `iptables` or `ipvs`";
        Later "extraArgs" extra_args: Option<Object> = "Arguments";
    }
}

section! {
    /// `cluster.etcd`.
    pub struct Etcd {
        Held "image" image: Option<String> = "Its image";
        Held "ca" ca: Option<KeyPair> = "Its authority";
        Later "extraArgs" extra_args: Option<Object> = "Arguments";
        Later "subnet" subnet: Option<Cidr> = "Where its address is from, in the old form";
        Later "advertisedSubnets" advertised_subnets: Vec<String> = "Where the address others use is from";
        Later "listenSubnets" listen_subnets: Vec<String> = "Where the addresses it listens on are from";
    }
}
