//! The committed kernel config fulfils the design's promises. Tests that need fetched files are in
//! the workspace's `tests/hardening.rs`.

use std::path::PathBuf;

use corten_steps::arch::Arch;
use serde::Deserialize;

use crate::cli;
use crate::config::ResolvedConfig;
use crate::fragments::Requested;
use crate::hardening::exceptions;
use crate::source::SourceLock;
use crate::{CONFIG_DIR, parameters};

fn config_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(CONFIG_DIR)
}

fn golden(arch: Arch) -> ResolvedConfig {
    cli::golden(&config_dir(), arch).unwrap()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Feature {
    name: String,
    #[serde(default)]
    arch: Vec<Arch>,
    #[serde(default)]
    built_in: Vec<String>,
    #[serde(default)]
    any: Vec<String>,
    #[serde(default)]
    off: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Required {
    feature: Vec<Feature>,
}

#[test]
fn the_golden_config_holds_every_requested_option() {
    for arch in Arch::ALL {
        let requested = Requested::read(&config_dir().join("fragments"), arch).unwrap();
        let lost = golden(arch).lost(&requested);
        assert!(
            lost.is_empty(),
            "update it with `mkimage kernel config --write`: {lost:#?}"
        );
    }
}

#[test]
fn kernel_config_has_every_required_feature() {
    let text = std::fs::read_to_string(config_dir().join("required.toml")).unwrap();
    let required: Required = toml::from_str(&text).unwrap();
    let mut missing = Vec::new();
    for arch in Arch::ALL {
        let golden = golden(arch);
        for feature in &required.feature {
            if !feature.arch.is_empty() && !feature.arch.contains(&arch) {
                continue;
            }
            let mut need = |option: &String, allowed: &[&str]| {
                let value = golden.get(&format!("CONFIG_{option}"));
                if !allowed.contains(&value) {
                    missing.push(format!("{arch}: {}: {option}={value}", feature.name));
                }
            };
            feature
                .built_in
                .iter()
                .for_each(|option| need(option, &["y"]));
            feature
                .any
                .iter()
                .for_each(|option| need(option, &["y", "m"]));
            feature.off.iter().for_each(|option| need(option, &["n"]));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn locks_parameters_and_exceptions_are_readable() {
    let lock = SourceLock::read(&config_dir()).unwrap();
    for package in [lock.kernel.package(), lock.checker.package()] {
        assert_eq!(package.sha256.len(), 64, "{}", package.name);
    }
    for arch in Arch::ALL {
        assert!(parameters::command_line(&config_dir(), arch).unwrap().len() > 5);
        assert!(parameters::sysctls(&config_dir(), arch).unwrap().len() > 20);
        for exception in exceptions(&config_dir(), arch).unwrap() {
            assert!(
                exception.reason.len() > 20,
                "{}: a reason, please",
                exception.name
            );
        }
    }
}
