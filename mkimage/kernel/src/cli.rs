//! `mkimage kernel …`: shows, changes and checks the kernel config, or builds the kernel alone.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use corten_steps::arch::Arch;
use corten_steps::cache::{Cache, remove_tree};
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::fetch::Fetcher;
use corten_steps::lock::Lock;

use crate::build::{self, Inputs};
use crate::config::{self, ResolvedConfig};
use crate::diff::diff;
use crate::fragments::Requested;
use crate::hardening::{self, Verdict};
use crate::keys;
use crate::llvm::{self, Llvm};
use crate::source::{Source, SourceLock, of_config};

/// Arguments of `mkimage kernel`.
#[derive(Debug, Clone, Args)]
pub struct KernelArgs {
    /// The verb.
    #[command(subcommand)]
    pub command: KernelCommand,
    /// Kernel source tarball, instead of the mirror's package; its checksum must match the lock
    #[arg(long, value_name = "FILE", global = true)]
    pub kernel_source: Option<PathBuf>,
}

/// The verbs of `mkimage kernel`.
#[derive(Debug, Clone, Subcommand)]
pub enum KernelCommand {
    /// Resolve the fragments and print the complete config.
    Config {
        /// The architecture.
        #[arg(long, default_value = "x86_64")]
        arch: Arch,
        /// Write the config to kernel-config/golden instead.
        #[arg(long)]
        write: bool,
    },
    /// Show the difference between the golden config and the fragments.
    Diff {
        /// The architecture.
        #[arg(long, default_value = "x86_64")]
        arch: Arch,
    },
    /// Check golden config, kernel parameters and sysctls with kernel-hardening-checker.
    Check {
        /// The architecture.
        #[arg(long, default_value = "x86_64")]
        arch: Arch,
    },
    /// Build vmlinuz and the modules, and print their paths.
    Build {
        /// The architecture.
        #[arg(long, default_value = "x86_64")]
        arch: Arch,
        /// Key set [default: the published development keys]
        #[arg(long, value_name = "DIR")]
        keys: Option<PathBuf>,
        /// Parallel compilers [default: the number of processors]
        #[arg(long, short)]
        jobs: Option<usize>,
    },
}

/// The files and caches of the kernel verbs.
#[derive(Debug)]
pub struct Paths {
    /// `kernel-config/` of the repository.
    pub config_dir: PathBuf,
    /// The locked packages, including the compiler.
    pub lock: Lock,
    /// The cache.
    pub cache: Cache,
    /// Fetches the locked packages.
    pub fetcher: Fetcher,
    /// A source tarball in place of the locked package.
    pub kernel_source: Option<PathBuf>,
}

/// Runs one verb; its result goes to standard output.
pub fn run(command: &KernelCommand, paths: &Paths) -> Result<()> {
    match command {
        KernelCommand::Config { arch, write } => {
            let resolved = resolve(paths, *arch)?.golden();
            if !write {
                print!("{resolved}");
                return Ok(());
            }
            let file = golden_path(&paths.config_dir, *arch);
            fs::write(&file, resolved)
                .or_fail(format!("writing {}", file.display()), "make it writable")
        }
        KernelCommand::Diff { arch } => {
            let now = resolve(paths, *arch)?;
            for line in diff(&golden(&paths.config_dir, *arch)?, &now) {
                println!("{line}");
            }
            Ok(())
        }
        KernelCommand::Check { arch } => {
            let verdict = check(paths, *arch)?;
            for kind in ["kconfig", "cmdline", "sysctl"] {
                let (ok, fail) = verdict.counts(Some(kind));
                println!("{kind:8} {ok:4} OK {fail:4} FAIL");
            }
            let (ok, fail) = verdict.counts(None);
            println!("{:8} {ok:4} OK {fail:4} FAIL", "all");
            verdict.require()
        }
        KernelCommand::Build { arch, keys, jobs } => {
            let inputs = inputs(paths, *arch, keys.as_deref(), *jobs)?;
            let built = paths.cache.step("kernel", &inputs.key()?, |out, _| {
                let compiler = compiler(paths)?;
                build::build(&inputs, &source(paths)?, &compiler, &paths.cache, out)
            })?;
            println!("{}", built.display());
            Ok(())
        }
    }
}

/// The golden config: the committed result of resolving the fragments.
pub fn golden(config_dir: &Path, arch: Arch) -> Result<ResolvedConfig> {
    let path = golden_path(config_dir, arch);
    let text = fs::read_to_string(&path).or_fail(
        format!("there is no golden kernel config {}", path.display()),
        format!("make it with `mkimage kernel config --arch {arch} --write`"),
    )?;
    Ok(ResolvedConfig::parse(&text))
}

/// Resolves the current fragments.
pub fn resolve(paths: &Paths, arch: Arch) -> Result<ResolvedConfig> {
    let requested = Requested::read(&paths.config_dir.join("fragments"), arch)?;
    let lock = SourceLock::read(&paths.config_dir)?.kernel;
    let source = source(paths)?;
    let work = tempfile::tempdir_in(paths.cache.root().join("work"))
        .context("making a directory for the kernel's source in the cache")?;
    let tree = work.path().join("linux");
    source.unpack(&lock, &paths.config_dir.join("patches"), &tree, of_config)?;
    config::resolve(&tree, arch, &requested, &compiler(paths)?)
}

/// Runs the checker on the golden config.
pub fn check(paths: &Paths, arch: Arch) -> Result<Verdict> {
    let lock = SourceLock::read(&paths.config_dir)?;
    let checker = paths.fetcher.package(&lock.checker.package())?;
    let golden = golden(&paths.config_dir, arch)?;
    let scratch = paths
        .cache
        .root()
        .join("work")
        .join(format!("hardening-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    let verdict = hardening::check(&checker, &golden, &paths.config_dir, arch, &scratch);
    remove_tree(&scratch)?;
    verdict
}

/// The inputs of a build; without `keys`, the published development keys.
pub fn inputs(
    paths: &Paths,
    arch: Arch,
    keys: Option<&Path>,
    jobs: Option<usize>,
) -> Result<Inputs> {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Inputs {
        lock: SourceLock::read(&paths.config_dir)?.kernel,
        arch,
        config_dir: paths.config_dir.clone(),
        keys_dir: keys::directory(&paths.config_dir, keys),
        compiler: llvm::key(&paths.lock),
        epoch: crate::EPOCH,
        jobs: jobs.unwrap_or_else(processors),
    })
}

/// The locked compiler, fetched if it is not in the cache.
pub fn compiler(paths: &Paths) -> Result<Llvm> {
    Llvm::get(&paths.lock, &paths.fetcher, &paths.cache)
}

/// The user's tarball, or the locked package, fetched if it is not in the cache.
pub fn source(paths: &Paths) -> Result<Source> {
    if let Some(file) = &paths.kernel_source {
        return Ok(Source::Tarball(file.clone()));
    }
    let lock = SourceLock::read(&paths.config_dir)?.kernel;
    let package = paths.fetcher.package(&lock.package()).or_fail(
        format!(
            "the kernel's source {} is not available",
            lock.package().version
        ),
        "give its tarball with --kernel-source, set a mirror that has it (such as a snapshot archive) in \
         CORTEN_MIRRORS, or lock another version; the builder never replaces the kernel by itself",
    )?;
    Ok(Source::Package(package))
}

fn golden_path(config_dir: &Path, arch: Arch) -> PathBuf {
    config_dir.join("golden").join(format!("{arch}.config"))
}

/// An error if the golden config differs from the resolved fragments.
pub fn require_golden(paths: &Paths, arch: Arch) -> Result<()> {
    let changes = diff(&golden(&paths.config_dir, arch)?, &resolve(paths, arch)?);
    if changes.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        format!(
            "the fragments differ from the golden config:\n  {}",
            changes.join("\n  ")
        ),
        format!("accept the change with `mkimage kernel config --arch {arch} --write`"),
    ))
}
