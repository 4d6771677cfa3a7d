//! Builds the kernel: source to `vmlinuz`, signed modules, and the resolved config.
//!
//! The bytes depend on [`Inputs`] alone, never on a clock, user, host or directory name.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::cache::{Cache, Key, KeyBuilder};
use corten_steps::calendar::rfc3339;
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::tool::Tool;

use crate::config::{self, ResolvedConfig, make};
use crate::fragments::Requested;
use crate::keys::{MODULE_SIGNING, RANDSTRUCT_SEED};
use crate::llvm::Llvm;
use crate::precompiled::Precompiled;
use crate::source::{KernelSource, Source, patches};

/// The version of this module's build steps; must be raised when they change, or when other sources use precompiled
/// headers: the names of some local symbols differ then.
const RECIPE: &str = "2";
/// The signing key's path in the tree, as in `CONFIG_MODULE_SIG_KEY`. It must differ from the
/// kernel's default path, for which the kernel's build would generate a key.
const KEY_IN_TREE: &str = "certs/module-signing.pem";
/// The source's directory in the kept tree.
const SOURCE: &str = "linux";
/// The directory of the compiler with precompiled headers in the kept tree.
const PRECOMPILED: &str = "precompiled";
/// The kernel image in the output directory.
pub const VMLINUZ: &str = "vmlinuz";
/// The modules, as `modules/lib/modules/<release>/`.
pub const MODULES: &str = "modules";
/// The boards' device trees, as `device-trees/VENDOR/BOARD.dtb`; missing on an architecture without
/// device trees.
pub const DEVICE_TREES: &str = "device-trees";
/// The resolved config.
pub const CONFIG: &str = "config";
/// The kernel's release, as `uname -r` prints it, without a newline.
pub const RELEASE: &str = "release";

/// The inputs that determine the kernel, and the number of jobs, which does not.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// The lock of the source.
    pub lock: KernelSource,
    /// The target architecture.
    pub arch: Arch,
    /// The directory with `fragments/` and `patches/`.
    pub config_dir: PathBuf,
    /// The directory with the signing key and the seed.
    pub keys_dir: PathBuf,
    /// The hash of the compiler and its tools.
    pub compiler: Key,
    /// `SOURCE_DATE_EPOCH`, in seconds since 1970.
    pub epoch: u64,
    /// The number of parallel compilers.
    pub jobs: usize,
}

impl Inputs {
    /// The hash of all inputs that determine the output.
    pub fn key(&self) -> Result<Key> {
        let requested = Requested::read(&self.fragments(), self.arch)?;
        let key = self.inputs_key("kernel", &requested.to_allconfig())?;
        Ok(key.add("strip", STRIP).finish())
    }

    /// The hash of the source tree's inputs, and of inputs whose change `make` does not detect.
    fn origin(&self) -> Result<Key> {
        Ok(self.inputs_key("kernel-tree", "")?.finish())
    }

    fn inputs_key(&self, name: &str, options: &str) -> Result<KeyBuilder> {
        let mut key = KeyBuilder::new(name)
            .add("recipe", RECIPE)
            .add("source", &self.lock.tarball_sha256)
            .add("arch", self.arch.to_string())
            .add("options", options)
            .add("epoch", self.epoch.to_string())
            .step(&self.compiler);
        // Added only when there are device trees, so that the keys of the other kernels do not
        // change.
        if !self.arch.names().device_trees.is_empty() {
            key = key.add("device-trees", self.arch.names().device_trees.join(" "));
        }
        for patch in patches(&self.patches())? {
            key = key.file(&patch)?;
        }
        for name in [MODULE_SIGNING, RANDSTRUCT_SEED] {
            key = key.add(name, read_key(&self.keys_dir, name)?);
        }
        Ok(key)
    }

    fn fragments(&self) -> PathBuf {
        self.config_dir.join("fragments")
    }

    fn patches(&self) -> PathBuf {
        self.config_dir.join("patches")
    }
}

/// Builds into `out` ([`VMLINUZ`], [`MODULES`], [`DEVICE_TREES`], [`CONFIG`], [`RELEASE`]).
///
/// The source tree (4 GB) and the log `build.log` stay in the cache, one tree for each
/// architecture. The next build is incremental: it compiles only new and affected files.
pub fn build(
    inputs: &Inputs,
    source: &Source,
    llvm: &Llvm,
    cache: &Cache,
    out: &Path,
) -> Result<()> {
    let name = format!("kernel-{}", inputs.arch);
    let kept = cache.tree(&name, &inputs.origin()?, |dir| {
        let tree = dir.join(SOURCE);
        source.unpack(&inputs.lock, &inputs.patches(), &tree, |_| true)?;
        place_keys(&inputs.keys_dir, &tree)
    })?;
    let tree = kept.path().join(SOURCE);
    let requested = Requested::read(&inputs.fragments(), inputs.arch)?;
    let resolved = config::resolve(&tree, inputs.arch, &requested, llvm)?;
    let precompiled = Precompiled::new(&kept.path().join(PRECOMPILED), llvm)?;
    let make = || fixed(inputs, &tree, llvm).arg(precompiled.argument());
    precompiled.compile(&tree, parallel(inputs, make()))?;
    compile(inputs, make(), &kept.path().join("build.log"))?;
    install(inputs, make, &tree, &resolved, out)?;
    kept.settle()
}

fn read_key(dir: &Path, name: &str) -> Result<Vec<u8>> {
    let path = dir.join(name);
    fs::read(&path).or_fail(
        format!("reading the key {}", path.display()),
        "make a key set with `mkimage keys`, or give the directory of one",
    )
}

/// Copies the signing key and the seed to the paths that the kernel's build reads.
fn place_keys(keys: &Path, tree: &Path) -> Result<()> {
    fs::write(tree.join(KEY_IN_TREE), read_key(keys, MODULE_SIGNING)?)?;
    let seed = String::from_utf8_lossy(&read_key(keys, RANDSTRUCT_SEED)?)
        .trim()
        .to_owned();
    if seed.len() != 64 || !seed.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::new(
            format!(
                "{} is not 64 hex digits",
                keys.join(RANDSTRUCT_SEED).display()
            ),
            "make a key set with `mkimage keys`",
        ));
    }
    let script = tree.join("scripts/gen-randstruct-seed.sh");
    if !script.is_file() {
        return Err(Failure::new(
            "the kernel's source no longer generates its seed in scripts/gen-randstruct-seed.sh",
            "adapt mkimage/kernel/src/build.rs to this kernel version",
        ));
    }
    fs::write(&script, seed_script(&seed)).with_context(|| format!("writing {}", script.display()))
}

/// Replaces the script that draws a random seed. Its arguments are the files for the seed and for
/// the seed's hash, which every module carries in its version string.
fn seed_script(seed: &str) -> String {
    use sha2::{Digest as _, Sha256};
    let hash = hex::encode(Sha256::digest(seed));
    format!(
        "#!/bin/sh\necho {seed} > \"$1\"\n\
         echo '#define RANDSTRUCT_HASHED_SEED \"{hash}\"' > \"$2\"\n"
    )
}

/// A call of `make` with fixed values for everything that would otherwise come from the machine.
fn fixed(inputs: &Inputs, tree: &Path, llvm: &Llvm) -> Tool {
    let map = format!("-ffile-prefix-map={}/=", tree.display());
    make(tree, inputs.arch, llvm)
        .env("SOURCE_DATE_EPOCH", inputs.epoch.to_string())
        .env("KBUILD_BUILD_TIMESTAMP", rfc3339(inputs.epoch))
        .env("KBUILD_BUILD_USER", "corten")
        .env("KBUILD_BUILD_HOST", "corten")
        .env("KBUILD_BUILD_VERSION", "1")
        .arg(format!("KCFLAGS={map}"))
        .arg(format!("KAFLAGS={map}"))
}

fn parallel(inputs: &Inputs, make: Tool) -> Tool {
    make.arg(format!("-j{}", inputs.jobs.max(1)))
}

fn compile(inputs: &Inputs, make: Tool, log: &Path) -> Result<()> {
    let image = Path::new(inputs.arch.names().kernel_image);
    let target = image.file_name().unwrap_or_default();
    parallel(inputs, make)
        .arg(target)
        .arg("modules")
        .args(inputs.arch.names().device_trees)
        .log(log)
        .run()
}

/// The options of `strip` for modules, before they are signed. clang's labels, the symbols in front of each function
/// for control-flow integrity, and what only a linker reads are a twentieth of a compressed module. Every function's
/// own symbol stays: stack traces and probes name it.
const STRIP: &str = "--strip-debug --wildcard '--strip-symbol=.Ltmp*' '--strip-symbol=__cfi_*' \
                     --remove-section=.llvm_addrsig --remove-section=.comment";

fn install(
    inputs: &Inputs,
    make: impl Fn() -> Tool,
    tree: &Path,
    resolved: &ResolvedConfig,
    out: &Path,
) -> Result<()> {
    let modules = out.join(MODULES);
    fs::create_dir_all(&modules)?;
    parallel(inputs, make())
        .arg(format!(
            "INSTALL_MOD_PATH={}",
            fs::canonicalize(&modules)?.display()
        ))
        .arg(format!("INSTALL_MOD_STRIP={STRIP}"))
        .arg("modules_install")
        .run()?;
    let release = make().args(["-s", "kernelrelease"]).output()?;
    let release = String::from_utf8_lossy(&release).trim().to_owned();
    let installed = modules.join("lib/modules").join(&release);
    // Links into the build tree, which are dangling in the output.
    for link in ["build", "source"] {
        let link = installed.join(link);
        if link.symlink_metadata().is_ok() {
            fs::remove_file(&link)?;
        }
    }
    for list in ["modules.dep", "modules.alias", "modules.builtin"] {
        let list = installed.join(list);
        if !list.is_file() {
            return Err(Failure::new(
                format!("the kernel's build did not produce {}", list.display()),
                "install kmod (depmod) with `make deps`",
            ));
        }
    }
    let image = tree.join(inputs.arch.names().kernel_image);
    fs::copy(&image, out.join(VMLINUZ)).with_context(|| format!("copying {}", image.display()))?;
    install_device_trees(inputs.arch, tree, &out.join(DEVICE_TREES))?;
    fs::write(out.join(CONFIG), resolved.golden())?;
    fs::write(out.join(RELEASE), release)?;
    Ok(())
}

fn install_device_trees(arch: Arch, tree: &Path, out: &Path) -> Result<()> {
    let built = tree.join("arch").join(arch.names().kernel).join("boot/dts");
    for name in arch.names().device_trees {
        let to = out.join(name);
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::copy(built.join(name), &to)
            .with_context(|| format!("copying the device tree {name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_script_writes_the_given_seed_and_its_hash() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("seed.sh");
        fs::write(&script, seed_script("00ff")).unwrap();
        Tool::new("sh")
            .dir(dir.path())
            .arg(&script)
            .args(["seed", "hash.h"])
            .run()
            .unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("seed")).unwrap(),
            "00ff\n"
        );
        assert_eq!(
            fs::read_to_string(dir.path().join("hash.h")).unwrap(),
            "#define RANDSTRUCT_HASHED_SEED \
             \"8909cde2f411a84e86e7a39c8a3916b7cda6a9d977778030b6f6a491401400bc\"\n"
        );
    }

    #[test]
    fn a_malformed_seed_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("certs")).unwrap();
        fs::write(dir.path().join(MODULE_SIGNING), "key").unwrap();
        fs::write(dir.path().join(RANDSTRUCT_SEED), "00\n").unwrap();
        let error = place_keys(dir.path(), dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("is not 64 hex digits"), "{error}");
    }
}
