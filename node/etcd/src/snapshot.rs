//! Verification of a snapshot file.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// Size in bytes of the SHA-256 after the database.
const HASH: usize = 32;
/// The size of a database is a multiple of this: no system has smaller pages.
const SECTOR: u64 = 512;
/// Read size in bytes.
const PIECE: usize = 64 * 1024;

/// Reason why a file is not a valid snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The file cannot be read.
    #[error("cannot read the snapshot; check the disk it is on")]
    Read(#[from] io::Error),
    /// The file contains no database.
    #[error("the snapshot of {size} bytes has no database; take a new one")]
    Empty {
        /// Size of the file in bytes.
        size: u64,
    },
    /// The file has no hash, as in a copy of a database file.
    #[error(
        "the snapshot of {size} bytes has no hash: it is truncated, or it is a copy of a database file; take a new \
         one, or skip the hash check"
    )]
    NoHash {
        /// Size of the file in bytes.
        size: u64,
    },
    /// The hash does not match.
    #[error(
        "the snapshot is damaged: its SHA-256 is {found} instead of {expected}; take a new one"
    )]
    Damaged {
        /// Hash in the file, in hexadecimal.
        expected: String,
        /// Computed hash, in hexadecimal.
        found: String,
    },
}

/// Verifies that a file is a snapshot from etcd: a database whose size is a multiple of 512, followed by its SHA-256
/// (the format of `etcdutl snapshot restore`). The file is read to its end in constant memory.
///
/// The database itself is not opened.
///
/// # Errors
/// [`SnapshotError`].
pub fn verify_snapshot(mut reader: impl Read) -> Result<(), SnapshotError> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; PIECE];
    // The last bytes read; they are hashed only after more data follow, because the final ones are the hash.
    let mut tail: Vec<u8> = Vec::with_capacity(HASH + PIECE);
    let mut size = 0_u64;
    loop {
        let read = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(SnapshotError::Read(error)),
        };
        let piece = buffer.get(..read).unwrap_or_default();
        size = size.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        tail.extend_from_slice(piece);
        let over = tail.len().saturating_sub(HASH);
        hasher.update(tail.drain(..over).as_slice());
    }
    let hash = u64::try_from(HASH).unwrap_or(u64::MAX);
    if size <= hash {
        return Err(SnapshotError::Empty { size });
    }
    if size % SECTOR != hash {
        return Err(SnapshotError::NoHash { size });
    }
    let found = hasher.finalize();
    if found.as_slice() != tail {
        return Err(SnapshotError::Damaged {
            expected: hexadecimal(&tail),
            found: hexadecimal(&found),
        });
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn snapshot(sectors: usize) -> Vec<u8> {
        let mut file: Vec<u8> = (0..=250).cycle().take(sectors * 512).collect();
        let hash = Sha256::digest(&file);
        file.extend_from_slice(&hash);
        file
    }

    /// A reader that returns a few bytes at a time, as a pipe does.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(buffer.len());
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn complete_snapshot_verifies_with_any_read_size() {
        for sectors in [1, 8, 128, 1000] {
            let file = snapshot(sectors);
            verify_snapshot(&file[..]).unwrap();
            for at_once in [1, 31, 33, 513] {
                verify_snapshot(Slow(&file, at_once)).unwrap();
            }
        }
    }

    #[test]
    fn changed_byte_in_a_snapshot_is_detected() {
        let file = snapshot(200);
        for place in [
            0,
            511,
            65_536,
            file.len() - 33,
            file.len() - 32,
            file.len() - 1,
        ] {
            let mut file = file.clone();
            file[place] ^= 1;
            let why = verify_snapshot(&file[..]).unwrap_err();
            assert!(
                matches!(why, SnapshotError::Damaged { .. }),
                "{place}: {why}"
            );
        }
    }

    #[test]
    fn snapshot_without_a_hash_and_empty_file_are_refused() {
        let file = snapshot(4);
        for end in [2048, 2047, 2049, 2079] {
            let why = verify_snapshot(&file[..end]).unwrap_err();
            assert!(matches!(why, SnapshotError::NoHash { .. }), "{end}: {why}");
        }
        for end in [0, 1, 32] {
            let why = verify_snapshot(&snapshot(0)[..end]).unwrap_err();
            assert!(matches!(why, SnapshotError::Empty { .. }), "{end}: {why}");
        }
    }

    #[test]
    fn read_error_is_distinct_from_damage() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("bad sector"))
            }
        }
        let why = verify_snapshot(Failing).unwrap_err();
        assert!(matches!(why, SnapshotError::Read(_)), "{why}");
    }

    proptest! {
        #[test]
        fn hostile_files_are_refused(file in proptest::collection::vec(any::<u8>(), 0..4096)) {
            prop_assert!(verify_snapshot(&file[..]).is_err());
        }
    }
}
