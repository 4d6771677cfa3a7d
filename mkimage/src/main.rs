//! `mkimage`: builds the images. `mkimage --help` lists the verbs, docs/building.md explains them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use mkimage::arch::Arch;
use mkimage::archive;
use mkimage::build::{self, Options};
use mkimage::cache::Cache;
use mkimage::cache::trust::{PublicKey, Signer};
use mkimage::error::{Failure, Result};
use mkimage::fetch::Fetcher;
use mkimage::image::inspect;
use mkimage::interrupt;
use mkimage::kernel::{self, cli::KernelArgs};
use mkimage::keys;
use mkimage::lock::{self, Lock};
use mkimage::platform::Platform;
use mkimage::profile::{Extension, Output, Profile};
use mkimage::report::{self, Format};

/// Builds bit-identical Corten images, without root.
#[derive(Debug, Parser)]
#[command(name = "mkimage", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// The cache of fetched files and finished steps [default: ~/.cache/corten]
    #[arg(long, env = "CORTEN_CACHE", global = true)]
    cache: Option<PathBuf>,
    /// A second, read-only cache: to take fetched files from, and finished steps that a --trust key has signed
    #[arg(long, global = true)]
    substituter: Vec<PathBuf>,
    /// A public key (cache.pub of a key set) whose signed steps are taken from --substituter
    #[arg(long, value_name = "FILE", global = true)]
    trust: Vec<PathBuf>,
    /// The source tree
    #[arg(long, default_value = ".", global = true)]
    source: PathBuf,
    /// How progress and results are printed
    #[arg(long, value_enum, default_value = "text", global = true)]
    format: Format,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build images
    Build(BuildArgs),
    /// Print the recipe and what of it is cached
    Plan(BuildArgs),
    /// Rebuild an image, of the architecture it is for, and name the first part of it that differs
    Verify {
        /// The image to verify, or the directory of a network boot bundle
        image: PathBuf,
        /// Take finished steps from the cache too, instead of making every one again
        #[arg(long)]
        trust_cache: bool,
        #[command(flatten)]
        build: BuildArgs,
    },
    /// Print the SPDX bill of materials of what a build would contain
    Sbom(BuildArgs),
    /// Say what is in an image
    Inspect {
        /// An image of any format, or the directory of a network boot bundle
        image: PathBuf,
    },
    /// Look after the cache
    #[command(subcommand)]
    Cache(CacheCommand),
    /// Make a set of build keys: module signing, structure layout, Secure Boot, finished steps
    Keys {
        /// The directory to fill; it must not exist
        dir: PathBuf,
    },
    /// Move the locks to the newest versions of their suites
    Lock,
    /// Work on the kernel's configuration
    Kernel(KernelArgs),
}

#[derive(Debug, Subcommand)]
enum CacheCommand {
    /// Remove what no build of this source tree needs: with these options, or for any architecture without them
    Prune(Box<BuildArgs>),
    /// Sign finished steps, so that builds that name the key take them from this cache
    Sign {
        /// The key set with cache.key, made by `mkimage keys`
        #[arg(long)]
        keys: PathBuf,
        /// The steps to sign, such as kernel [default: all]
        step: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct BuildArgs {
    /// A profile file (TOML); the flags below override it
    #[arg(long)]
    profile: Option<PathBuf>,
    /// x86_64 (amd64) or arm64 (aarch64)
    #[arg(long)]
    arch: Option<Arch>,
    /// The formats to build; if left out, the one the platform takes, or all there are for the architecture
    #[arg(long, value_delimiter = ',')]
    output: Vec<Output>,
    /// The cloud the image is for, such as aws or openstack [default: metal]
    #[arg(long)]
    platform: Option<Platform>,
    /// Where finished images go
    #[arg(long, default_value = "_out")]
    out: PathBuf,
    /// A kernel parameter to add
    #[arg(long = "kernel-argument")]
    kernel_arguments: Vec<String>,
    /// A META value, such as 0x0a=VALUE
    #[arg(long, value_parser = meta_value)]
    meta: Vec<(String, String)>,
    /// A machine config to embed
    #[arg(long)]
    config: Option<PathBuf>,
    /// A system extension to add: an OCI archive, as FILE or FILE@sha256:HEX
    #[arg(long)]
    extension: Vec<Extension>,
    /// An image overlay for a board: the directory that holds it
    #[arg(long)]
    overlay: Option<PathBuf>,
    /// The directory of the board's boot firmware, where the overlay asks for some
    #[arg(long)]
    firmware: Option<PathBuf>,
    /// Build soon instead of small: for development, refused with --release
    #[arg(long, conflicts_with = "release")]
    quick: bool,
    /// Put the container images of Kubernetes onto disk images, where the node finds them without a network
    #[arg(long)]
    with_images: bool,
    /// The key set, made by `mkimage keys` [default: the published development keys]
    #[arg(long)]
    keys: Option<PathBuf>,
    /// The kernel source tarball, instead of the mirror's package (same checksum rule)
    #[arg(long)]
    kernel_source: Option<PathBuf>,
    /// Fetch nothing
    #[arg(long)]
    offline: bool,
    /// Refuse a package that is not the locked one, also when the mirrors have moved on
    #[arg(long)]
    release: bool,
    /// How many processes a step may run [default: the processors there are]
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
        Fetcher::new(self.cache.clone(), false, build::mirrors())
    }
}

fn run(cli: Cli) -> Result<()> {
    interrupt::install()?;
    let root = match cli.cache {
        Some(path) => path,
        None => std::env::home_dir()
            .map(|home| home.join(".cache/corten"))
            .ok_or_else(|| {
                Failure::new(
                    "there is no home directory for the cache",
                    "set CORTEN_CACHE",
                )
            })?,
    };
    let source = std::fs::canonicalize(&cli.source)?;
    let trusted = cli.trust.iter().map(|file| PublicKey::read(file));
    let shared = Shared {
        source,
        cache: Cache::open(&root, cli.substituter)?
            .trusting(trusted.collect::<Result<_>>()?)
            .reporting(cli.format),
        format: cli.format,
    };
    match cli.command {
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
        Command::Kernel(args) => kernel::cli::run(
            &args.command,
            &kernel::cli::Paths {
                config_dir: shared.source.join(kernel::CONFIG_DIR),
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
