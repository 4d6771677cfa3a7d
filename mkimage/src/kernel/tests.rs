//! The committed kernel config holds what the design promises.
//!
//! Tests that need fetched files are ignored by plain `cargo test`; `make test` runs them.

use std::path::PathBuf;

use serde::Deserialize;

use crate::arch::Arch;
use crate::cache::Cache;
use crate::fetch::Fetcher;
use crate::kernel::cli::{self, Paths};
use crate::kernel::config::ResolvedConfig;
use crate::kernel::fragments::Requested;
use crate::kernel::hardening::{Because, exceptions};
use crate::kernel::{CONFIG_DIR, parameters, source::SourceLock};
use crate::lock::{self, Lock};

fn config_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(CONFIG_DIR)
}

/// The cache of the user, as `mkimage` finds it.
fn paths() -> Paths {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/corten");
    let root = std::env::var_os("CORTEN_CACHE").map_or_else(home, PathBuf::from);
    let cache = Cache::open(&root, Vec::new()).unwrap();
    Paths {
        config_dir: config_dir(),
        lock: Lock::read(&config_dir().join("..").join(lock::PACKAGES)).unwrap(),
        fetcher: Fetcher::new(cache.clone(), false, Vec::new()),
        cache,
        kernel_source: None,
    }
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
            "renew it with `mkimage kernel config --write`: {lost:#?}"
        );
    }
}

#[test]
fn the_kernel_has_every_required_feature() {
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

#[test]
#[ignore = "fetches kernel-hardening-checker; run by make test"]
fn the_hardening_check_holds_its_limits() {
    // The checker knows 249 options for x86_64 and 229 for arm64.
    hardening_limits(Arch::X86_64, 232, 27);
    hardening_limits(Arch::Arm64, 210, 19);
}

fn hardening_limits(arch: Arch, least_ok: usize, most_fail: usize) {
    let verdict = cli::check(&paths(), arch).unwrap();
    verdict.require().unwrap();
    let (ok, fail) = verdict.counts(Some("kconfig"));
    assert!(
        ok >= least_ok && fail <= most_fail,
        "{arch}: limit {least_ok} OK, {most_fail} FAIL: {ok} OK, {fail} FAIL"
    );
    // What KSPP recommends fails only where the compiler or this kernel cannot do it, and MODULES
    // (the sysctl is the same thing at run time). Two parameters are a choice, with reasons.
    let chosen = [
        "CONFIG_MODULES",
        "kernel.modules_disabled",
        "nosmt",
        "kernel.yama.ptrace_scope",
    ];
    let exceptions = exceptions(&config_dir(), arch).unwrap();
    for check in verdict
        .checks
        .iter()
        .filter(|check| !check.ok && check.decision == "kspp")
    {
        let exception = exceptions
            .iter()
            .find(|exception| exception.name == check.name)
            .unwrap();
        let cannot = matches!(exception.because, Because::Compiler | Because::Kernel);
        assert!(
            cannot || chosen.contains(&check.name.as_str()),
            "{}: {}",
            check.name,
            check.result
        );
    }
}

#[test]
#[ignore = "fetches the kernel's source; run by make test"]
fn the_fragments_resolve_to_the_golden_config() {
    for arch in Arch::ALL {
        cli::require_golden(&paths(), arch).unwrap();
    }
}
