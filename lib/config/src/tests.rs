use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use crate::{Document, MachineType, Mode};

const KEY_TEXT: &str = "c2VjcmV0LWtleS1ib2R5";

fn crt() -> String {
    STANDARD.encode("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
}

fn key() -> String {
    let pem = format!(
        "-----BEGIN ED25519 PRIVATE KEY-----\n{KEY_TEXT}\n-----END ED25519 PRIVATE KEY-----\n"
    );
    STANDARD.encode(pem)
}

fn good() -> String {
    format!(
        "version: v1alpha1
debug: false
persist: true
machine:
    type: controlplane
    token: abcdef.0123456789abcdef
    ca:
        crt: {}
        key: {}
    certSANs: [node.example, 10.0.2.15]
    network:
        hostname: 'cp-1'
        nameservers:
            - 10.0.2.3
    sysctls:
        net.ipv4.ip_forward: \"1\"
        vm.max_map_count: 262144
    registries: {{}}
    install:
        disk: /dev/vda
    features:
        rbac: true
        kubePrism: {{enabled: true, port: 7445}}
cluster:
    id: aaaa
    secret: cluster-secret-value
    controlPlane:
        endpoint: https://10.0.2.15:6443
    clusterName: demo
",
        crt(),
        key()
    )
}

fn problems(text: &str) -> Vec<String> {
    match Document::parse(text.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn a_generated_config_is_read() {
    let document = Document::parse(good().as_bytes()).unwrap();
    let machine = &document.machine;
    assert_eq!(machine.kind, MachineType::ControlPlane);
    assert_eq!(machine.token.expose(), "abcdef.0123456789abcdef");
    assert!(
        machine
            .ca
            .as_ref()
            .unwrap()
            .key
            .expose()
            .contains("ED25519 PRIVATE KEY")
    );
    assert_eq!(machine.cert_sans, ["node.example", "10.0.2.15"]);
    assert_eq!(machine.hostname.as_deref(), Some("cp-1"));
    assert_eq!(
        machine.nameservers,
        ["10.0.2.3".parse::<std::net::IpAddr>().unwrap()]
    );
    assert_eq!(machine.sysctls["vm.max_map_count"], "262144");
    assert_eq!(document.cluster.name, "demo");
    assert_eq!(document.source(), good());
    document.validate(Mode::Metal).unwrap();
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let text = good()
        .replace("hostname: 'cp-1'", "hostnam: cp-1")
        .replace("type: controlplane", "type: master")
        .replace("registries: {}", "files: [{path: /x}]")
        .replace("rbac: true", "rbac: maybe")
        .replace("https://10", "ftp://10");
    let found = problems(&text);
    assert_eq!(
        found,
        [
            "line 5, column 11: machine.type must be controlplane or worker",
            "line 6, column 5: machine.ca.key must not be given to a worker",
        ]
        .iter()
        .filter(|p| p.contains("machine.type"))
        .map(|p| (*p).to_owned())
        .chain([
            "line 8, column 9: machine.ca.key must not be given to a worker".to_owned(),
            "line 12, column 9: unknown field: machine.network.hostnam; did you mean \"hostname\"?"
                .to_owned(),
            "line 18, column 5: not supported yet: machine.files".to_owned(),
            "line 22, column 15: machine.features.rbac must be true or false".to_owned(),
            "line 28, column 19: cluster.controlPlane.endpoint must be a URL such as https://10.0.0.1:6443"
                .to_owned(),
        ])
        .collect::<Vec<_>>()
    );
}

#[test]
fn what_asks_for_nothing_passes_and_what_we_cannot_do_does_not() {
    let base = good();
    for empty in ["files: []", "files:", "time: {}", "env: null"] {
        assert_eq!(
            problems(&base.replace("registries: {}", empty)),
            Vec::<String>::new()
        );
    }
    for (field, path) in [
        ("time: {servers: [a]}", "machine.time"),
        ("disks: [{device: /dev/sdb}]", "machine.disks"),
        ("kubelet: {extraArgs: {v: 4}}", "machine.kubelet.extraArgs"),
    ] {
        let found = problems(&base.replace("registries: {}", field));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].ends_with(&format!("not supported yet: {path}")),
            "{found:?}"
        );
    }
    let second = format!("{base}---\napiVersion: v1alpha1\nkind: UserVolumeConfig\nname: x\n");
    assert!(problems(&second)[0].contains("documents of kind UserVolumeConfig"));
}

#[test]
fn a_hostname_document_wins() {
    let text = format!(
        "{}---\napiVersion: v1alpha1\nkind: HostnameConfig\nhostname: other\n",
        good()
    );
    let document = Document::parse(text.as_bytes()).unwrap();
    assert_eq!(document.machine.hostname.as_deref(), Some("other"));
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
    assert!(problems(&outside)[0].contains("not the name of a sysctl"));
}

#[test]
fn nothing_secret_is_shown() {
    let document = Document::parse(good().as_bytes()).unwrap();
    let debug = format!("{document:?}");
    let redacted = document.redacted();
    for secret in ["0123456789abcdef", KEY_TEXT, &key(), "cluster-secret-value"] {
        assert!(!debug.contains(secret), "{debug}");
        assert!(!redacted.contains(secret), "{redacted}");
    }
    // What is left is still the same document.
    assert!(redacted.contains("hostname: \"cp-1\"\n"), "{redacted}");
    assert!(
        redacted.contains("endpoint: https://10.0.2.15:6443\n"),
        "{redacted}"
    );
    let mut notes = crate::problem::Notes::default();
    let again = crate::tree::read(&redacted, &mut notes);
    assert!(notes.0.is_empty() && again.len() == 1, "{:?}", notes.0);
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
fn syntax_errors_bombs_and_depth_are_errors_with_a_place() {
    assert!(problems("machine: [").first().unwrap().starts_with("line "));
    assert_eq!(problems(""), ["the config is empty"]);
    assert_eq!(problems("# only a comment\n"), ["the config is empty"]);
    assert!(
        problems("a: 1\na: 2\n")
            .iter()
            .any(|p| p.contains("stands twice"))
    );
    let deep = "[".repeat(100) + &"]".repeat(100);
    assert!(
        problems(&deep).iter().any(|p| p.contains("deep")),
        "{:?}",
        problems(&deep)
    );
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let previous = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
    }
    assert!(
        problems(&bomb).iter().any(|p| p.contains("more than")),
        "{:?}",
        problems(&bomb)
    );
    assert!(Document::parse(&[0xff, 0xfe]).is_err_and(|p| p.to_string().contains("UTF-8")));
}

proptest! {
    #[test]
    fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Document::parse(&bytes);
    }

    #[test]
    fn hostile_yaml_never_panics(text in "[a-z:{}\\[\\]&*!|>'\"#\\-\n ,%@?]{0,200}") {
        let _ = Document::parse(text.as_bytes());
    }

    #[test]
    fn a_damaged_config_never_panics(at in 0usize..900, with in any::<u8>()) {
        let mut bytes = good().into_bytes();
        let at = at % bytes.len();
        bytes[at] = with;
        if let Ok(document) = Document::parse(&bytes) {
            let _ = document.redacted();
        }
    }
}
