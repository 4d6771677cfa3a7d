//! `mkimage verify`: builds an image again and reports the differences.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use corten_image::{compare, inspect};
use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Remedy as _, Result};
use corten_steps::file_name;
use corten_steps::report;
use corten_steps::toolchain::Locked;

use super::{Options, finish};
use crate::output::Output;

/// Builds `image` again and compares every byte. The rebuild uses only fetched files and
/// substituters; with `trust_cache` it also uses the finished steps of the cache. The architecture
/// is read from the image; `arch` is used for an image that cannot be read.
///
/// # Errors
/// The image differs, is for another architecture than `arch`, or cannot be built.
pub fn verify(
    options: &Options,
    image: &Path,
    arch: Option<Arch>,
    trust_cache: bool,
) -> Result<()> {
    let name = file_name(image);
    let output = Output::ALL
        .into_iter()
        .find(|output| name.ends_with(output.suffix()))
        .ok_or_else(|| {
            Failure::new(
                format!(
                    "{} does not end with the suffix of an image format",
                    image.display()
                ),
                "give the image its original name",
            )
        })?;
    let given = files(image)?;
    let work = tempfile::Builder::new()
        .prefix("verify-")
        .suffix(&format!(".{}", std::process::id()))
        .tempdir_in(options.cache.root().join("work"))
        .context("creating a directory in the cache")?;
    let mut again = options.clone();
    if !trust_cache {
        again.cache = options.cache.fresh(&work.path().join("cache"))?;
    }
    again.release = true;
    again.profile.arch = architecture(image, arch)?;
    again.profile.output = vec![output];
    again.out = work.path().join("out");
    let finished = finish(&again)?;
    let made = finished.files.first().context("the build wrote no file")?;
    let made = files(made)?;
    let scratch = work.path().join("compared");
    fs::create_dir(&scratch)?;
    let tools = Locked::new(&finished.tools);
    let names: BTreeSet<&PathBuf> = given.keys().chain(made.keys()).collect();
    for name in names {
        let found = match (given.get(name), made.get(name)) {
            (Some(one), Some(two)) => difference(one, two, &tools, &scratch)?,
            (one, _) => {
                let whose = if one.is_some() { "image" } else { "rebuild" };
                Some(format!("by {}, which only the {whose} has", name.display()))
            }
        };
        if let Some(what) = found {
            let shown = given.get(name).map_or(image, PathBuf::as_path).display();
            return Err(Failure::new(
                format!("{shown} differs from its rebuild {what}"),
                "build with the commit, version, date (SOURCE_DATE_EPOCH), profile and keys of the image; \
                 its provenance names them",
            ));
        }
    }
    let shown = image.display();
    report::print(&format!("{shown} is identical to its rebuild\n"))
}

/// The architecture of the image's kernel, or `named` if the image cannot be read.
fn architecture(image: &Path, named: Option<Arch>) -> Result<Arch> {
    let shown = image.display();
    let found = inspect::inspect(image).and_then(|found| match found.arch() {
        Some(arch) => Ok(arch),
        None => bail!("there is no kernel in it"),
    });
    match (found, named) {
        (Ok(found), Some(named)) if found != named => Err(Failure::new(
            format!("{shown} is for {found}, not for {named}"),
            format!("use --arch {found}, or leave it out"),
        )),
        (Ok(arch), _) | (Err(_), Some(arch)) => Ok(arch),
        (Err(error), None) => Err(error).or_fail(
            format!("{shown} does not show its architecture"),
            "give it with --arch",
        ),
    }
}

/// The files of an image by relative path: the image itself, or the files of its directory.
fn files(image: &Path) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in walkdir::WalkDir::new(image) {
        let entry = entry.or_fail(format!("opening {}", image.display()), "check the path")?;
        if entry.path().is_file() {
            let name = entry.path().strip_prefix(image)?.to_owned();
            found.insert(name, entry.into_path());
        }
    }
    Ok(found)
}

/// The first difference of two files, with the part of the image it is in if the images can be
/// read; `None` if the files are equal.
fn difference(one: &Path, two: &Path, tools: &Locked, scratch: &Path) -> Result<Option<String>> {
    let Some(offset) = first_difference(one, two)? else {
        return Ok(None);
    };
    // A damaged image cannot be inspected; the offset of the difference is still known.
    let inside = compare::first_difference(one, two, tools, scratch)
        .ok()
        .flatten();
    Ok(Some(match inside {
        Some(part) => format!("at byte {offset}; the first part that differs: {part}"),
        None => format!("at byte {offset}"),
    }))
}

/// The offset of the first differing byte; the end of the shorter file counts as a difference.
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
    use corten_image::testing::{Scratch, release, stub};
    use corten_image::{Release, pxe};

    use super::*;

    #[test]
    fn architecture_is_read_from_the_image_and_a_contradiction_is_refused() {
        let scratch = Scratch::new();
        for arch in Arch::ALL {
            let mut kernel = stub();
            kernel[0x44..0x46].copy_from_slice(&arch.names().pe_machine.to_le_bytes());
            let kernel = scratch.file("kernel", &kernel);
            let bundle = scratch.path(&format!("{arch}-pxe"));
            let parts = pxe::Pxe {
                vmlinuz: &kernel,
                initramfs: &kernel,
                cmdline: "quiet",
            };
            pxe::build(&bundle, &Release { arch, ..release() }, &parts).unwrap();
            assert_eq!(architecture(&bundle, None).unwrap(), arch);
            assert_eq!(architecture(&bundle, Some(arch)).unwrap(), arch);
            for other in Arch::ALL.into_iter().filter(|other| *other != arch) {
                let error = architecture(&bundle, Some(other)).unwrap_err();
                let wanted = format!("is for {arch}, not for {other}");
                assert!(error.to_string().contains(&wanted), "{error}");
                let remedy = error.downcast_ref::<Failure>().unwrap().remedy();
                assert!(remedy.contains(&format!("--arch {arch}")), "{remedy}");
            }
            let names: Vec<_> = files(&bundle).unwrap().into_keys().collect();
            assert_eq!(
                names,
                ["boot.ipxe", "initramfs", "vmlinuz"].map(PathBuf::from)
            );
        }
        let damaged = scratch.file("damaged.raw", b"nothing");
        assert_eq!(
            architecture(&damaged, Some(Arch::Arm64)).unwrap(),
            Arch::Arm64
        );
        let error = architecture(&damaged, None).unwrap_err();
        let remedy = error.downcast_ref::<Failure>().unwrap().remedy();
        assert_eq!(remedy, "give it with --arch");
        assert_eq!(
            files(&damaged).unwrap(),
            BTreeMap::from([(PathBuf::new(), damaged)])
        );
    }

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
}
