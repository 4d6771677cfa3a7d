//! The digests of cached content.
//!
//! Owners, times and mode bits other than the executable bit are left out. They come from the user and the umask of a
//! build, and no step reads them.

use std::fs;
use std::io;
use std::path::Path;

use anyhow::Context as _;
use nix_nar::Encoder;
use sha2::{Digest as _, Sha256};

use crate::error::Result;

/// Bytes read and hashed at once.
const BLOCK: usize = 1 << 20;

/// The digest of a directory and all below it, as 64 hex digits.
///
/// It is the SHA-256 of the tree's Nix archive (NAR): names in order, contents, link targets, and the executable bit.
/// `nix hash path DIR` prints the same.
///
/// # Errors
/// A path that is not UTF-8; an entry that is no file, directory or link; an I/O error.
pub fn of_tree(dir: &Path) -> Result<String> {
    let archive = Encoder::new(dir).with_context(|| format!("reading {}", dir.display()))?;
    of_stream(archive).with_context(|| format!("reading {}", dir.display()))
}

/// The SHA-256 of a file, as 64 hex digits.
///
/// # Errors
/// The file cannot be read.
pub fn sha256_file(path: &Path) -> Result<String> {
    let file = fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    of_stream(file).with_context(|| format!("reading {}", path.display()))
}

/// Whether the text has the form of a digest: 64 lower-case hex digits.
pub fn is_digest(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(digit)
}

fn of_stream(mut stream: impl io::Read) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; BLOCK];
    loop {
        let read = stream.read(&mut buffer)?;
        let Some(chunk) = buffer.get(..read).filter(|chunk| !chunk.is_empty()) else {
            return Ok(hex::encode(hash.finalize()));
        };
        hash.update(chunk);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A tree with every kind of entry a step can produce.
    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("sub/empty")).unwrap();
        fs::write(dir.path().join("sub/file"), "content").unwrap();
        fs::write(dir.path().join("tool"), "#!/bin/sh\n").unwrap();
        chmod(&dir.path().join("tool"), 0o755);
        symlink("sub/file", dir.path().join("link")).unwrap();
        dir
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn every_change_of_a_tree_changes_its_digest() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 7] = [
            ("content", |top| {
                fs::write(top.join("sub/file"), "Content").unwrap();
            }),
            ("a file more", |top| {
                fs::write(top.join("sub/more"), "").unwrap();
            }),
            ("a file less", |top| {
                fs::remove_file(top.join("sub/file")).unwrap();
            }),
            ("an empty directory less", |top| {
                fs::remove_dir(top.join("sub/empty")).unwrap();
            }),
            ("another name", |top| {
                fs::rename(top.join("sub/file"), top.join("sub/File")).unwrap();
            }),
            ("no program any more", |top| chmod(&top.join("tool"), 0o644)),
            ("another target", |top| {
                fs::remove_file(top.join("link")).unwrap();
                symlink("sub/empty", top.join("link")).unwrap();
            }),
        ];
        let same = of_tree(tree().path()).unwrap();
        assert!(is_digest(&same), "{same}");
        assert_eq!(of_tree(tree().path()).unwrap(), same);
        for (what, change) in changes {
            let tree = tree();
            change(tree.path());
            assert_ne!(of_tree(tree.path()).unwrap(), same, "{what}");
        }
    }

    #[test]
    fn digest_is_independent_of_the_umask() {
        let (open, closed) = (tree(), tree());
        for (name, mode) in [("sub/file", 0o600), ("tool", 0o700), ("sub", 0o700)] {
            chmod(&closed.path().join(name), mode);
        }
        assert_eq!(
            of_tree(open.path()).unwrap(),
            of_tree(closed.path()).unwrap()
        );
    }

    #[test]
    fn digest_equals_that_of_the_nix_archive() {
        // The digest of a directory with one empty file `f`, built by the archive's specification;
        // `nix hash path` prints it too.
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "").unwrap();
        let mut archive = Vec::new();
        for word in [
            "nix-archive-1",
            "(",
            "type",
            "directory",
            "entry",
            "(",
            "name",
            "f",
            "node",
            "(",
            "type",
            "regular",
            "contents",
            "",
            ")",
            ")",
            ")",
        ] {
            archive.extend((word.len() as u64).to_le_bytes());
            archive.extend(word.as_bytes());
            archive.resize(archive.len().next_multiple_of(8), 0);
        }
        let wanted = hex::encode(Sha256::digest(&archive));
        assert_eq!(of_tree(dir.path()).unwrap(), wanted);
    }

    #[test]
    fn sockets_and_missing_files_have_no_digest() {
        let dir = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        of_tree(dir.path()).unwrap_err();
        of_tree(&dir.path().join("missing")).unwrap_err();
    }
}
