//! `mkimage verify`: builds an image again and says what differs.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::Context as _;

use super::{Options, finish};
use crate::error::{Failure, Result};
use crate::image::compare;
use crate::profile::Output;
use crate::report;
use crate::rootfs::toolchain::Locked;

/// Builds `image` again and compares every byte: from fetched files alone and what a substituter
/// gives, or with `trust_cache` also from the finished steps of the cache.
pub fn verify(options: &Options, image: &Path, trust_cache: bool) -> Result<()> {
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
    fs::File::open(image).with_context(|| format!("opening {}", image.display()))?;
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
    again.profile.output = vec![output];
    again.out = work.path().join("out");
    let finished = finish(&again)?;
    let rebuilt = finished.files.first().context("the build wrote no file")?;
    let Some(offset) = first_difference(image, rebuilt)? else {
        return report::print(&format!(
            "{} is what this source tree builds\n",
            image.display()
        ));
    };
    let scratch = work.path().join("compared");
    fs::create_dir(&scratch)?;
    // An image that is damaged cannot be looked into; where the bytes differ is known all the same.
    let inside = compare::first_difference(image, rebuilt, &Locked::new(&finished.tools), &scratch)
        .ok()
        .flatten();
    let what = inside.map_or_else(
        || format!("at byte {offset}"),
        |inside| format!("at byte {offset}; the first part that differs: {inside}"),
    );
    Err(Failure::new(
        format!("{} differs from its rebuild {what}", image.display()),
        "build from the commit, version, date (SOURCE_DATE_EPOCH), profile and keys it was built \
         from; its provenance names them",
    ))
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
}
