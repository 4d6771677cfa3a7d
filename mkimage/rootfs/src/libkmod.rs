//! Builds libkmod from its source, for udevd (docs/decisions/0007-libkmod-from-source.md).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Result};
use corten_steps::lock::{Lock, Package, SOURCE};
use corten_steps::tool::Tool;
use corten_steps::toolchain::Compilers;
use corten_steps::untar;

use crate::licences::notice::Notice;

/// The library's name in the output of the step.
pub const LIBRARY: &str = "libkmod.so.2";
/// The purpose of its packages in the lock.
pub const PURPOSE: &str = "libkmod";
/// The version of this module's build steps; must be raised when they change.
pub const RECIPE: &str = "2";

/// What stands before the licence in a source file.
const IDENTIFIER: &str = "SPDX-License-Identifier:";
/// The text of the library's licence.
const TEXT: &str = "libkmod/COPYING";
/// The source directories of the library.
const PARTS: [&str; 2] = ["libkmod", "shared"];
/// Endings of the omitted source files.
const LEFT_OUT: [&str; 3] = ["-xz.c", "-zlib.c", "-zstd.c"];

/// The results of its build system's checks of compiler and C library, and its feature and
/// directory options (kmod, `meson.build`).
const CONFIG: &str = r#"#define _GNU_SOURCE 1
#define ENABLE_DEBUG 0
#define ENABLE_ELFDBG 0
#define ENABLE_LOGGING 1
#define ENABLE_OPENSSL 0
#define ENABLE_XZ 0
#define ENABLE_ZLIB 0
#define ENABLE_ZSTD 0
#define DISTCONFDIR "/usr/lib"
#define MODULE_DIRECTORY "/lib/modules"
#define SYSCONFDIR "/etc"
#define HAVE_DECL_BASENAME 1
#define HAVE_NORETURN 1
#define HAVE_SECURE_GETENV 1
#define HAVE_STATIC_ASSERT 1
#define HAVE_STRUCT_STAT_ST_MTIM 1
#define HAVE___BUILTIN_UADDLL_OVERFLOW 1
#define HAVE___BUILTIN_UADDL_OVERFLOW 1
#define HAVE___BUILTIN_UADD_OVERFLOW 1
#define HAVE___BUILTIN_UMULLL_OVERFLOW 1
#define HAVE___BUILTIN_UMULL_OVERFLOW 1
#define HAVE___BUILTIN_UMUL_OVERFLOW 1
"#;

/// Compiler flags: Debian's hardening of libraries, and no traces of the build machine.
const COMPILE: [&str; 14] = [
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffunction-sections",
    "-fdata-sections",
    "-fstack-protector-strong",
    "-fstack-clash-protection",
    "-D_FORTIFY_SOURCE=3",
    "-Wundef",
    "-Werror",
    "-include",
    "config.h",
    "-I.",
];
/// Linker flags.
const LINK: [&str; 8] = [
    "-shared",
    "-Wl,--version-script=libkmod/libkmod.sym",
    "-Wl,-soname,libkmod.so.2",
    "-Wl,--gc-sections",
    "-Wl,--no-undefined",
    "-Wl,-z,relro,-z,now,-z,noexecstack",
    "-Wl,--build-id=none",
    "-Wl,--strip-all",
];

/// The locked upstream source.
pub fn source(lock: &Lock) -> Result<&Package> {
    lock.packages(PURPOSE, SOURCE).next().ok_or_else(|| {
        Failure::new(
            format!("rootfs/packages.lock has no source for {PURPOSE}"),
            "restore its entry from version control",
        )
    })
}

/// Builds the library for `arch` from the upstream tarball into `out`.
pub fn build(
    tarball: &Path,
    arch: Arch,
    compilers: &Compilers,
    out: &Path,
    scratch: &Path,
) -> Result<()> {
    let tree = unpack(tarball, scratch)?;
    fs::write(tree.join("config.h"), CONFIG)?;
    Tool::new(compilers.c())
        .dir(&tree)
        .args(COMPILE)
        .arg(arch.names().guarded_jumps)
        .args(LINK)
        .arg("-o")
        .arg(out.join(LIBRARY))
        .args(sources(&tree)?)
        .run()
        .context("building libkmod")
}

/// The licence that the sources of the library name in their first lines, and its text.
///
/// # Errors
/// A file of the source is missing, or names no licence.
pub fn notice(tarball: &Path, scratch: &Path) -> Result<Notice> {
    let tree = unpack(tarball, scratch)?;
    let mut licences = BTreeSet::new();
    for source in sources(&tree)? {
        let text = fs::read_to_string(tree.join(&source))?;
        let named = text.lines().find_map(|line| line.split_once(IDENTIFIER));
        let (_, licence) = named.ok_or_else(|| {
            Failure::new(
                format!("{} of kmod names no licence", source.display()),
                "name the licence of kmod in rootfs/licences.toml",
            )
        })?;
        licences.insert(licence.trim().to_owned());
    }
    let licences: Vec<String> = licences.into_iter().collect();
    let text = fs::read_to_string(tree.join(TEXT)).context("reading the licence of kmod")?;
    Ok(Notice {
        licence: Some(licences.join(" AND ")),
        texts: vec![text],
    })
}

/// Unpacks the library's part of the tarball below `scratch`.
fn unpack(tarball: &Path, scratch: &Path) -> Result<PathBuf> {
    let tree = scratch.join("kmod");
    let file = fs::File::open(tarball).with_context(|| tarball.display().to_string())?;
    untar::unpack("kmod's source (1 MB)", file, &tree, |path| {
        PARTS.iter().any(|part| path.starts_with(part))
    })?;
    Ok(tree)
}

/// The C files of the library below `tree`, sorted.
fn sources(tree: &Path) -> Result<Vec<PathBuf>> {
    let mut sources = Vec::new();
    for part in PARTS {
        for entry in fs::read_dir(tree.join(part)).with_context(|| format!("no {part} in kmod"))? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".c") && !LEFT_OUT.iter().any(|end| name.ends_with(end)) {
                sources.push(Path::new(part).join(name));
            }
        }
    }
    sources.sort();
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_names_a_source_for_every_architecture() {
        let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let lock = Lock::read(&lock.join(corten_steps::lock::PACKAGES)).unwrap();
        assert_eq!(source(&lock).unwrap().name, "kmod");
        source(&Lock::default()).unwrap_err();
    }

    #[test]
    fn module_decompression_is_left_out_of_libkmod() {
        let dir = tempfile::tempdir().unwrap();
        for file in [
            "libkmod/libkmod.c",
            "libkmod/libkmod-file-xz.c",
            "libkmod/libkmod.h",
            "shared/util.c",
        ] {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let expected = ["libkmod/libkmod.c", "shared/util.c"].map(PathBuf::from);
        assert_eq!(sources(dir.path()).unwrap(), expected);
    }
}
