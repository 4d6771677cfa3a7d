use super::{KEY_TEXT, document, future, future_problems, good, key, problems};
use crate::{MachineType, Mode};

#[test]
fn generated_config_is_read_completely() {
    let document = document(&good());
    let machine = &document.machine;
    assert_eq!(machine.kind, MachineType::ControlPlane);
    assert_eq!(machine.token.expose(), "abcdef.0123456789abcdef");
    let ca = machine.ca.as_ref().unwrap();
    assert!(ca.key.expose().contains("ED25519 PRIVATE KEY"));
    assert!(ca.crt.starts_with("-----BEGIN CERTIFICATE"));
    assert_eq!(machine.cert_sans, ["node.example", "10.0.2.15"]);
    assert_eq!(document.hostname(), Some("cp-1"));
    assert_eq!(
        document.nameservers(),
        ["10.0.2.3".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(document.sysctls()["vm.max_map_count"], "262144");
    assert_eq!(document.cluster.name, "demo");
    assert_eq!(document.source(), good());
    document.validate(Mode::Metal).unwrap();
}

#[test]
fn every_problem_is_reported_at_once_with_line_and_field() {
    let text = good()
        .replace("hostname: 'cp-1'", "hostnam: cp-1")
        .replace("type: controlplane", "type: master")
        .replace("registries: {}", "disks: [{device: /dev/sdb}]")
        .replace("rbac: true", "rbac: maybe")
        .replace("https://10", "ftp://10")
        .replace("- 10.0.2.3", "- 10.0.2.300");
    assert_eq!(
        problems(&text),
        [
            "line 5, column 11: machine.type must be one of controlplane, worker, init",
            "line 12, column 9: unknown field: machine.network.hostnam; did you mean \"hostname\"?",
            "line 14, column 15: machine.network.nameservers[0] must be an IP address",
            "line 18, column 5: not supported yet: machine.disks",
            "line 22, column 15: machine.features.rbac must be true or false",
            "line 28, column 19: cluster.controlPlane.endpoint must be a URL such as https://10.0.0.1:6443",
        ]
    );
}

#[test]
fn empty_fields_pass_and_unsupported_fields_are_refused() {
    let base = good();
    for empty in ["files: []", "files:", "time: {}", "env: null"] {
        assert_eq!(
            problems(&base.replace("registries: {}", empty)),
            Vec::<String>::new()
        );
    }
    let found = problems(&base.replace("registries: {}", "disks: [{device: /dev/sdb}]"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].ends_with("not supported yet: machine.disks"),
        "{found:?}"
    );
    for (file, good) in [
        ("{path: /var/x}", true),
        ("{path: /var/lib/x, op: append}", true),
        ("{path: /etc/x}", false),
        ("{path: /etc/x, op: overwrite}", false),
        ("{path: /variable/x}", false),
        ("{path: /var/./}", false),
    ] {
        let found = problems(&base.replace("registries: {}", &format!("files: [{file}]")));
        let wrong = "machine.files[0].path must be below /var; all else is part of the image";
        assert_eq!(found.is_empty(), good, "{file}: {found:?}");
        assert!(
            found.iter().all(|found| found.ends_with(wrong)),
            "{found:?}"
        );
    }
    for (operation, known) in [("create", false), ("append", true), ("overwrite", true)] {
        let file = format!("files: [{{path: /etc/x, op: {operation}}}]");
        let found = future_problems(&base.replace("registries: {}", &file));
        assert_eq!(found.is_empty(), known, "{operation}: {found:?}");
    }
    let second = format!("{base}---\napiVersion: v1alpha1\nkind: ZswapConfig\nname: x\n");
    assert!(problems(&second)[0].contains("not supported yet: documents of kind ZswapConfig"));
    let later = second.replace("ZswapConfig", "RAIDArrayConfig");
    assert!(problems(&later)[0].contains("not supported yet: documents of kind RAIDArrayConfig"));
    let unknown = second.replace("ZswapConfig", "ZswapsConfig");
    assert!(
        problems(&unknown)[0]
            .ends_with("unknown kind: ZswapsConfig; did you mean \"ZswapConfig\"?")
    );
}

#[test]
fn missing_fields_and_sections_are_reported_by_name() {
    assert_eq!(
        problems("version: v1alpha1\nmachine: {token: x}\n"),
        [
            "line 1, column 1: cluster is required",
            "line 2, column 10: machine.type is required",
        ]
    );
    let worker = good().replace("type: controlplane", "type: worker");
    assert_eq!(
        problems(&worker),
        ["line 8, column 9: machine.ca must not have a key on a worker"]
    );
    let none = good().replace(
        "    ca:\n",
        "    acceptedCAs: []\n    ca: {}\n    x-dropped:\n",
    );
    assert!(
        problems(&none)
            .iter()
            .any(|p| p.contains("machine.ca must have crt and key on a control plane node")),
        "{:?}",
        problems(&none)
    );
}

#[test]
fn problem_in_a_document_names_the_document() {
    let link = "---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nmtu: many\n";
    let found = problems(&format!("{}{link}", good()));
    let [problem] = found.as_slice() else {
        panic!("{found:?}");
    };
    assert!(problem.contains(": LinkConfig eth0: mtu "), "{problem}");
}

#[test]
fn documents_are_read_beside_the_v1alpha1_fields() {
    let plain = good().replace(
        "        hostname: 'cp-1'\n        nameservers:\n            - 10.0.2.3\n",
        "        hostname:\n",
    );
    let text = format!(
        "{plain}---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n\
         ---\napiVersion: v1alpha1\nkind: ResolverConfig\nnameservers: [{{address: 'fd00::1'}}]\n\
         ---\napiVersion: v1alpha1\nkind: SysctlConfig\nparams: {{kernel.pid_max: 99999}}\n\
         ---\napiVersion: v1alpha1\nkind: UdevRulesConfig\nrules: ['KERNEL==\"a\"', '# b']\n"
    );
    let document = document(&text);
    assert_eq!(document.hostname(), Some("other"));
    assert_eq!(document.nameservers()[0].to_string(), "fd00::1");
    assert_eq!(document.sysctls()["kernel.pid_max"], "99999");
    assert_eq!(document.sysctls()["net.ipv4.ip_forward"], "1");
    let rules: Vec<&str> = document.udev_rules().collect();
    assert_eq!(rules, ["KERNEL==\"a\"", "# b"]);

    let stable = text.replace("hostname: other", "auto: stable");
    assert_eq!(super::document(&stable).hostname(), None);
    // A patch sets a host name like this in a config generated with `auto: stable`.
    let named = text.replace("hostname: other", "auto: off\nhostname: other");
    assert_eq!(super::document(&named).hostname(), Some("other"));
    let problem = "HostnameConfig: auto must be stable, or off beside hostname: other values are not supported yet";
    for auto in ["auto: off", "auto: talos-addr"] {
        let unknown = text.replace("hostname: other", auto);
        assert!(problems(&unknown)[0].contains(problem), "{auto}");
    }
    let both = text.replace("hostname: other", "auto: stable\nhostname: other");
    assert!(problems(&both)[0].contains("auto excludes hostname"));

    // A setting in two places would hide one of them.
    let twice = text.replace(
        "        hostname:\n",
        "        hostname: a\n        nameservers: [10.0.0.1]\n",
    );
    let found = problems(&twice);
    assert!(
        found
            .iter()
            .any(|p| p.contains("HostnameConfig excludes machine.network.hostname (line 12)")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|p| p.contains("ResolverConfig.nameservers excludes machine.network.nameservers")),
        "{found:?}"
    );
    let same = text.replace("kernel.pid_max", "net/ipv4/ip_forward");
    assert!(
        problems(&same)[0].contains("the sysctl net/ipv4/ip_forward is set twice"),
        "{:?}",
        problems(&same)
    );
}

#[test]
fn switching_protection_off_is_refused() {
    for (from, to) in [
        ("rbac: true", "rbac: false"),
        ("persist: true", "persist: false"),
    ] {
        assert_eq!(problems(&good().replace(from, to)).len(), 1, "{to}");
    }
    let outside = good().replace("net.ipv4.ip_forward", "../../etc/x");
    assert!(problems(&outside)[0].contains("machine.sysctls has an invalid name"));
}

#[test]
fn values_of_the_variables_of_static_pods_are_never_shown() {
    let pods = "machine:\n    pods:\n    - kind: Pod\n      metadata: {name: own}\n      spec:\n        containers:\n        - name: a\n          \
                env: [{name: TOKEN, value: hunter2}, {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]\n";
    let text = good().replacen("machine:\n", pods, 1);
    let redacted = document(&text).redacted();
    assert!(!redacted.contains("hunter2"), "{redacted}");
    for shown in ["name: TOKEN", "fieldPath: spec.nodeName", "name: own"] {
        assert!(redacted.contains(shown), "{shown}: {redacted}");
    }
}

#[test]
fn secrets_are_never_shown() {
    let document = document(&good());
    let debug = format!("{document:?} {:?} {:?}", document.machine, document.cluster);
    let redacted = document.redacted();
    for secret in ["0123456789abcdef", KEY_TEXT, &key(), "cluster-secret-value"] {
        assert!(!debug.contains(secret), "{debug}");
        assert!(!redacted.contains(secret), "{redacted}");
    }
    // The rest is still the same document.
    assert!(redacted.contains("hostname: cp-1\n"), "{redacted}");
    assert!(
        redacted.contains("endpoint: https://10.0.2.15:6443\n"),
        "{redacted}"
    );
    let mut notes = corten_yaml::problem::Notes::default();
    let again = corten_yaml::tree::read(&redacted, &mut notes);
    assert!(notes.is_empty() && again.len() == 1);
    // Problems quote no values either.
    let broken = good()
        .replace("type: controlplane", "type: worker")
        .replace(&key(), "hunter2");
    let all = problems(&broken).join("\n");
    assert!(
        !all.contains("hunter2") && all.contains("machine.ca.key"),
        "{all}"
    );
}

#[test]
fn secrets_in_maps_files_and_urls_are_hidden_too() {
    let text = good().replace(
        "    registries: {}\n",
        "    env: {https_proxy: 'http://u:hunter2@proxy:3128'}
    files: [{path: /var/x, content: hunter2}]
    registries:
        config: {ghcr.io: {auth: {username: me, password: hunter2}}}
    network:
        interfaces: [{interface: wg0, wireguard: {privateKey: aHVudGVyMmh1bnRlcjJodW50ZXIyaHVudGVyMmh1bnQ=}}]
",
    );
    let text = text.replacen(
        "    network:\n        hostname: 'cp-1'\n        nameservers:\n            - 10.0.2.3\n",
        "",
        1,
    );
    let text = text.replace(
        "    clusterName: demo\n",
        "    clusterName: demo\n    extraManifests: ['https://u:hunter2@mirror:514/x']\n",
    );
    let redacted = future(&text).redacted();
    assert!(
        !redacted.contains("hunter2") && !redacted.contains("aHVudGVy"),
        "{redacted}"
    );
    assert!(redacted.contains("https_proxy: \"******\""), "{redacted}");
    assert!(
        redacted.contains("https://******@mirror:514/x"),
        "{redacted}"
    );
}

#[test]
fn log_destinations_are_plain_tcp_or_udp_addresses() {
    let with = |endpoint: &str| {
        let logging = format!(
            "logging: {{destinations: [{{endpoint: '{endpoint}', format: json_lines, extraTags: {{rack: a}}}}]}}"
        );
        problems(&good().replace("registries: {}", &logging))
    };
    for endpoint in [
        "tcp://10.0.0.1:514",
        "udp://[fd00::1]:5140",
        "tcp://logs.example:1/",
    ] {
        assert_eq!(with(endpoint), Vec::<String>::new());
    }
    for endpoint in [
        "tls://a:1",
        "tcp://a",
        "tcp://a:0",
        "tcp://u:p@a:1",
        "tcp://a:1/x",
        "udp://fd00::1:1",
    ] {
        let found = with(endpoint);
        let expected =
            "machine.logging.destinations[0].endpoint must be tcp://host:port or udp://host:port";
        assert!(
            found.len() == 1 && found[0].ends_with(expected),
            "{endpoint}: {found:?}"
        );
    }
}

#[test]
fn v1alpha1_network_fields_are_validated() {
    let with = |interface: &str| {
        let text = good().replace(
            "        nameservers:\n            - 10.0.2.3\n",
            &format!("        interfaces:\n            - {interface}\n"),
        );
        future_problems(&text)
    };
    assert_eq!(
        with("{interface: eth0, dhcp: true, vlans: [{vlanId: 5}]}"),
        Vec::<String>::new()
    );
    for (bad, why) in [
        ("{dhcp: true}", "needs either interface or deviceSelector"),
        (
            "{interface: eth0, deviceSelector: {driver: x}}",
            "needs either",
        ),
        (
            "{interface: eth0, vlans: [{vlanId: 4095}]}",
            "vlans[0].vlanId must be from 1 to 4094",
        ),
        (
            "{interface: eth0, addresses: [10.0.0.1]}",
            "addresses[0] must be an address and prefix",
        ),
        (
            "{interface: averylonginterface}",
            "must be the name of a network link",
        ),
        (
            "{interface: b, bond: {mode: fast}}",
            "bond.mode must be one of balance-rr",
        ),
    ] {
        let found = with(bad);
        assert!(found.iter().any(|p| p.contains(why)), "{bad}: {found:?}");
    }
}

#[test]
fn config_of_existing_clients_is_accepted() {
    let (crt, key) = (super::crt(), key());
    let pair = format!("{{crt: {crt}, key: {key}}}");
    let text = format!(
        "version: v1alpha1
debug: false
persist: true
machine:
    type: controlplane
    token: abcdef.0123456789abcdef
    ca: {pair}
    certSANs: []
    kubelet: {{image: 'ghcr.io/siderolabs/kubelet:v1.36.0', defaultRuntimeSeccompProfileEnabled: true, disableManifestsDirectory: true}}
    network: {{}}
    install: {{disk: /dev/sda, image: 'ghcr.io/siderolabs/installer:v1.14.0', wipe: false, grubUseUKICmdline: true}}
    registries: {{}}
    features:
        diskQuotaSupport: true
        kubePrism: {{enabled: true, port: 7445}}
        hostDNS: {{enabled: true, forwardKubeDNSToHost: true}}
    nodeLabels:
        node.kubernetes.io/exclude-from-external-load-balancers: \"\"
cluster:
    id: aWQ=
    secret: c2VjcmV0
    controlPlane: {{endpoint: 'https://10.0.0.1:6443'}}
    clusterName: demo
    network: {{dnsDomain: cluster.local, podSubnets: [10.244.0.0/16], serviceSubnets: [10.96.0.0/12]}}
    token: abcdef.0123456789abcdef
    secretboxEncryptionSecret: c2VjcmV0
    ca: {pair}
    aggregatorCA: {pair}
    serviceAccount: {{key: {key}}}
    apiServer:
        image: registry.k8s.io/kube-apiserver:v1.36.0
        certSANs: [10.0.0.1]
        admissionControl:
            - name: PodSecurity
              configuration: {{apiVersion: pod-security.admission.config.k8s.io/v1alpha1, exemptions: {{namespaces: [kube-system]}}}}
        auditPolicy: {{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{{level: Metadata}}]}}
    controllerManager: {{image: registry.k8s.io/kube-controller-manager:v1.36.0}}
    proxy: {{image: registry.k8s.io/kube-proxy:v1.36.0}}
    scheduler: {{image: registry.k8s.io/kube-scheduler:v1.36.0}}
    discovery: {{enabled: true, registries: {{kubernetes: {{disabled: true}}, service: {{}}}}}}
    etcd: {{ca: {pair}}}
    extraManifests: []
    inlineManifests: []
---
apiVersion: v1alpha1
kind: HostnameConfig
auto: stable
"
    );
    assert_eq!(problems(&text), Vec::<String>::new());
}
