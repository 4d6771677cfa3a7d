//! Reads the repository's files of kernel parameters and sysctls: one a line, with comments.

use std::fs;
use std::path::Path;

use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Remedy as _, Result};

/// The hardening part of the kernel command line for `arch`: `cmdline`, then `cmdline.<arch>`.
pub fn command_line(config_dir: &Path, arch: Arch) -> Result<Vec<String>> {
    let mut parameters = lines(&read(&config_dir.join("cmdline"))?);
    let own = config_dir.join(format!("cmdline.{arch}"));
    if own.exists() {
        parameters.extend(lines(&read(&own)?));
    }
    for parameter in &parameters {
        let name = parameter.split('=').next().unwrap_or_default();
        let same = parameters
            .iter()
            .filter(|other| other.split('=').next() == Some(name));
        if parameter.contains(char::is_whitespace) || same.count() > 1 {
            return Err(Failure::new(
                format!(
                    "kernel parameter {parameter:?}: more than one parameter on a line, or a duplicate"
                ),
                "write each parameter once, on its own line, in kernel-config/cmdline*",
            ));
        }
    }
    Ok(parameters)
}

/// The sysctls for `arch` as (name, value), in file order: `sysctl.conf`, then `sysctl.<arch>.conf`.
pub fn sysctls(config_dir: &Path, arch: Arch) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for name in ["sysctl.conf".to_owned(), format!("sysctl.{arch}.conf")] {
        let path = config_dir.join(name);
        for line in lines(&read(&path)?) {
            let (name, value) = line.split_once(" = ").ok_or_else(|| {
                Failure::new(
                    format!("{}: {line:?} is not a setting", path.display()),
                    "write `name = value`",
                )
            })?;
            all.push((name.trim().to_owned(), value.trim().to_owned()));
        }
    }
    Ok(all)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).or_fail(
        format!("reading {}", path.display()),
        "restore it from version control",
    )
}

fn lines(text: &str) -> Vec<String> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_joined_per_architecture_and_unique() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cmdline"), "# why\na=1\n\nb\n").unwrap();
        fs::write(dir.path().join("cmdline.x86_64"), "c=2\n").unwrap();
        assert_eq!(
            command_line(dir.path(), Arch::X86_64).unwrap(),
            ["a=1", "b", "c=2"]
        );
        assert_eq!(command_line(dir.path(), Arch::Arm64).unwrap(), ["a=1", "b"]);
        fs::write(dir.path().join("cmdline.x86_64"), "a=2\n").unwrap();
        command_line(dir.path(), Arch::X86_64).unwrap_err();
    }

    #[test]
    fn sysctl_files_are_read_as_key_value_pairs() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("sysctl.conf", "# why\na.b = 1\n");
        write("sysctl.arm64.conf", "c = 2\n");
        let pairs = [("a.b", "1"), ("c", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(sysctls(dir.path(), Arch::Arm64).unwrap(), pairs);
        write("sysctl.arm64.conf", "c=2\n");
        sysctls(dir.path(), Arch::Arm64).unwrap_err();
    }
}
