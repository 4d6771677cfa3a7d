//! Checks the kernel with kernel-hardening-checker: config, command line and sysctls together.
//!
//! Every FAIL needs an entry with a reason in `kernel-config/exceptions.toml`. An exception without
//! a FAIL is stale and must be removed.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::deb;
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::tool::Tool;
use serde::Deserialize;

use crate::config::ResolvedConfig;
use crate::parameters;

/// Runs the checker from the directory in the first argument, not a checker installed on the host.
const START: &str = "import sys; sys.path.insert(0, sys.argv.pop(1)); \
                     import kernel_hardening_checker; kernel_hardening_checker.main()";

/// One line of the checker's report.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Check {
    /// The option, parameter or sysctl.
    #[serde(rename = "option_name")]
    pub name: String,
    /// `kconfig`, `cmdline` or `sysctl`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The source of the recommendation: `kspp`, `defconfig`, ...
    pub decision: String,
    /// The recommended value.
    #[serde(rename = "desired_val")]
    pub desired: String,
    /// `OK…` or `FAIL: reason`.
    #[serde(rename = "check_result")]
    pub result: String,
    /// Whether it passed.
    #[serde(rename = "check_result_bool")]
    pub ok: bool,
}

/// The class of an exception's reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Because {
    /// The compiler lacks the feature.
    Compiler,
    /// This kernel version lacks the option.
    Kernel,
    /// Kubernetes would not work.
    Kubernetes,
    /// The node could not be operated or repaired.
    Operation,
    /// The image has no room for it, and another protection does the same.
    Size,
}

/// An accepted FAIL.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exception {
    /// `kconfig`, `cmdline` or `sysctl`.
    pub kind: String,
    /// The option, parameter or sysctl.
    pub name: String,
    /// The class of the reason.
    pub because: Because,
    /// The reason, for a reviewer.
    pub reason: String,
    /// The architectures it applies to; empty means all.
    #[serde(default)]
    pub arch: Vec<Arch>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exceptions {
    exception: Vec<Exception>,
}

/// The checker's result, compared with the exceptions.
#[derive(Debug, Clone, Default)]
pub struct Verdict {
    /// All checks, in the checker's order.
    pub checks: Vec<Check>,
    /// FAILs without an exception.
    pub unexpected: Vec<Check>,
    /// Exceptions without a FAIL, as `kind name`.
    pub stale: Vec<String>,
}

impl Verdict {
    /// (OK, FAIL) among checks of `kind`, or among all.
    pub fn counts(&self, kind: Option<&str>) -> (usize, usize) {
        let of_kind = |check: &&Check| kind.is_none_or(|kind| check.kind == kind);
        let ok = self
            .checks
            .iter()
            .filter(of_kind)
            .filter(|check| check.ok)
            .count();
        (ok, self.checks.iter().filter(of_kind).count() - ok)
    }

    /// An error that lists unexpected FAILs and stale exceptions, if there are any.
    pub fn require(&self) -> Result<()> {
        if self.unexpected.is_empty() && self.stale.is_empty() {
            return Ok(());
        }
        let failed = self.unexpected.iter().map(|check| {
            format!(
                "{} {} ({} wants {}): {}",
                check.kind, check.name, check.decision, check.desired, check.result
            )
        });
        let stale = self
            .stale
            .iter()
            .map(|what| format!("{what}: the exception no longer fails"));
        Err(Failure::new(
            format!(
                "the kernel fails the hardening check:\n  {}",
                failed.chain(stale).collect::<Vec<_>>().join("\n  ")
            ),
            "change the fragment, parameter or sysctl, or add the reason to (or remove the stale \
             one from) kernel-config/exceptions.toml",
        ))
    }
}

/// Reads the exceptions for `arch`.
pub fn exceptions(config_dir: &Path, arch: Arch) -> Result<Vec<Exception>> {
    let path = config_dir.join("exceptions.toml");
    let text = fs::read_to_string(&path).or_fail(
        format!("reading {}", path.display()),
        "restore it from version control",
    )?;
    let list: Exceptions = toml::from_str(&text).or_fail(
        format!("{} is not valid", path.display()),
        "correct that line",
    )?;
    let mut exceptions = list.exception;
    exceptions.retain(|exception| exception.arch.is_empty() || exception.arch.contains(&arch));
    Ok(exceptions)
}

/// Compares checks and exceptions.
pub fn judge(checks: Vec<Check>, exceptions: &[Exception]) -> Verdict {
    let fails = |exception: &Exception, check: &Check| {
        !check.ok && check.kind == exception.kind && check.name == exception.name
    };
    let unexpected = checks
        .iter()
        .filter(|check| !check.ok && !exceptions.iter().any(|exception| fails(exception, check)))
        .cloned()
        .collect();
    let stale = exceptions
        .iter()
        .filter(|exception| !checks.iter().any(|check| fails(exception, check)))
        .map(|exception| format!("{} {}", exception.kind, exception.name))
        .collect();
    Verdict {
        checks,
        unexpected,
        stale,
    }
}

/// Runs the checker from its Debian package `checker` on `config` and on the parameters and
/// sysctls in `config_dir`. `scratch` is for its input files. Needs `python3` on the host.
pub fn check(
    checker: &Path,
    config: &ResolvedConfig,
    config_dir: &Path,
    arch: Arch,
    scratch: &Path,
) -> Result<Verdict> {
    const MODULES: &str = "usr/lib/python3/dist-packages/";
    deb::unpack(checker, scratch, |path| path.starts_with(MODULES))?;
    let write = |name: &str, text: String| -> Result<_> {
        let path = scratch.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    };
    let kconfig = write("config", config.golden())?;
    let cmdline = parameters::command_line(config_dir, arch)?.join(" ");
    let cmdline = write("cmdline", format!("{cmdline}\n"))?;
    let sysctls = parameters::sysctls(config_dir, arch)?;
    let sysctls = sysctls
        .iter()
        .map(|(name, value)| format!("{name} = {value}\n"))
        .collect();
    let sysctl = write("sysctl", sysctls)?;
    let report = Tool::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", START])
        .arg(scratch.join(MODULES))
        .args(["-m", "json", "-c"])
        .arg(kconfig)
        .arg("-l")
        .arg(cmdline)
        .arg("-s")
        .arg(sysctl)
        .output()?;
    let checks: Vec<Check> = serde_json::from_slice(&report).or_fail(
        "kernel-hardening-checker printed no report",
        "compare its version with kernel-config/source.lock",
    )?;
    if checks.is_empty() {
        return Err(Failure::new(
            "kernel-hardening-checker checked nothing",
            "compare its version with kernel-config/source.lock",
        ));
    }
    Ok(judge(checks, &exceptions(config_dir, arch)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, ok: bool) -> Check {
        Check {
            name: name.to_owned(),
            kind: "kconfig".to_owned(),
            decision: "kspp".to_owned(),
            desired: "y".to_owned(),
            result: if ok { "OK" } else { "FAIL: is not found" }.to_owned(),
            ok,
        }
    }

    fn exception(name: &str) -> Exception {
        Exception {
            kind: "kconfig".to_owned(),
            name: name.to_owned(),
            because: Because::Kernel,
            reason: "why".to_owned(),
            arch: Vec::new(),
        }
    }

    #[test]
    fn failed_checks_need_an_exception_and_exceptions_a_failed_check() {
        let checks = vec![check("A", true), check("B", false), check("C", false)];
        let verdict = judge(checks, &[exception("B"), exception("A"), exception("GONE")]);
        assert_eq!(verdict.counts(None), (1, 2));
        assert_eq!(verdict.counts(Some("sysctl")), (0, 0));
        assert_eq!(verdict.unexpected, [check("C", false)]);
        assert_eq!(verdict.stale, ["kconfig A", "kconfig GONE"]);
        let error = verdict.require().unwrap_err().to_string();
        assert!(
            error.contains("kconfig C (kspp wants y): FAIL: is not found"),
            "{error}"
        );
        assert!(
            error.contains("kconfig A: the exception no longer fails"),
            "{error}"
        );
    }

    #[test]
    fn failed_checks_with_an_exception_pass() {
        judge(vec![check("A", true), check("B", false)], &[exception("B")])
            .require()
            .unwrap();
    }
}
