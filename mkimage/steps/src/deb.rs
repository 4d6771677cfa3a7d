//! Reads Debian binary packages without dpkg and without root.
//!
//! Format: deb(5): an `ar` archive with `debian-binary`, `control.tar.*` and `data.tar.*`.

use std::fs;
use std::io::Read;
use std::path::{Component, Path};

use anyhow::Context as _;

use crate::error::{Failure, Result};

/// The kind of an entry in a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link and its target.
    Symlink(String),
    /// A hard link to another path of the same package.
    Hardlink(String),
}

/// Calls `each` with every entry's path (no leading `/` or `./`), kind, mode and content.
pub fn for_each_entry(
    deb: &Path,
    mut each: impl FnMut(&str, &Kind, u32, &mut dyn Read) -> Result<()>,
) -> Result<()> {
    let file = fs::File::open(deb).with_context(|| format!("opening {}", deb.display()))?;
    let mut archive = ar::Archive::new(std::io::BufReader::new(file));
    while let Some(member) = archive.next_entry() {
        let member = member.map_err(|error| broken(deb, &error.to_string()))?;
        let name = String::from_utf8_lossy(member.header().identifier()).into_owned();
        let reader: Box<dyn Read + '_> = match name.as_str() {
            "data.tar.xz" => Box::new(liblzma::read::XzDecoder::new(member)),
            "data.tar.zst" => Box::new(zstd::Decoder::new(member)?),
            "data.tar.gz" => Box::new(flate2::read::GzDecoder::new(member)),
            "data.tar" => Box::new(member),
            _ => continue,
        };
        let mut tar = tar::Archive::new(reader);
        for entry in tar
            .entries()
            .map_err(|error| broken(deb, &error.to_string()))?
        {
            let mut entry = entry.map_err(|error| broken(deb, &error.to_string()))?;
            let path = clean(&entry.path()?)
                .ok_or_else(|| broken(deb, "a path in it leaves the package"))?;
            let kind = match entry.header().entry_type() {
                tar::EntryType::Directory => Kind::Directory,
                tar::EntryType::Symlink => Kind::Symlink(link(&entry)?),
                tar::EntryType::Link => Kind::Hardlink(
                    clean(Path::new(&link(&entry)?))
                        .ok_or_else(|| broken(deb, "a hard link in it leaves the package"))?,
                ),
                tar::EntryType::Regular => Kind::File,
                _ => {
                    return Err(broken(
                        deb,
                        "it holds an entry that is not a file, directory or link",
                    ));
                }
            };
            let mode = entry.header().mode()? & 0o7777;
            each(&path, &kind, mode, &mut entry)?;
        }
        return Ok(());
    }
    Err(broken(deb, "it has no data.tar"))
}

/// Unpacks the entries that `wanted` selects below `root`; drops owners and set-id bits.
pub fn unpack(deb: &Path, root: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    for_each_entry(deb, |path, kind, mode, content| {
        if path.is_empty() || !wanted(path) {
            return Ok(());
        }
        let target = root.join(path);
        if *kind == Kind::Directory {
            return fs::create_dir_all(&target)
                .with_context(|| format!("creating {}", target.display()));
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        if target.symlink_metadata().is_ok() {
            fs::remove_file(&target)?;
        }
        match kind {
            Kind::Symlink(to) => symlink(to, &target)?,
            Kind::Hardlink(to) => drop(fs::copy(root.join(to), &target)?),
            _ => {
                let mut file = fs::File::create(&target)?;
                std::io::copy(content, &mut file)?;
                file.set_permissions(fs::Permissions::from_mode(mode & 0o755))?;
            }
        }
        Ok(())
    })
    .with_context(|| format!("unpacking {}", deb.display()))
}

fn link(entry: &tar::Entry<'_, impl Read>) -> Result<String> {
    let target = entry.link_name()?.context("a link without a target")?;
    Ok(target.to_string_lossy().into_owned())
}

/// The path without `./`; `None` when it would leave the package's root.
fn clean(path: &Path) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir | Component::RootDir => {}
            Component::Normal(name) => parts.push(name.to_str()?),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(parts.join("/"))
}

fn broken(deb: &Path, why: &str) -> anyhow::Error {
    Failure::new(
        format!("{} is not a usable Debian package: {why}", deb.display()),
        "remove the file from the cache and build again",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deb(path: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
            Vec::new(),
            flate2::Compression::fast(),
        ));
        let mut header = tar::Header::new_gnu();
        header.set_size(2);
        header.set_mode(0o4755);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_cksum();
        tar.append(&header, &b"hi"[..]).unwrap();
        let data = tar.into_inner().unwrap().finish().unwrap();
        let file = dir.path().join("a.deb");
        let mut ar = ar::Builder::new(fs::File::create(&file).unwrap());
        ar.append(
            &ar::Header::new(b"debian-binary".to_vec(), 4),
            &b"2.0\n"[..],
        )
        .unwrap();
        ar.append(
            &ar::Header::new(b"data.tar.gz".to_vec(), data.len() as u64),
            &data[..],
        )
        .unwrap();
        (dir, file)
    }

    #[test]
    fn set_id_bits_do_not_survive() {
        use std::os::unix::fs::PermissionsExt as _;
        let (dir, file) = deb("./usr/bin/x");
        unpack(&file, &dir.path().join("root"), |_| true).unwrap();
        let meta = fs::metadata(dir.path().join("root/usr/bin/x")).unwrap();
        assert_eq!(meta.permissions().mode() & 0o7777, 0o755);
    }

    #[test]
    fn a_path_out_of_the_package_is_refused() {
        let (dir, file) = deb("../x");
        let error = unpack(&file, &dir.path().join("root"), |_| true).unwrap_err();
        assert!(
            format!("{error:#}").contains("leaves the package"),
            "{error:#}"
        );
    }

    #[test]
    fn only_wanted_entries_are_written() {
        let (dir, file) = deb("./usr/bin/x");
        unpack(&file, &dir.path().join("root"), |path| path != "usr/bin/x").unwrap();
        assert!(!dir.path().join("root/usr/bin/x").exists());
    }
}
