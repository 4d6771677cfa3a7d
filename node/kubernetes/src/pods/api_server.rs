//! kube-apiserver.

use super::{AUDIT_LOG, Part, config, flag, probes, secret};
use crate::etcd::CLIENT_PORT;
use crate::{ControlPlane, Settings};

const NAME: &str = "kube-apiserver";

pub(super) fn container(settings: &Settings, control_plane: &ControlPlane) -> Part {
    let port = settings.api_port;
    let key = secret(NAME, "service-account.key");
    let mut flags = vec![
        flag(
            "admission-control-config-file",
            config(NAME, "admission-control-config.yaml"),
        ),
        flag("advertise-address", "$(POD_IP)"),
        flag("allow-privileged", "true"),
        flag("api-audiences", &settings.endpoint),
        flag("audit-log-maxage", "30"),
        flag("audit-log-maxbackup", "10"),
        flag("audit-log-maxsize", "100"),
        flag("audit-log-path", format!("{AUDIT_LOG}/kube-apiserver.log")),
        flag("audit-policy-file", config(NAME, "auditpolicy.yaml")),
        flag(
            "authentication-config",
            config(NAME, "authentication-config.yaml"),
        ),
        flag(
            "authorization-config",
            config(NAME, "authorization-config.yaml"),
        ),
        flag("bind-address", bind(settings)),
        flag("client-ca-file", secret(NAME, "ca.crt")),
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("enable-bootstrap-token-auth", "true"),
        flag(
            "encryption-provider-config",
            secret(NAME, "encryptionconfig.yaml"),
        ),
        flag("etcd-cafile", secret(NAME, "etcd-client-ca.crt")),
        flag("etcd-certfile", secret(NAME, "etcd-client.crt")),
        flag("etcd-keyfile", secret(NAME, "etcd-client.key")),
        flag("etcd-servers", format!("https://127.0.0.1:{CLIENT_PORT}")),
        flag(
            "kubelet-client-certificate",
            secret(NAME, "apiserver-kubelet-client.crt"),
        ),
        flag(
            "kubelet-client-key",
            secret(NAME, "apiserver-kubelet-client.key"),
        ),
        flag(
            "kubelet-preferred-address-types",
            "InternalIP,ExternalIP,Hostname",
        ),
        flag("profiling", "false"),
        flag(
            "proxy-client-cert-file",
            secret(NAME, "front-proxy-client.crt"),
        ),
        flag(
            "proxy-client-key-file",
            secret(NAME, "front-proxy-client.key"),
        ),
        flag("requestheader-allowed-names", "front-proxy-client"),
        flag(
            "requestheader-client-ca-file",
            secret(NAME, "aggregator-ca.crt"),
        ),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-username-headers", "X-Remote-User"),
        flag("secure-port", port.to_string()),
        flag("service-account-issuer", &settings.endpoint),
        // It takes the public part out of it.
        flag("service-account-key-file", &key),
        flag("service-account-signing-key-file", &key),
        flag(
            "service-cluster-ip-range",
            Settings::joined(&settings.services),
        ),
        flag("tls-cert-file", secret(NAME, "apiserver.crt")),
        flag("tls-min-version", "VersionTLS13"),
        flag("tls-private-key-file", secret(NAME, "apiserver.key")),
    ];
    flags.sort();
    Part {
        name: NAME,
        image: control_plane.images.api_server.clone(),
        flags,
        requests: (200, 512),
        capabilities: &["NET_BIND_SERVICE"],
        probes: probes(port, "/livez", Some("/readyz")),
        directories: vec![("audit", AUDIT_LOG, true)],
    }
}

/// Every address, of both families where services have an IPv6 one.
fn bind(settings: &Settings) -> &'static str {
    let has_v6 = settings
        .services
        .iter()
        .any(|network| network.address.is_ipv6());
    if has_v6 { "::" } else { "0.0.0.0" }
}
