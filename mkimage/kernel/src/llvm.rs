//! The locked clang, lld and zstd (purpose `kernel`) in the layout of the kernel's build: one directory of programs.
//!
//! The same clang compiles the kernel's helper programs (objtool, fixdep) against the host's C library. They run during
//! the build and are no part of its output.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::cache::{Cache, Key, KeyBuilder};
use corten_steps::error::Result;
use corten_steps::fetch::Fetcher;
use corten_steps::lock::{Lock, Package};
use corten_steps::toolchain::{self, Locked};

/// The programs that the kernel's makefiles call besides clang, by their names under `LLVM=DIR/`.
const PROGRAMS: [&str; 8] = [
    "ld.lld",
    "llvm-ar",
    "llvm-nm",
    "llvm-objcopy",
    "llvm-objdump",
    "llvm-ranlib",
    "llvm-readelf",
    "llvm-strip",
];

/// The directory of programs.
#[derive(Debug, Clone)]
pub struct Llvm {
    bin: PathBuf,
}

impl Llvm {
    /// The locked programs, fetched and unpacked into the cache if they are not there.
    pub fn get(lock: &Lock, fetcher: &Fetcher, cache: &Cache) -> Result<Self> {
        let key = key(lock);
        let tree = cache.step("llvm", &key, |out, _| {
            let files: Vec<PathBuf> = packages(lock)
                .map(|package| fetcher.package(package))
                .collect::<Result<_>>()?;
            toolchain::unpack(&files, out)
        })?;
        Self::write(&tree, cache.root().join("bin").join(key.as_str()))
    }

    fn write(tree: &Path, bin: PathBuf) -> Result<Self> {
        fs::create_dir_all(&bin).with_context(|| format!("creating {}", bin.display()))?;
        let tree = Locked::new(tree);
        tree.clang(&bin)?;
        for name in PROGRAMS {
            tree.script(&format!("usr/lib/llvm-19/bin/{name}"), &bin)?;
        }
        tree.script("usr/bin/zstd", &bin)?;
        Ok(Self { bin })
    }

    /// The C compiler.
    pub fn clang(&self) -> PathBuf {
        self.bin.join("clang")
    }

    /// The arguments of the kernel's `make` that name the programs.
    pub fn arguments(&self) -> [String; 2] {
        let bin = self.bin.display();
        [format!("LLVM={bin}/"), format!("ZSTD={bin}/zstd")]
    }
}

/// Packages of the build machine's architecture.
fn packages(lock: &Lock) -> impl Iterator<Item = &Package> {
    lock.packages("kernel", Arch::BUILD.names().debian)
}

/// The hash of every package.
pub fn key(lock: &Lock) -> Key {
    packages(lock)
        .fold(KeyBuilder::new("llvm"), |key, package| {
            key.add("deb", &package.sha256)
        })
        .finish()
}

#[cfg(test)]
mod tests {
    use corten_steps::tool::Tool;

    use super::*;

    #[test]
    fn every_program_is_a_script_of_the_shell() {
        let dir = tempfile::tempdir().unwrap();
        let llvm = Llvm::write(&dir.path().join("it's a tree"), dir.path().join("bin")).unwrap();
        for name in PROGRAMS.iter().chain(&["clang", "zstd"]) {
            let script = llvm.bin.join(name);
            Tool::new("sh").arg("-n").arg(&script).run().unwrap();
            let text = fs::read_to_string(&script).unwrap();
            assert!(text.contains(&format!("/{name}'")), "{text}");
        }
    }
}
