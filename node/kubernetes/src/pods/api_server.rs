//! Static pod of kube-apiserver.

use corten_values::Arguments;

use super::{AUDIT_LOG, Part, connections, flag, probes};
use crate::etcd::CLIENT_PORT;
use crate::extra::Flags;
use crate::files::{ACCEPTED_KEYS, config, secret};
use crate::{ControlPlane, Settings};

const NAME: &str = "kube-apiserver";
/// Directory of the CAs that the node trusts, for servers that kube-apiserver calls.
const TRUSTED_ROOTS: &str = "/etc/ssl/certs";

/// Flags with paths of secret files.
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
/// Flags with paths of configuration files.
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
        flag("allow-privileged", "true"),
        flag("api-audiences", control_plane.trust.audiences.join(",")),
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
        // kube-apiserver derives the public key from the private one.
        flag("service-account-key-file", &key),
        flag("service-account-signing-key-file", &key),
        flag(
            "service-cluster-ip-range",
            Settings::joined(&settings.services),
        ),
        flag("tls-min-version", "VersionTLS13"),
    ];
    if control_plane.advertises {
        flags.push(flag("advertise-address", "$(POD_IP)"));
    }
    let issuers = control_plane.trust.issuers.iter();
    flags.extend(issuers.map(|issuer| flag("service-account-issuer", issuer)));
    // kube-apiserver does not start with an empty file.
    if !control_plane.trust.keys.is_empty() {
        flags.push(flag(
            "service-account-key-file",
            secret(NAME, ACCEPTED_KEYS),
        ));
    }
    let secrets = SECRETS.iter();
    flags.extend(secrets.map(|(name, file)| flag(name, secret(NAME, file))));
    let configs = CONFIG.iter();
    flags.extend(configs.map(|(name, file)| flag(name, config(NAME, file))));
    let args = &control_plane.api_server.args;
    let has_health = own_authentication(&mut flags, args);
    let own_port = args.0.get("secure-port").and_then(|values| values.last());
    let port = own_port.and_then(|port| port.parse().ok()).unwrap_or(port);
    let probes = match (control_plane.has_probes, has_health) {
        (false, _) => Vec::new(),
        (true, true) => probes(port, "/livez", Some("/readyz")),
        // Without anonymous access, the kubelet's HTTP probes fail; a TCP probe still shows that the server listens.
        (true, false) => connections(port),
    };
    let mut directories = vec![("audit", AUDIT_LOG, true)];
    if control_plane.trusts_roots {
        directories.push(("ca-roots", TRUSTED_ROOTS, false));
    }
    Part {
        name: NAME,
        image: control_plane.images.api_server.clone(),
        flags,
        added: &[],
        requests: (200, 512),
        capabilities: &["NET_BIND_SERVICE"],
        probes,
        extra: control_plane.api_server.clone(),
        directories,
    }
}

/// Removes configuration files that kube-apiserver rejects together with equivalent arguments of the config. Returns
/// whether the health endpoints allow anonymous access.
fn own_authentication(flags: &mut Flags, args: &Arguments) -> bool {
    let gives = |prefixes: &[&str]| {
        let mut names = args.0.keys();
        names.any(|name| prefixes.iter().any(|prefix| name.starts_with(prefix)))
    };
    if gives(&["authorization-mode", "authorization-webhook"]) {
        flags.retain(|(name, _)| name != "authorization-config");
        flags.push(flag("authorization-mode", "Node,RBAC"));
    }
    let replaces = gives(&["anonymous-auth", "authentication-config", "oidc-"]);
    let anonymous = args.0.get("anonymous-auth");
    let is_open = anonymous.is_some_and(|values| values == &["true"]);
    if replaces {
        flags.retain(|(name, _)| name != "authentication-config");
        flags.push(flag("anonymous-auth", "false"));
    }
    // Whether a file of the config allows it is not known.
    let has_file = gives(&["authentication-config"]);
    !(replaces || has_file) || is_open
}

/// Address to listen on: both families if the services have an IPv6 subnet.
fn bind(settings: &Settings) -> &'static str {
    let has_v6 = settings
        .services
        .iter()
        .any(|network| network.address.is_ipv6());
    if has_v6 { "::" } else { "0.0.0.0" }
}
