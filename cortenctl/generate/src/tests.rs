use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use std::path::Path;

use corten_config::{Document, MachineType, Mode};
use corten_pki::{Ca, certificates_from_pem, fingerprint, verify_client};

use super::*;

pub(crate) fn args(directory: &Path) -> GenConfig {
    GenConfig {
        cluster: "demo".into(),
        endpoint: "https://10.0.0.1:6443".into(),
        output: None,
        output_dir: Some(directory.into()),
        output_types: vec![
            OutputType::ControlPlane,
            OutputType::Worker,
            OutputType::ClientConfig,
        ],
        additional_sans: vec!["127.0.0.1".into(), "node.example".into(), "10.0.0.1".into()],
        install_disk: "/dev/vda".into(),
        install_image: None,
        kubernetes_version: None,
        kubernetes_images: KubernetesImages::Upstream,
        talos_version: None,
        form: "v1alpha1".into(),
        with_cluster_discovery: None,
        registry_mirror: Vec::new(),
        dns_domain: "cluster.local".into(),
        config_patch: Vec::new(),
        config_patch_control_plane: Vec::new(),
        config_patch_worker: Vec::new(),
        with_secrets: None,
        force: false,
    }
}

fn message(failure: Failure) -> String {
    match failure {
        Failure::Usage(text) => text,
        Failure::Call(error) => format!("{error:#}"),
        Failure::Told => String::new(),
    }
}

#[test]
fn generated_files_are_read_by_a_node_and_a_client() {
    let directory = tempfile::tempdir().unwrap();
    config(&args(directory.path())).unwrap();
    let read = |name: &str| {
        let path = directory.path().join(name);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
        fs::read_to_string(path).unwrap()
    };

    let controlplane = Document::parse(read("controlplane.yaml").as_bytes()).unwrap();
    controlplane.validate(Mode::Metal).unwrap();
    let machine = &controlplane.machine;
    assert_eq!(machine.kind, MachineType::ControlPlane);
    assert_eq!(machine.cert_sans, ["10.0.0.1", "127.0.0.1", "node.example"]);
    assert_eq!(machine.install.disk.as_deref(), Some("/dev/vda"));
    assert_eq!(controlplane.cluster.name, "demo");
    assert_eq!(
        &*controlplane.cluster.control_plane.endpoint,
        "https://10.0.0.1:6443"
    );

    let worker = Document::parse(read("worker.yaml").as_bytes()).unwrap();
    worker.validate(Mode::Metal).unwrap();
    assert_eq!(worker.machine.kind, MachineType::Worker);
    assert_eq!(worker.machine.token.expose(), machine.token.expose());

    // Both have the same CA, and only the control plane has its key.
    let ca = machine.ca.clone().unwrap();
    let workers = worker.machine.ca.unwrap();
    assert_eq!(workers.crt, ca.crt);
    assert_eq!(workers.key.expose(), "");
    Ca::from_pem(&ca.crt, ca.key.expose()).unwrap();

    // The client config opens nodes of that CA as admin.
    let client = ClientConfig::parse(&read("cortenconfig")).unwrap();
    let context = client.select(None).unwrap();
    assert_eq!(client.context, "demo");
    assert_eq!(context.endpoints, ["10.0.0.1"]);
    let identity = context.identity().unwrap();
    assert_eq!(identity.ca, *ca.crt);
    let chain = certificates_from_pem(identity.crt.as_bytes()).unwrap();
    let cas = certificates_from_pem(ca.crt.as_bytes()).unwrap();
    let roles = verify_client(&chain, &cas, SystemTime::now()).unwrap();
    assert_eq!(roles, ["os:admin"]);
    corten_client::tls::mutual(&identity, SystemTime::now()).unwrap();
}

#[test]
fn existing_secrets_are_never_overwritten_without_force() {
    let directory = tempfile::tempdir().unwrap();
    config(&args(directory.path())).unwrap();
    let path = directory.path().join("controlplane.yaml");
    let first = fs::read_to_string(&path).unwrap();
    let refusal = message(config(&args(directory.path())).unwrap_err());
    assert!(
        refusal.contains("controlplane.yaml exists") && refusal.contains("--force"),
        "{refusal}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), first);

    // Another run makes new secrets.
    config(&GenConfig {
        force: true,
        ..args(directory.path())
    })
    .unwrap();
    let second = fs::read_to_string(&path).unwrap();
    let ca_of = |text: &str| {
        let ca = Document::parse(text.as_bytes())
            .unwrap()
            .machine
            .ca
            .unwrap();
        fingerprint(&certificates_from_pem(ca.crt.as_bytes()).unwrap()[0]).unwrap()
    };
    assert_ne!(ca_of(&first), ca_of(&second));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
}

/// Checks that each case is refused with a sentence, and that nothing is written.
fn refused<const N: usize>(target: &Path, cases: [(GenConfig, &str); N]) {
    for (args, expected) in cases {
        let text = message(config(&args).unwrap_err());
        assert!(text.contains(expected), "{text}");
        assert!(!target.exists());
    }
}

#[test]
fn flags_that_a_node_cannot_honour_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("new");
    let cases: [(GenConfig, &str); 6] = [
        (
            GenConfig {
                kubernetes_version: Some("latest".into()),
                ..args(&target)
            },
            "--kubernetes-version",
        ),
        (
            GenConfig {
                talos_version: Some("v1.4".into()),
                ..args(&target)
            },
            "--talos-version",
        ),
        (
            GenConfig {
                form: "v2".into(),
                ..args(&target)
            },
            "--version",
        ),
        (
            GenConfig {
                registry_mirror: vec!["https://mirror.example".into()],
                ..args(&target)
            },
            "--registry-mirror",
        ),
        (
            GenConfig {
                output: Some("-".into()),
                output_dir: None,
                ..args(&target)
            },
            "only one file",
        ),
        (
            GenConfig {
                output: Some(directory.path().into()),
                output_dir: None,
                output_types: vec![OutputType::Worker],
                ..args(&target)
            },
            "is a directory",
        ),
    ];
    refused(&target, cases);
}

#[test]
fn wrong_arguments_write_no_files() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("new");
    let cases: [(GenConfig, &str); 4] = [
        (
            GenConfig {
                endpoint: "10.0.0.1".into(),
                ..args(&target)
            },
            "cluster endpoint",
        ),
        (
            GenConfig {
                endpoint: "https://".into(),
                ..args(&target)
            },
            "cluster endpoint",
        ),
        (
            GenConfig {
                cluster: String::new(),
                ..args(&target)
            },
            "name of the cluster is empty",
        ),
        (
            GenConfig {
                additional_sans: vec!["a b".into()],
                ..args(&target)
            },
            "--additional-sans",
        ),
    ];
    refused(&target, cases);
}

#[test]
fn flags_for_images_versions_and_discovery_reach_the_configs() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("one");
    let said = GenConfig {
        install_image: Some("registry.example/installer:2".into()),
        kubernetes_version: Some("v1.34.1".into()),
        talos_version: Some("v1.14".into()),
        with_cluster_discovery: Some(false),
        registry_mirror: [
            "docker.io=https://one",
            "*=http://any",
            "docker.io=https://two",
        ]
        .map(str::to_owned)
        .into(),
        ..args(&target)
    };
    config(&said).unwrap();
    for name in ["controlplane.yaml", "worker.yaml"] {
        let document = Document::parse(&fs::read(target.join(name)).unwrap()).unwrap();
        document.validate(Mode::Metal).unwrap();
        let install = &document.machine.install;
        assert_eq!(
            install.image.as_deref(),
            Some("registry.example/installer:2")
        );
        let kubelet = document.machine.kubelet.image.as_deref();
        assert_eq!(kubelet, Some("ghcr.io/siderolabs/kubelet:v1.34.1"));
        assert_eq!(document.cluster.discovery.enabled, Some(false));
        let mirrors = document.registries().mirrors;
        let urls = |name: &str| -> Vec<String> {
            let endpoints = mirrors[name].endpoints.iter();
            endpoints.map(|mirror| mirror.url.clone()).collect()
        };
        assert_eq!(urls("docker.io"), ["https://one", "https://two"]);
        assert_eq!(urls("*"), ["http://any"]);
        let server = document.cluster.api_server.image.as_deref();
        let expected = "registry.k8s.io/kube-apiserver:v1.34.1";
        assert_eq!(server, (name == "controlplane.yaml").then_some(expected));
    }

    // A single file is written to its path, and no other file is written.
    let alone = directory.path().join("new/alone.yaml");
    let one = GenConfig {
        output: Some(alone.clone()),
        output_dir: None,
        output_types: vec![OutputType::Worker, OutputType::Worker],
        ..args(&target)
    };
    config(&one).unwrap();
    let document = Document::parse(&fs::read(&alone).unwrap()).unwrap();
    assert_eq!(document.machine.kind, MachineType::Worker);
    let mode = fs::metadata(&alone).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(
        fs::read_dir(directory.path().join("new")).unwrap().count(),
        1
    );
    let refusal = message(config(&one).unwrap_err());
    let expected = "alone.yaml exists; name another file with --output, or";
    assert!(refusal.contains(expected), "{refusal}");
    let here = GenConfig {
        output: None,
        output_dir: Some(target),
        ..one
    };
    let refusal = message(config(&here).unwrap_err());
    let expected = "worker.yaml exists; choose another directory with --output-dir, or";
    assert!(refusal.contains(expected), "{refusal}");
}

#[test]
fn secrets_are_lost_only_without_control_plane_config_and_secrets_file() {
    use OutputType::{ClientConfig, ControlPlane, Worker};
    for (output_types, with_secrets, lost) in [
        (vec![Worker], None, true),
        (vec![Worker, ClientConfig], None, true),
        (vec![ClientConfig], Some("secrets.yaml".into()), false),
        (vec![ControlPlane], None, false),
        (vec![Worker, ControlPlane], None, false),
    ] {
        let args = GenConfig {
            output_types,
            with_secrets,
            ..args(Path::new("."))
        };
        assert_eq!(flags::loses_secrets(&args), lost, "{args:?}");
    }
}

#[test]
fn any_name_of_a_cluster_survives_yaml() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["true", "12e3", "a: b #c", "'\"\\", "- x", "ümlaut"] {
        let args = GenConfig {
            cluster: name.into(),
            force: true,
            ..args(directory.path())
        };
        config(&args).unwrap();
        let text = fs::read(directory.path().join("worker.yaml")).unwrap();
        assert_eq!(Document::parse(&text).unwrap().cluster.name, name);
        let text = fs::read_to_string(directory.path().join("cortenconfig")).unwrap();
        assert_eq!(ClientConfig::parse(&text).unwrap().context, name);
    }
}

#[test]
fn secrets_file_generates_the_same_cluster_again() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("secrets.yaml");
    let wanted = GenSecrets {
        output_file: file.clone(),
        from_controlplane_config: None,
        from_kubernetes_pki: None,
        kubernetes_bootstrap_token: None,
        talos_version: None,
        force: false,
    };
    secrets(&wanted).unwrap();
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(message(secrets(&wanted).unwrap_err()).contains("--force"));

    let made = |name: &str| {
        let target = directory.path().join(name);
        let args = GenConfig {
            with_secrets: Some(file.clone()),
            ..args(&target)
        };
        config(&args).unwrap();
        let read = |name: &str| fs::read_to_string(target.join(name)).unwrap();
        (
            read("controlplane.yaml"),
            read("worker.yaml"),
            read("cortenconfig"),
        )
    };
    let (first, second) = (made("a"), made("b"));
    assert_eq!((&first.0, &first.1), (&second.0, &second.1));
    // Only the operator's certificate is new; it opens the same nodes.
    assert_ne!(first.2, second.2);
    let ca_of = |text: &str| {
        let client = ClientConfig::parse(text).unwrap();
        client.select(None).unwrap().identity().unwrap().ca
    };
    assert_eq!(ca_of(&first.2), ca_of(&second.2));

    let damaged = fs::read_to_string(&file)
        .unwrap()
        .replace("trustdinfo", "trustinfo");
    fs::write(&file, damaged).unwrap();
    let args = GenConfig {
        with_secrets: Some(file.clone()),
        ..args(&directory.path().join("c"))
    };
    let refusal = message(config(&args).unwrap_err());
    assert!(refusal.contains("trustdinfo"), "{refusal}");
}

#[test]
fn patches_reach_the_configs_of_their_machine_type() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("new");
    let patched = GenConfig {
        config_patch: vec!["machine: {sysctls: {kernel.pid_max: \"99999\"}}".into()],
        config_patch_control_plane: vec!["machine: {network: {hostname: cp}}".into()],
        config_patch_worker: vec!["machine: {network: {hostname: wk}, $x: 1}".into()],
        ..args(&target)
    };
    let refusal = message(config(&patched).unwrap_err());
    assert!(
        refusal.contains("worker.yaml: ") && refusal.contains("unknown field: machine.$x"),
        "{refusal}"
    );
    assert!(!target.exists());

    let good = GenConfig {
        config_patch_worker: vec!["machine: {network: {hostname: wk}}".into()],
        ..patched
    };
    config(&good).unwrap();
    for (name, host) in [("controlplane.yaml", "cp"), ("worker.yaml", "wk")] {
        let document = Document::parse(&fs::read(target.join(name)).unwrap()).unwrap();
        assert_eq!(document.hostname(), Some(host));
        assert_eq!(document.sysctls()["kernel.pid_max"], "99999");
    }
}
