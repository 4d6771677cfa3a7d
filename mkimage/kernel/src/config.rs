//! Resolves the fragments with the kernel's own tools, and refuses options that the result does not
//! have as requested.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Result};
use corten_steps::tool::Tool;

use crate::fragments::Requested;
use crate::llvm::Llvm;

/// Options that describe the host's tools, not the kernel.
const OF_THE_HOST: [&str; 10] = [
    "CONFIG_AS_VERSION",
    "CONFIG_CC_VERSION_TEXT",
    "CONFIG_CLANG_VERSION",
    "CONFIG_GCC_VERSION",
    "CONFIG_LD_VERSION",
    "CONFIG_LLD_VERSION",
    "CONFIG_PAHOLE_VERSION",
    "CONFIG_RUSTC_HAS_UNNECESSARY_TRANSMUTES",
    "CONFIG_RUSTC_LLVM_VERSION",
    "CONFIG_RUSTC_VERSION",
];

/// A complete kernel config: every visible option with its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedConfig {
    header: String,
    options: BTreeMap<String, String>,
}

impl ResolvedConfig {
    /// Reads a `.config`, or a golden file.
    pub fn parse(text: &str) -> Self {
        let header = text
            .lines()
            .find(|line| line.ends_with(" Kernel Configuration"));
        let options = text
            .lines()
            .filter_map(|line| match line.strip_prefix("# ") {
                Some(comment) => Some((comment.strip_suffix(" is not set")?, "n")),
                None => line.split_once('='),
            })
            .filter(|(name, _)| name.starts_with("CONFIG_"))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Self {
            header: header.unwrap_or_default().to_owned(),
            options,
        }
    }

    /// An option's value; `n` for an option that is off or does not exist.
    pub fn get(&self, name: &str) -> &str {
        self.options.get(name).map_or("n", String::as_str)
    }

    /// The options of the kernel itself, without those that describe the host's tools.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options
            .iter()
            .filter(|(name, _)| !OF_THE_HOST.contains(&name.as_str()))
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The golden file: the kernel's version, then every option, sorted. Options that are off are
    /// included: the checker distinguishes them from options that this kernel does not have.
    pub fn golden(&self) -> String {
        let mut text = format!("{}\n", self.header);
        for (name, value) in &self.options {
            // The checker depends on the compiler's kind and version, which stay; the version text
            // does not matter.
            if name == "CONFIG_CC_VERSION_TEXT" {
                continue;
            }
            text.push_str(&match value.as_str() {
                "n" => format!("# {name} is not set\n"),
                value => format!("{name}={value}\n"),
            });
        }
        text
    }

    /// The requests that this config does not fulfil, one readable line each.
    pub fn lost(&self, requested: &Requested) -> Vec<String> {
        requested
            .iter()
            .filter(|(name, request)| self.get(name) != request.value)
            .map(|(name, request)| {
                let (asked, got) = (&request.value, self.get(name));
                format!("{}: {name}={asked} became {name}={got}", request.place)
            })
            .collect()
    }
}

/// Resolves `requested` in the unpacked and patched kernel source `tree`, and leaves the tree
/// configured. A request that the config does not fulfil is an error that names it.
pub fn resolve(
    tree: &Path,
    arch: Arch,
    requested: &Requested,
    llvm: &Llvm,
) -> Result<ResolvedConfig> {
    let wanted = tree.join(".corten-allconfig");
    std::fs::write(&wanted, requested.to_allconfig())
        .with_context(|| format!("writing {}", wanted.display()))?;
    make(tree, arch, llvm)
        .env("KCONFIG_ALLCONFIG", &wanted)
        .args(["-s", "allnoconfig"])
        .run()?;
    make(tree, arch, llvm).args(["-s", "olddefconfig"]).run()?;
    let file = tree.join(".config");
    let text =
        std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let resolved = ResolvedConfig::parse(&text);
    let lost = resolved.lost(requested);
    if lost.is_empty() {
        return Ok(resolved);
    }
    Err(Failure::new(
        format!(
            "kernel options were dropped or changed:\n  {}",
            lost.join("\n  ")
        ),
        "look up the option's dependencies in the kernel's Kconfig and request them, too, or \
         remove the option from its fragment",
    ))
}

/// A call of the kernel's `make` in `tree`. Hides tools that only describe the host, so that the
/// config is the same on every host.
pub(super) fn make(tree: &Path, arch: Arch, llvm: &Llvm) -> Tool {
    Tool::new("make")
        .dir(tree)
        .args(llvm.arguments())
        .arg(format!("ARCH={}", arch.names().kernel))
        .args(["RUSTC=false", "PAHOLE=false"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#\n# Automatically generated file; DO NOT EDIT.\n\
        # Linux/x86 6.12.107 Kernel Configuration\n#\n\
        CONFIG_CC_VERSION_TEXT=\"clang of this host\"\nCONFIG_CLANG_VERSION=190107\n\
        CONFIG_Z=y\n# CONFIG_OFF is not set\nCONFIG_A=\"x=1\"\n";

    #[test]
    fn golden_is_sorted_and_keeps_the_kernel_version() {
        let resolved = ResolvedConfig::parse(TEXT);
        let golden = resolved.golden();
        assert_eq!(
            golden,
            "# Linux/x86 6.12.107 Kernel Configuration\nCONFIG_A=\"x=1\"\n\
             CONFIG_CLANG_VERSION=190107\n# CONFIG_OFF is not set\nCONFIG_Z=y\n"
        );
        let again = ResolvedConfig::parse(&golden);
        assert_eq!(
            again.options().collect::<Vec<_>>(),
            resolved.options().collect::<Vec<_>>()
        );
        assert_eq!(again.options().next(), Some(("CONFIG_A", "\"x=1\"")));
        assert_eq!(again.options().count(), 3);
    }

    #[test]
    fn lost_options_are_named_with_file_and_line() {
        let mut requested = Requested::default();
        let fragment = "# why\nCONFIG_Z=y\nCONFIG_OFF=n\nCONFIG_A=\"x=2\"\nCONFIG_GONE=m\n";
        requested.merge("f.config", fragment).unwrap();
        assert_eq!(
            ResolvedConfig::parse(TEXT).lost(&requested),
            [
                "f.config:4: CONFIG_A=\"x=2\" became CONFIG_A=\"x=1\"",
                "f.config:5: CONFIG_GONE=m became CONFIG_GONE=n",
            ]
        );
    }
}
