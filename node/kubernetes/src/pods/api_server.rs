//! kube-apiserver.

use super::{AUDIT_LOG, Part, config, flag, probes, secret};
use crate::etcd::CLIENT_PORT;
use crate::{ControlPlane, Settings};

const NAME: &str = "kube-apiserver";

/// Flags that name files of its secrets.
const SECRETS: &[(&str, &str)] = &[
    ("client-ca-file", "ca.crt"),
    ("encryption-provider-config", "encryptionconfig.yaml"),
    ("etcd-cafile", "etcd-client-ca.crt"),
    ("etcd-certfile", "etcd-client.crt"),
    ("etcd-keyfile", "etcd-client.key"),
    ("kubelet-client-certificate", "apiserver-kubelet-client.crt"),
    ("kubelet-client-key", "apiserver-kubelet-client.key"),
    ("proxy-client-cert-file", "front-proxy-client.crt"),
    ("proxy-client-key-file", "front-proxy-client.key"),
    ("requestheader-client-ca-file", "aggregator-ca.crt"),
    ("tls-cert-file", "apiserver.crt"),
    ("tls-private-key-file", "apiserver.key"),
];
/// Flags that name files of its configuration.
const CONFIG: &[(&str, &str)] = &[
    (
        "admission-control-config-file",
        "admission-control-config.yaml",
    ),
    ("audit-policy-file", "auditpolicy.yaml"),
    ("authentication-config", "authentication-config.yaml"),
    ("authorization-config", "authorization-config.yaml"),
];

pub(super) fn container(settings: &Settings, control_plane: &ControlPlane) -> Part {
    let port = settings.api_port;
    let key = secret(NAME, "service-account.key");
    let mut flags = vec![
        flag("advertise-address", "$(POD_IP)"),
        flag("allow-privileged", "true"),
        flag("api-audiences", &settings.endpoint),
        flag("audit-log-maxage", "30"),
        flag("audit-log-maxbackup", "10"),
        flag("audit-log-maxsize", "100"),
        flag("audit-log-path", format!("{AUDIT_LOG}/kube-apiserver.log")),
        flag("bind-address", bind(settings)),
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("enable-bootstrap-token-auth", "true"),
        flag("etcd-servers", format!("https://127.0.0.1:{CLIENT_PORT}")),
        flag(
            "kubelet-preferred-address-types",
            "InternalIP,ExternalIP,Hostname",
        ),
        flag("profiling", "false"),
        flag("requestheader-allowed-names", "front-proxy-client"),
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
        flag("tls-min-version", "VersionTLS13"),
    ];
    let secrets = SECRETS.iter();
    flags.extend(secrets.map(|(name, file)| flag(name, secret(NAME, file))));
    let configs = CONFIG.iter();
    flags.extend(configs.map(|(name, file)| flag(name, config(NAME, file))));
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
