//! Verifies the blobs that are served. A blob that is sent whole for the first time is verified on the way. Its last
//! bytes are held back until its digest is right. A part of a blob is sent only after the whole was verified. The same
//! goes for a blob of which several caches may have a copy.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::{Arc, Mutex, PoisonError};

use oci_spec::image::Sha256Digest;
use sha2::{Digest as _, Sha256};

/// Limit of remembered files. A larger cache works, but verifies again.
const REMEMBERED: usize = 4096;
const BUFFER: usize = 64 * 1024;

/// Identity of a file's content; an unchanged stamp saves a new verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> io::Result<Stamp> {
        let data = file.metadata()?;
        Ok(Stamp {
            device: data.dev(),
            inode: data.ino(),
            length: data.len(),
            modified: (data.mtime(), data.mtime_nsec()),
        })
    }
}

/// The verification of a blob while it is sent.
#[derive(Debug)]
pub(crate) struct Pending {
    digest: Sha256Digest,
    stamp: Stamp,
    hasher: Sha256,
    known: Arc<Mutex<Known>>,
}

impl Pending {
    /// Takes the next bytes of the blob.
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Remembers whether all bytes together have the blob's digest.
    ///
    /// # Errors
    /// They have not.
    pub(crate) fn finish(self) -> io::Result<()> {
        let good = hex::encode(self.hasher.finalize()) == self.digest.digest();
        let wrong = format!(
            "the blob sha256:{} is not served: its content does not match its digest",
            self.digest
        );
        remember(&self.known, (self.digest, self.stamp), good);
        good.then_some(()).ok_or_else(|| io::Error::other(wrong))
    }
}

/// Results of earlier verifications.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    known: Arc<Mutex<Known>>,
    /// Verifies one file at a time: the disk is the bottleneck, so two in parallel would each take longer.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// Whether a file has a digest. Several caches may have files for one digest.
type Known = HashMap<(Sha256Digest, Stamp), bool>;

impl Verified {
    /// Whether the file's bytes have this digest.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub(crate) async fn check(&self, file: &Arc<File>, digest: &Sha256Digest) -> io::Result<bool> {
        let stamp = Stamp::of(file)?;
        if let Some(known) = self.known(digest, stamp) {
            return Ok(known);
        }
        let turn = self.turn.clone().lock_owned().await;
        // A concurrent caller may have verified it meanwhile.
        if let Some(known) = self.known(digest, stamp) {
            return Ok(known);
        }
        let (reader, digest, known) = (file.clone(), digest.clone(), self.known.clone());
        // Continues if the client disconnects, so that its retry finds the result.
        let work = move || {
            let _turn = turn;
            let good = hash(&reader)? == digest.digest();
            remember(&known, (digest, stamp), good);
            Ok(good)
        };
        let found = tokio::task::spawn_blocking(work).await;
        found.map_err(io::Error::other)?
    }

    /// The result for a file that was verified before. Otherwise a verification for [`Pending::update`].
    ///
    /// # Errors
    /// If the file's properties cannot be read.
    pub(crate) fn begin(&self, file: &File, digest: &Sha256Digest) -> io::Result<Begun> {
        let stamp = Stamp::of(file)?;
        Ok(match self.known(digest, stamp) {
            Some(good) => Begun::Known(good),
            None => Begun::Pending(Pending {
                digest: digest.clone(),
                stamp,
                hasher: Sha256::new(),
                known: self.known.clone(),
            }),
        })
    }

    fn known(&self, digest: &Sha256Digest, now: Stamp) -> Option<bool> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&(digest.clone(), now)).copied()
    }
}

/// How far the verification of a file is.
#[derive(Debug)]
pub(crate) enum Begun {
    /// Its result.
    Known(bool),
    /// It needs the file's content.
    Pending(Pending),
}

fn remember(known: &Mutex<Known>, file: (Sha256Digest, Stamp), good: bool) {
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if known.len() >= REMEMBERED {
        known.clear();
    }
    known.insert(file, good);
}

/// The hexadecimal digest of a whole file. Does not move the file's position.
fn hash(file: &File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; BUFFER];
    let mut reader = Positioned { file, at: 0 };
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            length => hasher.update(buffer.get(..length).unwrap_or_default()),
        }
    }
}

struct Positioned<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for Positioned<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(buffer, self.at)?;
        self.at = self.at.saturating_add(length as u64);
        Ok(length)
    }
}

/// The hexadecimal digest of bytes.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn blob_is_verified_again_only_after_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("blob");
        let digest: Sha256Digest = digest_of(b"good").parse().unwrap();
        let verified = Verified::default();
        let open = || Arc::new(File::open(&path).unwrap());

        fs::write(&path, "bad").unwrap();
        assert!(!verified.check(&open(), &digest).await.unwrap());
        fs::write(&path, "good").unwrap();
        assert!(verified.check(&open(), &digest).await.unwrap());
        // The result is remembered, so a change that keeps the stamp goes unnoticed.
        let stamp = Stamp::of(&open()).unwrap();
        assert_eq!(verified.known(&digest, stamp), Some(true));
        let older = Stamp { length: 3, ..stamp };
        assert_eq!(verified.known(&digest, older), None);
    }

    #[tokio::test]
    async fn verification_completes_after_the_caller_hangs_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("blob");
        fs::write(&path, "good").unwrap();
        let digest: Sha256Digest = digest_of(b"good").parse().unwrap();
        let verified = Verified::default();
        let file = Arc::new(File::open(&path).unwrap());
        let stamp = Stamp::of(&file).unwrap();
        tokio::select! {
            biased;
            _ = verified.check(&file, &digest) => {}
            () = tokio::task::yield_now() => {}
        }
        // No other verification runs before this one ends.
        drop(verified.turn.lock().await);
        assert_eq!(verified.known(&digest, stamp), Some(true));
    }
}
