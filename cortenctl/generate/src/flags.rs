//! Flags of `gen config` and `gen secrets`: their values, and the refusal of flags that a node does
//! not support yet.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use corten_client::failure::Failure;
use regex_lite::Regex;

use crate::args::{GenConfig, GenSecrets, OutputType};

/// The first minor version of the reference system that knows every field of these configs
/// (`features.kubePrism`).
const FIRST_MINOR: u64 = 5;

/// Refuses flags that would have to be ignored.
pub(super) fn check(args: &GenConfig) -> Result<(), Failure> {
    if args.form != "v1alpha1" {
        return Err(Failure::usage(
            "--version: v1alpha1 is the only form of a config",
        ));
    }
    compatible(args.talos_version.as_deref())
}

/// Whether no written file has every secret, because only the config of control plane nodes does.
/// The reference's client allows that and scripts use it, so that it is not refused.
pub(super) fn loses_secrets(args: &GenConfig) -> bool {
    args.with_secrets.is_none() && !args.output_types.contains(&OutputType::ControlPlane)
}

/// Refuses flags of `gen secrets` that would have to be ignored, and a token that Kubernetes would refuse.
pub(super) fn check_secrets(args: &GenSecrets) -> Result<(), Failure> {
    compatible(args.talos_version.as_deref())?;
    match &args.kubernetes_bootstrap_token {
        Some(token) if !is_bootstrap_token(token) => Err(Failure::usage(
            "--kubernetes-bootstrap-token: a token is like abcdef.0123456789abcdef; `kubeadm token create` makes one",
        )),
        _ => Ok(()),
    }
}

/// Whether Kubernetes accepts the text as a bootstrap token.
fn is_bootstrap_token(text: &str) -> bool {
    let form = Regex::new(r"^[a-z0-9]{6}\.[a-z0-9]{16}$");
    form.is_ok_and(|form| form.is_match(text))
}

/// Refuses a version whose nodes cannot read the one form of config that is written.
fn compatible(version: Option<&str>) -> Result<(), Failure> {
    let Some(version) = version else {
        return Ok(());
    };
    let own = minor(corten_api::COMPATIBLE_WITH).unwrap_or_default();
    match minor(version) {
        Some(minor) if (FIRST_MINOR..=own).contains(&minor) => Ok(()),
        _ => Err(Failure::usage(format!(
            "--talos-version {version:?}: configs are for v1.{FIRST_MINOR} to v1.{own}"
        ))),
    }
}

/// The minor version of `v1.14` or `1.14.0`.
fn minor(version: &str) -> Option<u64> {
    let form = Regex::new(r"^v?1\.([0-9]{1,9})(\.[0-9]+)?(-[0-9A-Za-z.]+)?$").ok()?;
    form.captures(version)?.get(1)?.as_str().parse().ok()
}

/// The version of Kubernetes without the leading letter.
pub(super) fn kubernetes(args: &GenConfig) -> Result<Option<String>, Failure> {
    let Some(given) = &args.kubernetes_version else {
        return Ok(None);
    };
    let version = given.strip_prefix('v').unwrap_or(given);
    let form = Regex::new(r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$");
    if form.is_ok_and(|form| form.is_match(version)) {
        Ok(Some(version.to_owned()))
    } else {
        Err(Failure::usage(format!(
            "--kubernetes-version {given:?} is not a version such as 1.36.3"
        )))
    }
}

/// The mirrors of each registry, in the order of the flags.
pub(super) fn mirrors(args: &GenConfig) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let mut mirrors: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for given in &args.registry_mirror {
        let Some((registry, url)) = given.split_once('=') else {
            return Err(Failure::usage(format!(
                "--registry-mirror {given:?} is not HOST=URL such as docker.io=https://mirror.example"
            )));
        };
        let urls = mirrors.entry(registry.to_owned()).or_default();
        urls.push(url.to_owned());
    }
    Ok(mirrors)
}

/// The outputs and their paths; `None` is standard output.
pub(super) fn places(args: &GenConfig) -> Result<Vec<(OutputType, Option<PathBuf>)>, Failure> {
    let mut kinds: Vec<OutputType> = Vec::new();
    for kind in &args.output_types {
        if !kinds.contains(kind) {
            kinds.push(*kind);
        }
    }
    let output = args.output.as_deref();
    match (kinds.as_slice(), output) {
        ([kind], Some(output)) => {
            if output.is_dir() {
                return Err(Failure::usage(format!(
                    "{} is a directory: name the file, or use --output-dir",
                    output.display()
                )));
            }
            let path = (output != Path::new("-")).then(|| output.to_owned());
            Ok(vec![(*kind, path)])
        }
        (_, Some(output)) if output == Path::new("-") => Err(Failure::usage(
            "only one file can go to standard output: choose it with --output-types",
        )),
        _ => {
            let directory = args.output_dir.as_deref().or(output);
            let directory = directory.unwrap_or(Path::new("."));
            let path = |kind| Some(directory.join(name(kind)));
            Ok(kinds.into_iter().map(|kind| (kind, path(kind))).collect())
        }
    }
}

fn name(kind: OutputType) -> &'static str {
    match kind {
        OutputType::ControlPlane => "controlplane.yaml",
        OutputType::Worker => "worker.yaml",
        OutputType::ClientConfig => "cortenconfig",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_that_kubernetes_accepts_are_bootstrap_tokens() {
        assert!(is_bootstrap_token("abcdef.0123456789abcdef"));
        for wrong in [
            "",
            "test-token",
            "abcdef.0123456789abcde",
            "abcdef.0123456789abcdefg",
            "Abcdef.0123456789abcdef",
            "abcdef:0123456789abcdef",
            "abcdef.0123456789abcdef\n",
        ] {
            assert!(!is_bootstrap_token(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn only_node_versions_that_read_the_config_are_accepted() {
        for good in ["v1.14", "1.14.0", "v1.5", "v1.10.3-beta.1"] {
            compatible(Some(good)).unwrap();
        }
        compatible(None).unwrap();
        for wrong in [
            "v1.4",
            "v1.15",
            "v2.0",
            "",
            "1",
            "v1.x",
            "v1.99999999999999999999",
        ] {
            match compatible(Some(wrong)) {
                Err(Failure::Usage(text)) => assert!(text.contains("v1.5 to v1.14"), "{text}"),
                other => panic!("{wrong}: {other:?}"),
            }
        }
    }
}
