//! Shared parts of the formats' tests: a temporary directory, a release, small stand-ins for the
//! wrapped programs, the published development keys.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a failing step is a failing test"
)]

use std::path::{Path, PathBuf};

use corten_steps::arch::Arch;

use super::Release;
use super::secure_boot::{Signer, enrolment};

/// A temporary directory.
#[derive(Debug)]
pub struct Scratch(tempfile::TempDir);

impl Scratch {
    /// A new, empty directory.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The path of a file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file in it, and returns its path.
    pub fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// The release the tests build.
pub fn release() -> Release {
    Release {
        version: "1.2.3".to_owned(),
        arch: Arch::X86_64,
        epoch: 1_700_000_000,
    }
}

/// Pseudo-random bytes that do not compress, the same on every run.
pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    })
    .flatten()
    .take(len)
    .collect()
}

/// Runs a host tool and returns its output; fails the test if the tool fails.
pub fn host(program: &str, args: &[&str]) -> String {
    let output = corten_steps::tool::Tool::new(program)
        .args(args)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output).into_owned()
}

/// The path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A minimal PE file: headers, `.text`, `.sbat`, `.reloc`.
pub fn stub() -> Vec<u8> {
    let mut pe = vec![0; 0x400];
    pe[..2].copy_from_slice(b"MZ");
    pe[0x3c] = 0x40;
    pe[0x40..0x44].copy_from_slice(b"PE\0\0");
    let mut put = |at: usize, bytes: &[u8]| pe[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x44, &0x8664_u16.to_le_bytes());
    put(0x46, &3_u16.to_le_bytes());
    put(0x54, &240_u16.to_le_bytes());
    put(0x56, &0x2022_u16.to_le_bytes());
    let optional = 0x58;
    put(optional, &0x20b_u16.to_le_bytes());
    put(optional + 16, &0x1000_u32.to_le_bytes());
    put(optional + 32, &0x1000_u32.to_le_bytes());
    put(optional + 36, &0x200_u32.to_le_bytes());
    put(optional + 56, &0x4000_u32.to_le_bytes());
    put(optional + 60, &0x400_u32.to_le_bytes());
    put(optional + 68, &10_u16.to_le_bytes());
    put(optional + 108, &16_u32.to_le_bytes());
    for (number, name) in [b".text\0\0\0", b".sbat\0\0\0", b".reloc\0\0"]
        .iter()
        .enumerate()
    {
        let row = optional + 240 + number * 40;
        let number = u32::try_from(number).unwrap();
        put(row, &name[..]);
        put(row + 8, &0x10_u32.to_le_bytes());
        put(row + 12, &(0x1000 * (number + 1)).to_le_bytes());
        put(row + 16, &0x200_u32.to_le_bytes());
        put(row + 20, &(0x400 + 0x200 * number).to_le_bytes());
        put(row + 36, &0x4000_0040_u32.to_le_bytes());
    }
    pe.resize(0xa00, 0);
    pe[0x600..0x610].copy_from_slice(b"sbat,1,stub\n\0\0\0\0");
    pe
}

/// A 64 MiB disk with noise, text, zeros between them, and data at its very end.
pub fn disk(scratch: &Scratch) -> PathBuf {
    use std::os::unix::fs::FileExt as _;
    let path = scratch.path("disk.raw");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_all_at(&noise(300_000), 512).unwrap();
    file.write_all_at(&b"a line of text\n".repeat(40_000), 33 << 20)
        .unwrap();
    file.write_all_at(b"the end", (64 << 20) - 7).unwrap();
    path
}

/// The published development keys.
pub fn development() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel-config/keys/development")
}

/// The key that signs programs for development.
pub fn signer() -> Signer {
    Signer::read(&development(), &enrolment::DB).unwrap()
}
