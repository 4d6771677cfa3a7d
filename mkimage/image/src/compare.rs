//! Finds the part of an image that differs from the same part of another. A part is a partition, a
//! section of the unified kernel image, or a file of the boot volume, the initramfs or the root.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_rootfs::listing;
use corten_steps::error::Result;
use corten_steps::toolchain::Locked;

use super::inspect::{self, Image, initramfs_files};
use super::uki;

/// The name of the first, innermost part of `a` that differs in `b`; `None` when no known part
/// differs. `tools` has `unsquashfs`, `scratch` is an empty directory.
pub fn first_difference(
    a: &Path,
    b: &Path,
    tools: &Locked,
    scratch: &Path,
) -> Result<Option<String>> {
    let (one, two) = (inspect::inspect(a)?, inspect::inspect(b)?);
    for pair in pairs(&one.images, &two.images, |image| image.path.clone()) {
        let inside = match pair {
            (_, Some(one), Some(two)) if one.data != two.data => section(one, two, tools, scratch)?,
            (name, one, two) if one.is_none() || two.is_none() => Some(only(&name, one.is_some())),
            _ => None,
        };
        if inside.is_some() {
            return Ok(inside);
        }
    }
    for (name, one, two) in pairs(&one.files, &two.files, |file| file.path.clone()) {
        if one != two {
            return Ok(Some(format!("the file {name}")));
        }
    }
    for (name, one, two) in pairs(&one.partitions, &two.partitions, |p| p.label.clone()) {
        if one != two {
            return Ok(Some(format!("the partition {name}")));
        }
    }
    Ok((one.meta != two.meta).then(|| "the values of META".to_owned()))
}

/// The first section of two unified kernel images that differs, and the differing part in it.
fn section(one: &Image, two: &Image, tools: &Locked, scratch: &Path) -> Result<Option<String>> {
    for (name, a, b) in pairs(&one.sections, &two.sections, |s| s.name.clone()) {
        let (Some(a), Some(b)) = (a, b) else {
            return Ok(Some(only(&format!("section {name}"), a.is_some())));
        };
        let (a, b) = (uki::content(&one.data, a)?, uki::content(&two.data, b)?);
        if a == b {
            continue;
        }
        let inside = match name.as_str() {
            ".initrd" => archive(a, b, tools, scratch)?,
            _ => None,
        };
        return Ok(Some(
            inside.unwrap_or_else(|| format!("the section {name}")),
        ));
    }
    Ok(None)
}

/// The first file of two initramfs archives that differs, and the differing part in it.
fn archive(a: &[u8], b: &[u8], tools: &Locked, scratch: &Path) -> Result<Option<String>> {
    let (a, b) = (initramfs_files(a)?, initramfs_files(b)?);
    for (name, a, b) in pairs(&a, &b, |(path, _)| path.clone()) {
        let (Some((_, a)), Some((_, b))) = (a, b) else {
            return Ok(Some(only(&format!("initramfs:{name}"), a.is_some())));
        };
        if a == b {
            continue;
        }
        let inside = match name.ends_with(".squashfs") {
            // A damaged squashfs cannot be inspected; its own name is then the answer.
            true => tree(a, b, tools, scratch).ok().flatten(),
            false => None,
        };
        return Ok(Some(match inside {
            Some(inside) => format!("{inside} in initramfs:{name}"),
            None => format!("initramfs:{name}"),
        }));
    }
    Ok(None)
}

/// The first path of two squashfs images that differs in kind, mode, owner or content.
fn tree(a: &[u8], b: &[u8], tools: &Locked, scratch: &Path) -> Result<Option<String>> {
    let mut trees = Vec::new();
    for (name, data) in [("a", a), ("b", b)] {
        let image = scratch.join(format!("{name}.squashfs"));
        let dir = scratch.join(name);
        fs::write(&image, data).with_context(|| format!("writing {}", image.display()))?;
        tools
            .tool("usr/bin/unsquashfs")
            .args(["-no-progress", "-quiet", "-dest"])
            .args([&dir, &image])
            .run()?;
        trees.push((listing::of_image(tools, &image)?, dir));
    }
    let [(one, dir_a), (two, dir_b)] = trees.as_slice() else {
        return Ok(None);
    };
    // Mode, owner, path and link target in one line.
    if let Some(line) = one.lines().find(|line| !two.lines().any(|l| l == *line)) {
        return Ok(Some(line.to_owned()));
    }
    if let Some(line) = two.lines().find(|line| !one.lines().any(|l| l == *line)) {
        return Ok(Some(line.to_owned()));
    }
    for entry in walkdir::WalkDir::new(dir_a).sort_by_file_name() {
        let entry = entry.with_context(|| format!("listing {}", dir_a.display()))?;
        let path = entry.path().strip_prefix(dir_a)?;
        let same = || fs::read(entry.path()).ok() == fs::read(dir_b.join(path)).ok();
        if entry.file_type().is_file() && !same() {
            return Ok(Some(format!("/{}", path.display())));
        }
    }
    Ok(None)
}

fn only(name: &str, in_first: bool) -> String {
    let which = if in_first { "image" } else { "rebuild" };
    format!("{name}, which only the {which} has")
}

/// The elements of two lists in pairs by name, sorted.
fn pairs<'a, T>(
    a: &'a [T],
    b: &'a [T],
    name: impl Fn(&T) -> String,
) -> Vec<(String, Option<&'a T>, Option<&'a T>)> {
    let mut found: BTreeMap<String, (Option<&T>, Option<&T>)> = BTreeMap::new();
    for element in a {
        found.entry(name(element)).or_default().0 = Some(element);
    }
    for element in b {
        found.entry(name(element)).or_default().1 = Some(element);
    }
    found
        .into_iter()
        .map(|(name, (a, b))| (name, a, b))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initramfs::{self, Initramfs};
    use crate::testing::{Scratch, release, stub};
    use crate::uki::Uki;

    /// Writes a unified kernel image with this `init` and command line.
    fn image(scratch: &Scratch, name: &str, init: &[u8], cmdline: &str) -> std::path::PathBuf {
        let init = scratch.file(&format!("{name}-init"), init);
        let rootfs = scratch.file("rootfs", b"no squashfs");
        let archive = scratch.path(&format!("{name}-initramfs"));
        let parts = Initramfs {
            init: &init,
            rootfs: &rootfs,
            extensions: &[],
            signers: "",
        };
        initramfs::build(&archive, &release(), &parts).unwrap();
        let stub = scratch.file("stub", &stub());
        let out = scratch.path(name);
        let parts = Uki {
            stub: &stub,
            vmlinuz: &stub,
            initramfs: &archive,
            cmdline,
            os_release: "VERSION_ID=1\n",
            uname: "6",
            grub: None,
            signer: &crate::testing::signer(),
        };
        uki::build(&out, &release(), &parts).unwrap();
        out
    }

    #[test]
    fn the_innermost_part_is_named() {
        let scratch = Scratch::new();
        let tools = Locked::new(Path::new("/nonexistent"));
        let differs =
            |a: &Path, b: &Path| first_difference(a, b, &tools, &scratch.path("unused")).unwrap();
        let one = image(&scratch, "one.efi", b"init", "quiet");
        assert_eq!(differs(&one, &one), None);
        let two = image(&scratch, "two.efi", b"INIT", "quiet");
        assert_eq!(differs(&one, &two).unwrap(), "initramfs:/init");
        let three = image(&scratch, "three.efi", b"init", "noisy");
        assert_eq!(differs(&one, &three).unwrap(), "the section .cmdline");
    }
}
