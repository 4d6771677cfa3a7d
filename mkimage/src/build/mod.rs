//! The verbs of the builder: build, plan, verify, and the bill of materials.

mod outputs;
mod steps;

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::cache::{Cache, remove_tree};
use crate::components;
use crate::error::{Failure, Remedy as _, Result};
use crate::fetch::Fetcher;
use crate::image::{Release, checksums, provenance, sbom};
use crate::lock::Lock;
use crate::profile::{Output, Profile};
use crate::recipe::{Built, Recipe};
use crate::report::{self, Format, Reporter};
use crate::tool::Tool;

use steps::{Context, Handles};

/// Everything a build is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The source tree.
    pub source: PathBuf,
    /// The cache.
    pub cache: Cache,
    /// What to build.
    pub profile: Profile,
    /// Where finished images go.
    pub out: PathBuf,
    /// The key set; `None` is the published development keys.
    pub keys: Option<PathBuf>,
    /// A kernel tarball in place of the locked package.
    pub kernel_source: Option<PathBuf>,
    /// Fetch nothing.
    pub offline: bool,
    /// Processes a step may run.
    pub jobs: usize,
    /// How progress is shown.
    pub format: Format,
}

impl Options {
    /// A fetcher of locked packages; `CORTEN_MIRRORS` replaces the host's mirrors.
    pub fn fetcher(&self) -> Fetcher {
        Fetcher::new(self.cache.clone(), self.offline, mirrors())
    }
}

/// The mirrors named in `CORTEN_MIRRORS`, separated by commas; none means the host's own.
pub fn mirrors() -> Vec<String> {
    let named = std::env::var("CORTEN_MIRRORS").unwrap_or_default();
    named
        .split(',')
        .filter(|m| !m.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The version and the date of what is built, from `CORTEN_VERSION` and `SOURCE_DATE_EPOCH`.
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

fn context(options: &Options) -> Result<Context> {
    options.profile.meta_values()?;
    let context = Context {
        lock: Lock::read(&options.source.join("rootfs/packages.lock"))?,
        fetcher: options.fetcher(),
        release: release(options)?,
        options: options.clone(),
    };
    steps::command_line(&context)?;
    Ok(context)
}

/// Builds what the profile names into the output directory; returns the files' paths.
pub fn build(options: &Options) -> Result<Vec<PathBuf>> {
    let context = context(options)?;
    let mut recipe = Recipe::default();
    let handles = steps::add(&mut recipe, &context)?;
    let outputs = outputs::add(&mut recipe, &context, &handles)?;
    let reporter = Reporter::new(options.format, recipe.steps().len());
    let built = recipe.run(&options.cache, &reporter)?;
    fs::create_dir_all(&options.out).or_fail(
        format!("creating {}", options.out.display()),
        "name a directory you can write with --out",
    )?;
    let mut files = Vec::new();
    for (output, handle) in outputs {
        let name = context.file(output);
        let target = options.out.join(&name);
        place(&built.dir(&handle).join(&name), &target)?;
        reporter.output(&target);
        files.push(target);
    }
    describe(&context, &handles, &built, &files)?;
    Ok(files)
}

/// Copies a finished output under its final name, which it gets only when it is whole.
fn place(from: &Path, target: &Path) -> Result<()> {
    let mut partial = target.as_os_str().to_owned();
    partial.push(format!(".part{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let copied = Tool::new("cp")
        .args([
            "--recursive",
            "--sparse=always",
            "--reflink=auto",
            "--no-target-directory",
        ])
        .arg(from)
        .arg(&partial)
        .run()
        .or_fail(
            format!("writing {}", target.display()),
            "free disk space there",
        );
    let moved = copied.and_then(|()| {
        if target.is_dir() {
            remove_tree(target)?;
        }
        fs::rename(&partial, target).with_context(|| format!("writing {}", target.display()))
    });
    if moved.is_err() && partial.is_dir() {
        remove_tree(&partial)?;
    } else if moved.is_err() {
        // It may never have been made; the first error is the one to report.
        let _ = fs::remove_file(&partial);
    }
    moved
}

/// Writes checksums, bill of materials and provenance beside the images.
fn describe(context: &Context, handles: &Handles, built: &Built, files: &[PathBuf]) -> Result<()> {
    let out = &context.options.out;
    let stem = context.release.stem();
    let components = components(context, handles, built)?;
    let sbom_file = out.join(format!("{stem}.spdx.json"));
    sbom::write(&sbom_file, &context.release, &components)?;
    let sums = out.join("SHA256SUMS");
    let mut all = files.to_vec();
    all.push(sbom_file);
    checksums::write(&sums, &all)?;
    provenance::write(
        &out.join(format!("{stem}.provenance.json")),
        &context.release,
        &outputs::provenance(context, &all)?,
    )
}

fn components(context: &Context, handles: &Handles, built: &Built) -> Result<Vec<sbom::Component>> {
    let arch = context.release.arch;
    let mut found = components::debian(&context.lock, arch);
    found.push(components::kernel(&context.options.source)?);
    found.extend(components::crates(&context.options.source, arch)?);
    let go = crate::rootfs::go::go_program(built.dir(&handles.go_tools))?;
    found.extend(components::go_modules(&go, built.dir(&handles.go))?);
    Ok(found)
}

/// Prints the recipe: each step, its key, and whether its output is in the cache.
pub fn plan(options: &Options) -> Result<()> {
    let context = context(options)?;
    let mut recipe = Recipe::default();
    let handles = steps::add(&mut recipe, &context)?;
    outputs::add(&mut recipe, &context, &handles)?;
    let mut lines = String::new();
    for step in recipe.steps() {
        let cached = options.cache.lookup(&step.name, &step.key).is_some();
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
                    serde_json::json!({"step": step, "key": key, "cached": cached})
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
    let components = components(&context, &handles, &built)?;
    report::print(&format!(
        "{}\n",
        sbom::document(&context.release, &components)?
    ))
}

/// Builds `image` again, from an empty cache but for fetched files, and compares every byte.
pub fn verify(options: &Options, image: &Path) -> Result<()> {
    let output = Output::ALL
        .into_iter()
        .find(|output| {
            output.suffix().contains('.') && image.to_string_lossy().ends_with(output.suffix())
        })
        .ok_or_else(|| {
            Failure::new(
                format!("{} has no ending of an image format", image.display()),
                "give an image under the name the builder gave it",
            )
        })?;
    let out = tempfile::tempdir_in(options.cache.root()).context("creating a directory")?;
    let mut again = options.clone();
    again.profile.output = vec![output];
    again.out = out.path().to_owned();
    let files = build(&again)?;
    let rebuilt = files.first().context("the build wrote no file")?;
    match first_difference(image, rebuilt)? {
        None => report::print(&format!(
            "{} is what this source tree builds\n",
            image.display()
        )),
        Some(offset) => Err(Failure::new(
            format!(
                "{} differs from its rebuild at byte {offset}",
                image.display()
            ),
            "build from the commit, version and keys it was built from; \
             `mkimage inspect` on both shows which part it is",
        )),
    }
}

/// The offset of the first byte in which two files differ; the end of the shorter counts.
fn first_difference(a: &Path, b: &Path) -> Result<Option<u64>> {
    const BLOCK: usize = 1 << 20;
    let open =
        |path: &Path| fs::File::open(path).with_context(|| format!("opening {}", path.display()));
    let (left, right) = (open(a)?, open(b)?);
    let (mut x, mut y) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut offset = 0;
    loop {
        let (n, m) = (
            read_block(&left, &mut x, offset)?,
            read_block(&right, &mut y, offset)?,
        );
        let (one, two) = (
            x.get(..n).unwrap_or_default(),
            y.get(..m).unwrap_or_default(),
        );
        if one != two {
            let same = one.iter().zip(two).take_while(|(p, q)| p == q).count();
            return Ok(Some(offset + same as u64));
        }
        if n < BLOCK {
            return Ok(None);
        }
        offset += n as u64;
    }
}

/// Fills as much of `buffer` as the file has from `offset`.
fn read_block(file: &fs::File, buffer: &mut [u8], offset: u64) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + filled as u64)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_differing_byte_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            let path = dir.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let mut long = vec![7; (1 << 20) + 9];
        let a = write("a", &long);
        assert_eq!(first_difference(&a, &write("b", &long)).unwrap(), None);
        long[(1 << 20) + 3] = 8;
        let c = write("c", &long);
        assert_eq!(first_difference(&a, &c).unwrap(), Some((1 << 20) + 3));
        long.truncate(5);
        assert_eq!(first_difference(&a, &write("d", &long)).unwrap(), Some(5));
    }

    #[test]
    fn an_output_that_cannot_be_copied_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        place(&dir.path().join("missing"), &dir.path().join("image")).unwrap_err();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
