//! `gen config`: a cluster's secrets, its two machine configs and the client
//! config that opens it.

mod documents;
mod secrets;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, anyhow, bail};
use corten_config::Document;
use corten_pki::{NODE_LIFETIME, OPERATOR_LIFETIME};

use crate::cli::GenConfig;
use crate::clientconfig::{ClientConfig, Context, Identity};
use crate::endpoint::Endpoint;
use crate::failure::Failure;

use documents::{Cluster, controlplane, worker};
use secrets::Secrets;

/// The role of the client config made here.
const ROLE: &str = "os:admin";

/// A file to write: its name and its text.
type File = (&'static str, String);

pub(crate) fn config(args: &GenConfig) -> Result<(), Failure> {
    let cluster = cluster(args)?;
    let paths: Vec<PathBuf> = ["controlplane.yaml", "worker.yaml", "cortenconfig"]
        .iter()
        .map(|name| args.output_dir.join(name))
        .collect();
    // Before any secret is made: all or nothing.
    if let Some(path) = paths.iter().find(|path| !args.force && path.exists()) {
        return Err(Failure::call(format!(
            "{} exists; choose another directory with --output-dir, or overwrite it and lose its secrets with --force",
            path.display()
        )));
    }
    let files = generate(&cluster, SystemTime::now())?;
    fs::create_dir_all(&args.output_dir)
        .with_context(|| format!("directory {}", args.output_dir.display()))?;
    for ((_, text), path) in files.iter().zip(&paths) {
        write(path, text, args.force)?;
        eprintln!("created {}", path.display());
    }
    Ok(())
}

fn cluster(args: &GenConfig) -> Result<Cluster, Failure> {
    let wrong = || {
        Failure::usage(format!(
            "{:?} is not a cluster endpoint such as https://10.0.0.1:6443",
            args.endpoint
        ))
    };
    if args.cluster.is_empty() || args.cluster.chars().any(char::is_control) {
        return Err(Failure::usage("the cluster needs a name"));
    }
    let authority = args.endpoint.strip_prefix("https://").ok_or_else(wrong)?;
    let host = authority.strip_suffix('/').unwrap_or(authority);
    let host = host
        .parse::<Endpoint>()
        .map_err(|_| wrong())?
        .host()
        .to_owned();
    let mut names = vec![host.clone()];
    for name in &args.additional_sans {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    Ok(Cluster {
        name: args.cluster.clone(),
        endpoint: args.endpoint.clone(),
        host,
        names,
        install_disk: args.install_disk.clone(),
        dns_domain: args.dns_domain.clone(),
    })
}

/// The three files. What a node would refuse is refused here.
fn generate(cluster: &Cluster, now: SystemTime) -> anyhow::Result<[File; 3]> {
    let secrets = Secrets::generate(now)?;
    // A name that fits into no certificate would show up only when a node boots.
    secrets
        .os
        .server(&cluster.host, &cluster.names, now, NODE_LIFETIME)
        .context("names of the nodes' certificates (--additional-sans)")?;
    let controlplane = yaml(&controlplane(cluster, &secrets))?;
    let worker = yaml(&worker(cluster, &secrets))?;
    for (name, text) in [
        ("controlplane.yaml", &controlplane),
        ("worker.yaml", &worker),
    ] {
        if let Err(problems) = Document::parse(text.as_bytes()) {
            bail!("{name} would not be accepted by a node: {problems}");
        }
    }
    let operator = secrets
        .os
        .client(&[ROLE], now, OPERATOR_LIFETIME)
        .context("making the client certificate")?;
    let identity = Identity {
        ca: secrets.os.pem().crt.clone(),
        crt: operator.crt,
        key: operator.key,
    };
    let context = Context::new(vec![cluster.host.clone()], &identity);
    let client = ClientConfig {
        context: cluster.name.clone(),
        contexts: BTreeMap::from([(cluster.name.clone(), context)]),
    };
    Ok([
        ("controlplane.yaml", controlplane),
        ("worker.yaml", worker),
        ("cortenconfig", client.render()?),
    ])
}

fn yaml(value: &serde_json::Value) -> anyhow::Result<String> {
    let mut options = serde_saphyr::SerializerOptions::default();
    options.indent_step = 4;
    // Base64 of a certificate is one long word: on one line, as tools expect.
    options.prefer_block_scalars = false;
    serde_saphyr::to_string_with_options(value, options).context("cannot write YAML")
}

/// Writes a file whole or not at all, readable by its owner only.
fn write(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let save = || -> anyhow::Result<()> {
        // Made with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(text.as_bytes())?;
        file.as_file().sync_all()?;
        if force {
            file.persist(path).map_err(|error| error.error)?;
        } else {
            file.persist_noclobber(path)
                .map_err(|error| match error.error.kind() {
                    std::io::ErrorKind::AlreadyExists => {
                        anyhow!("it exists; --force overwrites it")
                    }
                    _ => error.error.into(),
                })?;
        }
        Ok(())
    };
    save().with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use corten_config::{MachineType, Mode};
    use corten_pki::{Ca, certificates_from_pem, fingerprint, verify_client};

    use super::*;

    fn args(directory: &Path) -> GenConfig {
        GenConfig {
            cluster: "demo".into(),
            endpoint: "https://10.0.0.1:6443".into(),
            output_dir: directory.into(),
            additional_sans: vec!["127.0.0.1".into(), "node.example".into(), "10.0.0.1".into()],
            install_disk: "/dev/vda".into(),
            dns_domain: "cluster.local".into(),
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
    fn the_files_are_what_a_node_and_a_client_read() {
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

        // The authority is the same, and only the control plane can sign.
        let ca = machine.ca.clone().unwrap();
        let workers = worker.machine.ca.unwrap();
        assert_eq!(workers.crt, ca.crt);
        assert_eq!(workers.key.expose(), "");
        Ca::from_pem(&ca.crt, ca.key.expose()).unwrap();

        // The client config opens that authority's nodes, as admin.
        let client = ClientConfig::parse(&read("cortenconfig")).unwrap();
        let context = client.select(None).unwrap();
        assert_eq!(client.context, "demo");
        assert_eq!(context.endpoints, ["10.0.0.1"]);
        let identity = context.identity().unwrap();
        assert_eq!(identity.ca, *ca.crt);
        let chain = certificates_from_pem(identity.crt.as_bytes()).unwrap();
        let authorities = certificates_from_pem(ca.crt.as_bytes()).unwrap();
        let roles = verify_client(&chain, &authorities, SystemTime::now()).unwrap();
        assert_eq!(roles, ["os:admin"]);
        crate::tls::mutual(&identity, SystemTime::now()).unwrap();
    }

    #[test]
    fn secrets_are_never_made_twice_and_never_overwritten_by_accident() {
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

        // Another run makes other secrets.
        config(&GenConfig {
            force: true,
            ..args(directory.path())
        })
        .unwrap();
        let second = fs::read_to_string(&path).unwrap();
        let authority = |text: &str| {
            let ca = Document::parse(text.as_bytes())
                .unwrap()
                .machine
                .ca
                .unwrap();
            fingerprint(&certificates_from_pem(ca.crt.as_bytes()).unwrap()[0]).unwrap()
        };
        assert_ne!(authority(&first), authority(&second));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn wrong_arguments_leave_nothing_behind() {
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
                "needs a name",
            ),
            (
                GenConfig {
                    additional_sans: vec!["a b".into()],
                    ..args(&target)
                },
                "--additional-sans",
            ),
        ];
        for (args, expected) in cases {
            let text = message(config(&args).unwrap_err());
            assert!(text.contains(expected), "{text}");
            assert!(!target.exists());
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
}
