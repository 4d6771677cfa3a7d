//! The verbs of the builder: build, plan, verify, prune, and bill of materials.

mod bill;
mod context;
mod foundation;
mod images;
mod layers;
mod origin;
mod outputs;
mod place;
mod programs;
mod prune;
mod rootfs;
mod signed;
mod steps;
mod verify;

use std::fs;
use std::path::PathBuf;

use corten_image::{Release, checksums, ova, provenance, sbom};
use corten_kernel::{CONFIG_DIR, keys};
use corten_steps::archive::{self, Substitution};
use corten_steps::cache::Cache;
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::fetch::{Fetcher, Gone, mirrors};
use corten_steps::lock::{self, Lock};
use corten_steps::recipe::{Built, Recipe};
use corten_steps::report::{self, Format, Reporter};

use crate::output::Output;
use crate::overlay::Overlay;
use crate::profile::Profile;

use context::Context;
pub use prune::prune;
use steps::Handles;
pub use verify::verify;

/// The options of a build.
#[derive(Debug, Clone)]
pub struct Options {
    /// The source tree.
    pub source: PathBuf,
    /// The cache.
    pub cache: Cache,
    /// The profile to build.
    pub profile: Profile,
    /// The output directory of finished images.
    pub out: PathBuf,
    /// The key set; `None` is the published development keys.
    pub keys: Option<PathBuf>,
    /// A kernel tarball in place of the locked package.
    pub kernel_source: Option<PathBuf>,
    /// Fetch nothing.
    pub offline: bool,
    /// Use exactly the locked packages; fail when the mirrors no longer have one.
    pub release: bool,
    /// The number of processes a step may run.
    pub jobs: usize,
    /// How progress is shown.
    pub format: Format,
}

impl Options {
    /// The directory of the key set.
    pub fn key_set(&self) -> PathBuf {
        let config_dir = self.source.join(CONFIG_DIR);
        keys::directory(&config_dir, self.keys.as_deref())
    }

    /// A fetcher of locked packages; `CORTEN_MIRRORS` replaces the host's mirrors.
    pub fn fetcher(&self) -> Fetcher {
        Fetcher::new(self.cache.clone(), self.offline, mirrors())
    }
}

/// The warning about an image without a date: its nodes refuse no time as too early or too late.
const UNDATED: &str = "the image has no date, the lower bound of a node's clock; set one: \
                       export SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)";

/// The version and the date of the build, from `CORTEN_VERSION` and `SOURCE_DATE_EPOCH`.
fn release(options: &Options) -> Result<Release> {
    let epoch = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text.parse().or_fail(
            format!("SOURCE_DATE_EPOCH is {text:?}"),
            "set it to seconds since 1970, or unset it",
        )?,
        Err(_) => 0,
    };
    let version =
        std::env::var("CORTEN_VERSION").unwrap_or_else(|_| env!("CARGO_PKG_VERSION").to_owned());
    let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    if version.is_empty() || !version.chars().all(plain) {
        return Err(Failure::new(
            format!("CORTEN_VERSION is {version:?}"),
            "use letters, digits and . _ + - only",
        ));
    }
    Ok(Release {
        version,
        arch: options.profile.arch,
        epoch,
    })
}

/// The commit of the sources, from `CORTEN_COMMIT`, as git describes it.
fn commit() -> Result<Option<String>> {
    let commit = std::env::var("CORTEN_COMMIT").unwrap_or_default();
    if commit.is_empty() {
        return Ok(None);
    }
    let hash = commit.strip_suffix("-dirty").unwrap_or(&commit);
    if hash.len() > 40 || !hash.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(Failure::new(
            format!("CORTEN_COMMIT is {commit:?}"),
            "set it to the output of `git describe --always --dirty --exclude '*'`, or unset it",
        ));
    }
    Ok(Some(commit))
}

fn context(options: &Options) -> Result<Context> {
    options.profile.meta_values()?;
    layers::check_config(&options.profile)?;
    if options.profile.quick && options.release {
        return Err(Failure::new(
            "a quick build cannot be a release",
            "remove --release, or `quick` of the profile",
        ));
    }
    let mut disks = options.profile.output.iter();
    if options.profile.with_images
        && !options.profile.output.is_empty()
        && !disks.any(|output| output.holds_disk())
    {
        return Err(Failure::new(
            "no format of --output has a disk for the container images",
            "remove --with-images (`with-images` of the profile), or add raw to --output",
        ));
    }
    let overlay = match &options.profile.overlay {
        Some(dir) => {
            let firmware = options.profile.firmware.as_deref();
            Overlay::read(dir, firmware, options.profile.arch)?
        }
        None => Overlay::default(),
    };
    let mut options = options.clone();
    options.profile.output = formats(&options.profile, &overlay)?;
    let context = Context {
        overlay,
        lock: Lock::read(&options.source.join(lock::PACKAGES))?,
        fetcher: options.fetcher(),
        release: release(&options)?,
        commit: commit()?,
        options,
        substituted: Vec::new(),
    };
    steps::command_line(&context)?;
    Ok(context)
}

/// The formats that the profile asks for, else the platform's, else all that can be built.
fn formats(profile: &Profile, overlay: &Overlay) -> Result<Vec<Output>> {
    let fits = |output: &Output| output.holds_disk() || !overlay.is_of_disk();
    let asked = match (profile.output.as_slice(), profile.platform) {
        ([], None) => return Ok(Output::of(profile.arch).filter(fits).collect()),
        ([], Some(platform)) => vec![platform.output(profile.arch)],
        (asked, _) => asked.to_vec(),
    };
    if asked.contains(&Output::Ova) {
        ova::guest(profile.arch)?;
    }
    match asked.iter().find(|output| !fits(output)) {
        None => Ok(asked),
        Some(output) => Err(Failure::new(
            format!(
                "the overlay for {} needs a disk, but {output} has none",
                overlay.name.as_deref().unwrap_or_default()
            ),
            "remove that format from --output (`output` of the profile), or build it without the overlay",
        )),
    }
}

/// The result of a build.
#[derive(Debug)]
struct Finished {
    /// The images, in the order of [`crate::output::Output::ALL`].
    files: Vec<PathBuf>,
    /// The output of the step `tools`.
    tools: PathBuf,
}

/// Builds the profile's outputs into the output directory; returns the files' paths.
///
/// A locked package that the mirrors have removed is replaced by the newest of its suite, unless
/// this is a release.
pub fn build(options: &Options) -> Result<Vec<PathBuf>> {
    finish(options).map(|finished| finished.files)
}

fn finish(options: &Options) -> Result<Finished> {
    let mut context = context(options)?;
    if context.release.epoch == 0 && context.options.profile.output != [Output::Images] {
        report::warn(options.format, UNDATED);
    }
    loop {
        match attempt(&context) {
            Ok(finished) => return Ok(finished),
            Err(error) => substitute(&mut context, error)?,
        }
    }
}

/// Replaces the package that the error reports as gone; returns every other error.
fn substitute(context: &mut Context, error: anyhow::Error) -> Result<()> {
    let gone = match error.downcast_ref::<Gone>() {
        Some(gone) if !context.options.release => gone.package.clone(),
        _ => return Err(error),
    };
    let taken = archive::substitute(&mut context.lock, &gone, &context.fetcher)?;
    // The kernel is locked separately, together with the config made for it, and has no
    // replacement.
    if taken.is_empty() {
        return Err(error);
    }
    for Substitution { locked, used } in &taken {
        report::warn(
            context.options.format,
            &format!(
                "no mirror has {} {} ({}) any more; using {} instead, which the archive signed. \
                 This image differs from the lock; its provenance records that",
                locked.name, locked.version, locked.arch, used.version
            ),
        );
    }
    context.substituted.extend(taken);
    Ok(())
}

fn attempt(context: &Context) -> Result<Finished> {
    if context.options.profile.output == [Output::Images] {
        return images::build(context);
    }
    let options = &context.options;
    let mut recipe = Recipe::default();
    let handles = steps::add(&mut recipe, context)?;
    let outputs = outputs::add(&mut recipe, context, &handles)?;
    let reporter = Reporter::new(options.format, recipe.steps().len());
    let built = recipe.run(&options.cache, &reporter)?;
    fs::create_dir_all(&options.out).or_fail(
        format!("creating {}", options.out.display()),
        "set --out to a writable directory",
    )?;
    let mut files = Vec::new();
    for (output, handle) in outputs {
        let target = options
            .out
            .join(format!("{}{}", context.stem(), output.suffix()));
        let made = built.dir(&handle).join(context.file(output));
        place::copy(&made, &target)?;
        reporter.output(&target);
        files.push(target);
    }
    for description in describe(context, &handles, &built, &files)? {
        reporter.output(&description);
    }
    Ok(Finished {
        files,
        tools: built.dir(&handles.tools).to_owned(),
    })
}

/// Writes checksums, bill of materials and provenance beside the images; returns their paths.
fn describe(
    context: &Context,
    handles: &Handles,
    built: &Built,
    files: &[PathBuf],
) -> Result<[PathBuf; 3]> {
    let (release, out) = (&context.release, &context.options.out);
    // Only of this architecture and board: images of others are in the same directory.
    let described = ["spdx.json", "provenance.json", "SHA256SUMS"]
        .map(|what| out.join(format!("{}.{what}", context.stem())));
    let [bill, origin, sums] = &described;
    let components = handles.files.bill.components(context, built)?;
    place::whole(bill, |file| sbom::write(file, release, &components))?;
    let mut all = files.to_vec();
    all.push(bill.clone());
    let provenance = origin::of(context, &all)?;
    place::whole(origin, |file| provenance::write(file, release, &provenance))?;
    all.push(origin.clone());
    place::whole(sums, |file| checksums::write(file, &all))?;
    Ok(described)
}

/// Prints the recipe: each step, its key, and whether its output is in the cache.
pub fn plan(options: &Options) -> Result<()> {
    let context = context(options)?;
    let mut recipe = Recipe::default();
    if context.options.profile.output == [Output::Images] {
        images::alone(&mut recipe, &context)?;
    } else {
        let handles = steps::add(&mut recipe, &context)?;
        outputs::add(&mut recipe, &context, &handles)?;
    }
    let mut lines = String::new();
    for step in recipe.steps() {
        let output = options.cache.lookup(&step.name, &step.key);
        let cached = output.is_some();
        lines += &match options.format {
            Format::Text => {
                let state = if cached { "cached" } else { "to build" };
                format!("{:12} {} {state}\n", step.name, step.key.as_str())
            }
            Format::Json => {
                let key = step.key.as_str();
                let step = &step.name;
                format!(
                    "{}\n",
                    serde_json::json!({"step": step, "key": key, "cached": cached, "output": output})
                )
            }
        };
    }
    report::print(&lines)
}

/// Prints the bill of materials of a build.
pub fn sbom(options: &Options) -> Result<()> {
    let context = context(options)?;
    let mut recipe = Recipe::default();
    let handles = steps::add(&mut recipe, &context)?;
    let reporter = Reporter::new(options.format, recipe.steps().len());
    let built = recipe.run(&options.cache, &reporter)?;
    let components = handles.files.bill.components(&context, &built)?;
    report::print(&format!(
        "{}\n",
        sbom::document(&context.release, &components)?
    ))
}

#[cfg(test)]
mod tests {
    use corten_steps::arch::Arch;

    use super::*;

    #[test]
    fn board_gets_the_disk_formats_and_an_architecture_all_its_formats() {
        let built = |arch: Arch, output: &[Output], overlay: &Overlay| {
            let profile = Profile {
                arch,
                output: output.to_vec(),
                ..Profile::default()
            };
            formats(&profile, overlay)
        };
        let none = Overlay::default();
        for arch in Arch::ALL {
            let all: Vec<_> = Output::of(arch).collect();
            assert_eq!(built(arch, &[], &none).unwrap(), all);
        }
        let ova = built(Arch::Arm64, &[Output::Ova], &none).unwrap_err();
        assert!(ova.to_string().contains("no OVA for arm64"), "{ova}");

        let board = Overlay {
            name: Some("board".to_owned()),
            partition_offset: Some(16 << 20),
            ..Overlay::default()
        };
        let disks = built(Arch::Arm64, &[], &board).unwrap();
        assert!(disks.contains(&Output::Raw) && disks.iter().all(|output| output.holds_disk()));
        for output in Output::of(Arch::Arm64).filter(|output| !output.holds_disk()) {
            let error = built(Arch::Arm64, &[Output::Raw, output], &board).unwrap_err();
            let wanted = format!("the overlay for board needs a disk, but {output} has none");
            assert!(error.to_string().contains(&wanted), "{error}");
            assert!(
                error
                    .downcast_ref::<Failure>()
                    .unwrap()
                    .remedy()
                    .contains("--output")
            );
        }
        // Kernel parameters are in every format.
        let parameters = Overlay {
            kernel_arguments: vec!["quiet".to_owned()],
            ..Overlay::default()
        };
        built(Arch::Arm64, &[Output::Iso], &parameters).unwrap();
    }
}
