//! `gen config`: a cluster's two machine configs and the client config that
//! opens it; `gen secrets`: what they are made from.

mod bundle;
mod certificates;
mod documents;
mod secrets;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::Context as _;
use corten_pki::{NODE_LIFETIME, OPERATOR_LIFETIME};

use crate::cli::{GenConfig, GenSecrets};
use crate::clientconfig::{ClientConfig, Context, Identity};
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::{configfile, files, yaml};

pub(crate) use certificates::{ca, crt, csr, key};
use documents::{Cluster, controlplane, worker};
use secrets::Secrets;

/// The role of the client config made here.
pub(super) const ROLE: &str = "os:admin";

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
    let now = SystemTime::now();
    let secrets = match &args.with_secrets {
        Some(path) => bundle::read(path)?,
        None => Secrets::generate(now)?,
    };
    let made = generate(&cluster, &secrets, args, now)?;
    fs::create_dir_all(&args.output_dir)
        .with_context(|| format!("directory {}", args.output_dir.display()))?;
    for ((_, text), path) in made.iter().zip(&paths) {
        files::write(path, text, args.force)?;
        eprintln!("created {}", path.display());
    }
    Ok(())
}

pub(crate) fn secrets(args: &GenSecrets) -> Result<(), Failure> {
    let path = &args.output_file;
    let text = yaml::render(&bundle::value(&Secrets::generate(SystemTime::now())?))?;
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
fn generate(
    cluster: &Cluster,
    secrets: &Secrets,
    args: &GenConfig,
    now: SystemTime,
) -> Result<[File; 3], Failure> {
    // A name that fits into no certificate would show up only when a node boots.
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
        ..ClientConfig::default()
    };
    Ok([
        ("controlplane.yaml", controlplane),
        ("worker.yaml", worker),
        ("cortenconfig", client.render()?),
    ])
}

/// A worker's config, for tests of other verbs.
#[cfg(test)]
pub(crate) fn example(directory: &std::path::Path) -> String {
    config(&tests::args(directory)).unwrap_or_else(|failure| panic!("{failure:?}"));
    fs::read_to_string(directory.join("worker.yaml")).unwrap_or_default()
}

#[cfg(test)]
mod tests;
