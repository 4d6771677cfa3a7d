//! Machine configs on the operator's machine: new ones (`gen`), patches (`machineconfig`) and checks (`validate`).
//!
//! Owns: the secrets of a new cluster, the documents made from them, and the files of both.
//! Never: calls a node, overwrites a file without a flag for it, or prints a secret except on the operator's request.

pub mod args;
mod bundle;
mod certificates;
mod documents;
mod flags;
mod kubeadm;
mod machineconfig;
mod reuse;
mod secrets;
pub mod validate;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use anyhow::Context as _;
use corten_api::roles::Role;
use corten_client::clientconfig::{ClientConfig, Context, Identity};
use corten_client::endpoint::Endpoint;
use corten_client::failure::Failure;
use corten_client::table::print;
use corten_client::{configfile, files, yaml};
use corten_pki::{NODE_LIFETIME, OPERATOR_LIFETIME};

use args::{Gen, GenConfig, GenSecrets, GenVerb, KubernetesImages, Machineconfig, OutputType};
use documents::{Cluster, controlplane, worker};
use secrets::Secrets;

/// The warning when [`flags::loses_secrets`].
const SECRETS_LOST: &str = "the cluster's secrets are new, and no written file has all of them: no node and \
    no client can be added to this cluster later; make secrets with `gen secrets`, and pass them with \
    --with-secrets";

/// The generated files of a cluster.
struct Files {
    controlplane: String,
    worker: String,
    client: String,
}

impl Files {
    fn text(&self, kind: OutputType) -> &str {
        match kind {
            OutputType::ControlPlane => &self.controlplane,
            OutputType::Worker => &self.worker,
            OutputType::ClientConfig => &self.client,
        }
    }
}

/// Runs `gen`.
///
/// # Errors
/// The arguments contradict each other, or a file exists, cannot be read or cannot be written.
pub fn run(what: &Gen) -> Result<(), Failure> {
    match &what.verb {
        GenVerb::Config(args) => config(args),
        GenVerb::Secrets(args) => secrets(args),
        GenVerb::Ca(args) => certificates::ca(args),
        GenVerb::Key(args) => certificates::key(args),
        GenVerb::Csr(args) => certificates::csr(args),
        GenVerb::Crt(args) => certificates::crt(args),
    }
}

/// Runs `machineconfig`.
///
/// # Errors
/// As of [`run`], or a patch is invalid.
pub fn machineconfig(what: &Machineconfig) -> Result<(), Failure> {
    match what {
        Machineconfig::Gen(args) => config(args),
        Machineconfig::Patch(args) => machineconfig::patch(args),
    }
}

/// Makes a cluster's two machine configs and its client config.
///
/// # Errors
/// The arguments contradict each other, a node would refuse a config, or a file cannot be written.
pub fn config(args: &GenConfig) -> Result<(), Failure> {
    flags::check(args)?;
    let cluster = cluster(args)?;
    let places = flags::places(args)?;
    // Checked before any secret is made: all files are written, or none.
    let mut paths = places.iter().filter_map(|(_, path)| path.as_ref());
    if let Some(path) = paths.find(|path| !args.force && path.exists()) {
        let instead = match args.output.as_ref() {
            Some(output) if output == path => "name another file with --output",
            _ => "choose another directory with --output-dir",
        };
        return Err(Failure::call(format!(
            "{} exists; {instead}, or overwrite it and lose its secrets with --force",
            path.display()
        )));
    }
    let now = SystemTime::now();
    let secrets = match &args.with_secrets {
        Some(path) => bundle::read(path)?,
        None => Secrets::generate(now)?,
    };
    let made = generate(&cluster, &secrets, args, now)?;
    if flags::loses_secrets(args) {
        eprintln!("warning: {SECRETS_LOST}");
    }
    for (kind, path) in places {
        let text = made.text(kind);
        match path {
            Some(path) => {
                files::make_parent(&path)?;
                files::write(&path, text, args.force)?;
                eprintln!("created {}", path.display());
            }
            None => print(text)?,
        }
    }
    Ok(())
}

fn secrets(args: &GenSecrets) -> Result<(), Failure> {
    flags::check_secrets(args)?;
    let now = SystemTime::now();
    let secrets = match (&args.from_kubernetes_pki, &args.from_controlplane_config) {
        (Some(directory), _) => {
            kubeadm::read(directory, args.kubernetes_bootstrap_token.as_deref(), now)?
        }
        (None, Some(path)) => reuse::read(path)?,
        (None, None) => Secrets::generate(now)?,
    };
    let text = yaml::render(&bundle::value(&secrets))?;
    let path = &args.output_file;
    if path == Path::new("-") {
        return Ok(print(&text)?);
    }
    files::write(path, &text, args.force)?;
    eprintln!("created {}", path.display());
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
        return Err(Failure::usage(
            "the name of the cluster is empty or has control characters: give one such as my-cluster",
        ));
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
        install_image: args.install_image.clone(),
        dns_domain: args.dns_domain.clone(),
        kubernetes: flags::kubernetes(args)?,
        bundled: args.kubernetes_images == KubernetesImages::Bundled,
        registry_mirrors: flags::mirrors(args)?,
        discovery: args.with_cluster_discovery,
    })
}

/// Generates the files; refuses a config that a node would refuse.
fn generate(
    cluster: &Cluster,
    secrets: &Secrets,
    args: &GenConfig,
    now: SystemTime,
) -> Result<Files, Failure> {
    // A name that is invalid in a certificate would otherwise fail only when a node boots.
    secrets
        .os
        .server(&cluster.host, &cluster.names, now, NODE_LIFETIME)
        .context("names of the nodes' certificates (--additional-sans)")?;
    let finished = |name, config: &serde_json::Value, more: &[String]| {
        let patches = [&args.config_patch[..], more].concat();
        let text = configfile::patched(yaml::render(config)?.into_bytes(), &patches)?;
        configfile::parse(name, &text)?;
        Ok::<_, Failure>(String::from_utf8_lossy(&text).into_owned())
    };
    let controlplane = finished(
        "controlplane.yaml",
        &controlplane(cluster, secrets),
        &args.config_patch_control_plane,
    )?;
    let worker = finished(
        "worker.yaml",
        &worker(cluster, secrets),
        &args.config_patch_worker,
    )?;
    let operator = secrets
        .os
        .client(&[Role::Admin.name()], now, OPERATOR_LIFETIME)
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
        ..ClientConfig::default()
    };
    Ok(Files {
        controlplane,
        worker,
        client: client.render()?,
    })
}

/// A worker's config, for tests.
#[cfg(test)]
pub(crate) fn example(directory: &Path) -> String {
    config(&tests::args(directory)).unwrap_or_else(|failure| panic!("{failure:?}"));
    std::fs::read_to_string(directory.join("worker.yaml")).unwrap_or_default()
}

#[cfg(test)]
mod image_tests;
#[cfg(test)]
mod tests;
