//! `mkimage`: builds the images. `mkimage --help` lists the verbs, docs/building.md explains them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use corten_image::inspect;
use corten_kernel::CONFIG_DIR;
use corten_kernel::cli::{self, KernelArgs};
use corten_rootfs::order;
use corten_steps::arch::Arch;
use corten_steps::archive;
use corten_steps::cache::Cache;
use corten_steps::cache::trust::{PublicKey, Signer};
use corten_steps::error::{Failure, Result};
use corten_steps::fetch::{Fetcher, mirrors};
use corten_steps::interrupt;
use corten_steps::lock::{self, Lock};
use corten_steps::report::{self, Format};
use mkimage::build::{self, Options};
use mkimage::keys;
use mkimage::output::Output;
use mkimage::platform::Platform;
use mkimage::profile::{Extension, Profile};

/// Builds bit-identical Corten images, without root.
#[derive(Debug, Parser)]
#[command(name = "mkimage", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    call: Call,
    #[command(flatten)]
    place: Place,
}

/// Where every verb reads and writes.
#[derive(Debug, Args)]
struct Place {
    /// Cache of fetched files and finished steps [default: ~/.cache/corten]
    #[arg(long, env = "CORTEN_CACHE", global = true)]
    cache: Option<PathBuf>,
    /// Second, read-only cache, for fetched files and for finished steps signed by a --trust key
    #[arg(long, global = true)]
    substituter: Vec<PathBuf>,
    /// Public key (cache.pub of a key set) that must sign the steps of --substituter
    #[arg(long, value_name = "FILE", global = true)]
    trust: Vec<PathBuf>,
    /// The source tree
    #[arg(long, default_value = ".", global = true)]
    source: PathBuf,
    /// Format of progress and results
    #[arg(long, value_enum, default_value = "text", global = true)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Call {
    #[command(flatten)]
    Verb(Box<Command>),
    /// Link a program for rustc, the functions that a node uses beside each other
    #[command(hide = true)]
    Link {
        /// The C compiler
        linker: PathBuf,
        /// The list of functions
        used: PathBuf,
        /// Directory for the list of the program's functions
        tables: PathBuf,
        /// rustc's arguments
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build images
    Build(BuildArgs),
    /// Print the build steps and whether each one is in the cache
    Plan(BuildArgs),
    /// Rebuild an image and report the first part that differs
    Verify {
        /// The image to verify, or the directory of a network boot bundle
        image: PathBuf,
        /// Use finished steps of the cache instead of rebuilding every step
        #[arg(long)]
        trust_cache: bool,
        #[command(flatten)]
        build: BuildArgs,
    },
    /// Print the SPDX bill of materials of a build
    Sbom(BuildArgs),
    /// Show the content of an image
    Inspect {
        /// An image of any format, or the directory of a network boot bundle
        image: PathBuf,
    },
    /// Prune or sign the cache
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Generate a key set: module signing, structure layout, Secure Boot, finished steps
    Keys {
        /// Directory to create; it must not exist
        dir: PathBuf,
    },
    /// Update the lock files to the newest package versions of their suites
    Lock,
    /// Show, compare, check and build the kernel configuration
    Kernel(KernelArgs),
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Remove entries that no build of this source tree needs, with these options or without them for any architecture
    Prune(Box<BuildArgs>),
    /// Sign finished steps, so that builds with --trust use them from this cache
    Sign {
        /// Key set with cache.key, made by `mkimage keys`
        #[arg(long)]
        keys: PathBuf,
        /// Steps to sign, such as kernel [default: all]
        step: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct BuildArgs {
    /// Profile file (TOML); the flags override it
    #[arg(long)]
    profile: Option<PathBuf>,
    /// Architecture: x86_64 (amd64) or arm64 (aarch64)
    #[arg(long)]
    arch: Option<Arch>,
    /// Formats to build [default: the format of the platform, or every format of the architecture]
    #[arg(long, value_delimiter = ',')]
    output: Vec<Output>,
    /// Platform of the image, such as aws or openstack [default: metal]
    #[arg(long)]
    platform: Option<Platform>,
    /// Directory for finished images
    #[arg(long, default_value = "_out")]
    out: PathBuf,
    /// Kernel parameter to add
    #[arg(long = "kernel-argument")]
    kernel_arguments: Vec<String>,
    /// META value, such as 0x0a=VALUE
    #[arg(long, value_parser = meta_value)]
    meta: Vec<(String, String)>,
    /// Machine config to embed
    #[arg(long)]
    config: Option<PathBuf>,
    /// System extension to add: an OCI archive, as FILE or FILE@sha256:HEX
    #[arg(long)]
    extension: Vec<Extension>,
    /// Directory of the image overlay for a board
    #[arg(long)]
    overlay: Option<PathBuf>,
    /// Directory of the board's boot firmware, if the overlay needs it
    #[arg(long)]
    firmware: Option<PathBuf>,
    /// Build faster, with larger programs; for development, not with --release
    #[arg(long, conflicts_with = "release")]
    quick: bool,
    /// Put the container images of Kubernetes on disk images, so that the node needs no network for them
    #[arg(long)]
    with_images: bool,
    /// Key set, made by `mkimage keys` [default: the published development keys]
    #[arg(long)]
    keys: Option<PathBuf>,
    /// Certificate (db.crt) of a further key whose images the node installs
    #[arg(long, value_name = "CERTIFICATE")]
    accept_key: Vec<PathBuf>,
    /// Kernel source tarball, instead of the mirror's package; its checksum must match the lock
    #[arg(long)]
    kernel_source: Option<PathBuf>,
    /// Use the cache only, without the network
    #[arg(long)]
    offline: bool,
    /// Build only with the locked packages, even if the mirrors no longer have them
    #[arg(long)]
    release: bool,
    /// Parallel processes of a step [default: the number of processors]
    #[arg(long, short)]
    jobs: Option<usize>,
}

fn meta_value(text: &str) -> std::result::Result<(String, String), String> {
    let (tag, value) = text
        .split_once('=')
        .ok_or("expected TAG=VALUE, such as 0x0a=text")?;
    Ok((tag.to_owned(), value.to_owned()))
}

impl BuildArgs {
    fn options(self, cli: &Shared) -> Result<Options> {
        let mut profile = match &self.profile {
            Some(path) => Profile::read(path)?,
            None => Profile::default(),
        };
        profile.arch = self.arch.unwrap_or(profile.arch);
        if !self.output.is_empty() {
            profile.output = self.output;
        }
        profile.platform = self.platform.or(profile.platform);
        profile.kernel_arguments.extend(self.kernel_arguments);
        profile.meta.extend(self.meta);
        profile.config = self.config.or(profile.config);
        profile.extensions.extend(self.extension);
        profile.overlay = self.overlay.or(profile.overlay);
        profile.firmware = self.firmware.or(profile.firmware);
        profile.accepted_keys.extend(self.accept_key);
        profile.quick |= self.quick;
        profile.with_images |= self.with_images;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Options {
            source: cli.source.clone(),
            cache: cli.cache.clone(),
            profile,
            out: self.out,
            keys: self.keys,
            kernel_source: self.kernel_source,
            offline: self.offline,
            release: self.release,
            jobs: self.jobs.unwrap_or(processors).max(1),
            format: cli.format,
        })
    }
}

/// The options of every verb.
struct Shared {
    source: PathBuf,
    cache: Cache,
    format: Format,
}

impl Shared {
    fn fetcher(&self) -> Fetcher {
        Fetcher::new(self.cache.clone(), false, mirrors())
    }
}

impl Place {
    fn open(self) -> Result<Shared> {
        let root = match self.cache {
            Some(path) => path,
            None => std::env::home_dir()
                .map(|home| home.join(".cache/corten"))
                .ok_or_else(|| {
                    Failure::new(
                        "the cache has no directory: HOME is not set",
                        "set CORTEN_CACHE",
                    )
                })?,
        };
        let trusted = self.trust.iter().map(|file| PublicKey::read(file));
        Ok(Shared {
            source: std::fs::canonicalize(&self.source)?,
            cache: Cache::open(&root, self.substituter)?
                .trusting(trusted.collect::<Result<_>>()?)
                .reporting(self.format),
            format: self.format,
        })
    }
}

fn run(cli: Cli) -> Result<()> {
    interrupt::install()?;
    match cli.call {
        Call::Verb(command) => verb(*command, cli.place.open()?),
        Call::Link {
            linker,
            used,
            tables,
            arguments,
        } => order::link(&order::Link {
            linker: &linker,
            used: &used,
            tables: &tables,
            arguments: &arguments,
        }),
    }
}

fn verb(command: Command, shared: Shared) -> Result<()> {
    match command {
        Command::Build(args) => build::build(&args.options(&shared)?).map(drop),
        Command::Plan(args) => build::plan(&args.options(&shared)?),
        Command::Verify {
            image,
            trust_cache,
            build,
        } => {
            let arch = build.arch;
            build::verify(&build.options(&shared)?, &image, arch, trust_cache)
        }
        Command::Cache(CacheCommand::Prune(args)) => build::prune(&args.options(&shared)?),
        Command::Cache(CacheCommand::Sign { keys, step }) => {
            let signed = shared.cache.sign(&Signer::read(&keys)?, &step)?;
            report::print(&signed.iter().fold(String::new(), |text, entry| {
                text + &match shared.format {
                    Format::Text => format!("{entry}\n"),
                    Format::Json => format!("{}\n", serde_json::json!({"signed": entry})),
                }
            }))
        }
        Command::Sbom(args) => build::sbom(&args.options(&shared)?),
        Command::Inspect { image } => {
            let found = inspect::inspect(&image)?;
            match shared.format {
                Format::Text => report::print(&found.to_string()),
                Format::Json => {
                    report::print(&format!("{}\n", serde_json::to_string_pretty(&found)?))
                }
            }
        }
        Command::Keys { dir } => keys::make(&dir),
        Command::Lock => archive::update(&shared.source, &shared.fetcher()),
        Command::Kernel(args) => cli::run(
            &args.command,
            &cli::Paths {
                config_dir: shared.source.join(CONFIG_DIR),
                lock: Lock::read(&shared.source.join(lock::PACKAGES))?,
                fetcher: shared.fetcher(),
                cache: shared.cache,
                kernel_source: args.kernel_source,
            },
        ),
    }
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mkimage: {error:#}");
            // A [`Failure`] added as context is found by downcasting the error, not along its
            // chain.
            let inner = || {
                error
                    .chain()
                    .find_map(|cause| cause.downcast_ref::<Failure>())
            };
            if let Some(failure) = error.downcast_ref::<Failure>().or_else(inner) {
                eprintln!("remedy: {}", failure.remedy());
            }
            ExitCode::FAILURE
        }
    }
}
