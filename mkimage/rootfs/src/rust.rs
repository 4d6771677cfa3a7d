//! Builds the programs of this workspace for the image: locked compiler, locked C library, remapped paths.
//!
//! `init` and the multi-call program are static, position-independent programs; `udevd` links to libraries of the
//! image. Only cargo is the host's: it schedules compiler calls and does not affect their output.

use std::ffi::OsString;
use std::fs;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread::{self, ScopedJoinHandle};

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::Result;
use corten_steps::tool::Tool;
use corten_steps::toolchain::{Compilers, quote, write_script};

use crate::{order, workspace};

/// Cargo packages and their programs, built by one call of cargo.
struct Group {
    /// Name of the target directory: the compiler flags of the groups differ.
    name: &'static str,
    packages: &'static [&'static str],
    programs: &'static [&'static str],
    is_static: bool,
}

static GROUPS: [Group; 2] = [
    Group {
        name: "static",
        packages: &["init", "multicall"],
        programs: &["init", "corten-node"],
        is_static: true,
    },
    Group {
        name: "dynamic",
        packages: &["udevd"],
        programs: &["udevd"],
        is_static: false,
    },
];

/// The crates whose programs are in the image.
pub fn packages() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.packages).copied()
}

/// Directories and files of the repository that the programs are compiled from.
const SOURCES: [&str; 7] = [
    "Cargo.toml",
    "Cargo.lock",
    "build.rs",
    "api",
    "lib",
    "node",
    "services",
];

/// Options of the linker. A position-independent program relocates itself at each start: the packed list of relocations
/// is a twentieth of the size. Functions with the same instructions become one; no program compares their addresses.
const LINKER: [&str; 4] = [
    "-z,noexecstack",
    "-z,pack-relative-relocs",
    "--build-id=none",
    "--icf=all",
];

/// Adds what determines the crates that are linked into the programs to a step's key, without the sources.
///
/// # Errors
/// A manifest of the workspace cannot be read.
pub fn linked_key(workspace: &Path, key: KeyBuilder) -> Result<KeyBuilder> {
    let mut key = key.file(&workspace.join("Cargo.lock"))?;
    for member in workspace::members(workspace)?
        .iter()
        .chain([&PathBuf::new()])
    {
        key = key.file(&workspace.join(member).join("Cargo.toml"))?;
    }
    Ok(key)
}

/// The profile of `Cargo.toml` the programs are built with.
#[derive(Debug, Clone, Copy)]
pub enum CargoProfile {
    /// For shipped images. Any change takes minutes, because every program is optimised as a whole.
    Release,
    /// For development. A change of one crate takes seconds.
    Quick,
}

impl CargoProfile {
    /// Its name, also that of cargo's output directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Quick => "quick",
        }
    }
}

/// The inputs of the programs.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// The repository.
    pub workspace: &'a Path,
    /// The compilers, their sysroot and architecture.
    pub compilers: &'a Compilers,
    /// The optimisation of the programs.
    pub profile: CargoProfile,
    /// The directory of copied sources and compiled crates; its content changes no output.
    pub target: &'a Path,
}

/// The copy of the sources in [`Inputs::target`].
const COPY: &str = "source";

impl Inputs<'_> {
    /// Adds the inputs that are files of the repository to a step's key. The caller adds the keys
    /// of the unpacked trees.
    pub fn key(workspace: &Path, mut key: KeyBuilder) -> Result<KeyBuilder> {
        key = key
            .add("revision", super::REVISION)
            .add("linker", LINKER.join(","));
        for source in SOURCES {
            let path = workspace.join(source);
            key = key.add("source", source);
            key = if path.is_dir() {
                key.tree(&path)?
            } else {
                key.file(&path)?
            };
        }
        Ok(key)
    }

    /// Fetches every crate of `Cargo.lock` that is missing in cargo's cache.
    pub fn fetch(&self, offline: bool) -> Result<()> {
        let mut tool = self
            .cargo()
            .args(["fetch", "--locked", "--target", self.rust_target()]);
        if offline {
            tool = tool.arg("--offline");
        }
        tool.run().context("fetching the Rust crates")
    }

    /// Copies the sources to cargo's working directory and returns it. The caller must ensure that
    /// no other build uses the same [`Self::target`].
    pub fn copy(&self) -> Result<PathBuf> {
        let copy = self.target.join(COPY);
        workspace::sync(self.workspace, &copy, &SOURCES)?;
        Ok(copy)
    }

    /// Builds every program into `out` without network; needs the sources of [`Self::copy`] and the
    /// crates of [`Self::fetch`].
    pub fn build(&self, out: &Path) -> Result<()> {
        // In parallel: each group compiles its largest crate last, on one processor.
        thread::scope(|scope| {
            let build = |group| scope.spawn(move || self.build_group(group, out));
            let running = GROUPS.each_ref().map(build);
            let ended = running.map(ScopedJoinHandle::join);
            let results = ended
                .into_iter()
                .map(|end| end.unwrap_or_else(|panic| resume_unwind(panic)));
            results.collect()
        })
    }

    fn build_group(&self, group: &Group, out: &Path) -> Result<()> {
        let target = self.target.join(group.name);
        let mut tool = self
            .compile(group, &target)?
            .dir(&self.target.join(COPY))
            .args([
                "build",
                "--profile",
                self.profile.name(),
                "--frozen",
                "--target",
                self.rust_target(),
            ]);
        for package in group.packages {
            tool = tool.args(["--package", package]);
        }
        tool.run()
            .with_context(|| format!("building {}", group.packages.join(" and ")))?;
        let copy = |from: &Path, name: &str| {
            fs::copy(from, out.join(name))
                .map(drop)
                .with_context(|| format!("copying {}", from.display()))
        };
        let built = target.join(self.rust_target()).join(self.profile.name());
        for program in group.programs {
            copy(&built.join(program), program)?;
        }
        if self.is_ordered(group) {
            copy(&target.join(order::TABLE), order::TABLE)?;
        }
        Ok(())
    }

    /// Whether the linker places the functions that a node uses beside each other. It reads every object file first,
    /// which development does without.
    fn is_ordered(&self, group: &Group) -> bool {
        group.is_static && matches!(self.profile, CargoProfile::Release)
    }

    /// A linker for rustc that calls `mkimage link` for programs, and not for procedural macros, which are libraries.
    fn ordering_linker(&self, target: &Path) -> Result<PathBuf> {
        let linker = target.join("ordering-clang");
        let mkimage = std::env::current_exe().context("finding the path of this program")?;
        let used = self.target.join(COPY).join(order::USED);
        let text = format!(
            "#!/bin/sh\ncase \" $* \" in *\" -shared \"*) exec {clang} \"$@\" ;; esac\n\
             exec {mkimage} link {clang} {used} {target} -- \"$@\"\n",
            clang = quote(&self.compilers.c()),
            mkimage = quote(&mkimage),
            used = quote(&used),
            target = quote(target),
        );
        fs::create_dir_all(target).with_context(|| format!("creating {}", target.display()))?;
        write_script(&linker, &text)?;
        Ok(linker)
    }

    fn rust_target(&self) -> &'static str {
        self.compilers.arch.names().rust
    }

    fn cargo(&self) -> Tool {
        cargo(self.workspace, &self.compilers.rust())
    }

    fn compile(&self, group: &Group, target: &Path) -> Result<Tool> {
        let compilers = self.compilers;
        let names = compilers.arch.names();
        let [triple, build_triple] =
            [names, Arch::BUILD.names()].map(|names| names.rust.replace('-', "_"));
        let maps = self.path_maps(target)?;
        let c_flags: Vec<String> = maps
            .iter()
            .map(|(from, to)| format!("-ffile-prefix-map={}={to}", quote(from)))
            .collect();
        let resources = compilers.clang_resources().join("include");
        let mut path = OsString::from(compilers.bin());
        if let Some(rest) = std::env::var_os("PATH") {
            path.push(":");
            path.push(rest);
        }
        let linker = |triple: &str| format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase());
        let program_linker = match self.is_ordered(group) {
            true => self.ordering_linker(target)?,
            false => compilers.c(),
        };
        Ok(compilers
            .pkg_config(self.cargo())
            .env("PATH", path)
            .env("CARGO_TARGET_DIR", target)
            .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(group, &maps))
            .env(&linker(&build_triple), compilers.build_c())
            .env(&format!("CC_{build_triple}"), compilers.build_c())
            .env(&linker(&triple), program_linker)
            .env(&format!("CC_{triple}"), compilers.c())
            .env("CC_SHELL_ESCAPED_FLAGS", "1")
            .env(&format!("CFLAGS_{triple}"), c_flags.join(" "))
            .env("CLANG_PATH", compilers.c())
            .env("PROTOC", compilers.protoc())
            .env("PROTOC_INCLUDE", compilers.toolchain.path("usr/include"))
            .env(
                "LIBCLANG_PATH",
                compilers.toolchain.path("usr/lib/llvm-19/lib"),
            )
            .env(
                "BINDGEN_EXTRA_CLANG_ARGS",
                format!(
                    "--target={} --sysroot={} -isystem {}",
                    names.gnu,
                    quote(&compilers.sysroot),
                    quote(&resources)
                ),
            ))
    }

    /// The directories of this machine that the compiler replaces in the programs, with their
    /// neutral names.
    fn path_maps(&self, target: &Path) -> Result<Vec<(PathBuf, &'static str)>> {
        let mut maps = vec![
            (self.target.join(COPY), "/src"),
            (target.to_owned(), "/target"),
            (self.compilers.sysroot.clone(), "/sysroot"),
            (self.compilers.build_sysroot.clone(), "/sysroot"),
            (self.compilers.toolchain.path(""), "/toolchain"),
        ];
        let home = std::env::var_os("CARGO_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")));
        if let Some(home) = home {
            let sources = home.join("registry/src");
            if sources.is_dir() {
                // One directory per registry; the programs must not contain the registry's name.
                for entry in fs::read_dir(&sources)
                    .with_context(|| format!("listing {}", sources.display()))?
                {
                    maps.push((entry?.path(), "/crates"));
                }
            }
            maps.push((home.join("registry"), "/registry"));
        }
        maps.sort();
        maps.dedup();
        Ok(maps)
    }
}

/// A call of cargo in `workspace`, without any user configuration that could change the output.
pub fn cargo(workspace: &Path, rustc: &Path) -> Tool {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut tool = Tool::new(program).dir(workspace).env("RUSTC", rustc);
    for name in [
        "CARGO_HOME",
        "RUSTUP_HOME",
        "RUSTUP_TOOLCHAIN",
        "SSL_CERT_FILE",
    ] {
        if let Some(value) = std::env::var_os(name) {
            tool = tool.env(name, value);
        }
    }
    for name in ["http_proxy", "https_proxy", "no_proxy"] {
        if let Some(value) = std::env::var_os(name) {
            tool = tool.env(name, value);
        }
    }
    tool.env("RUSTC_WRAPPER", "")
        .env("RUSTC_WORKSPACE_WRAPPER", "")
}

/// rustc's flags, separated as cargo expects. rustc applies the last matching remapping, so that
/// shorter paths come first.
fn rust_flags(group: &Group, maps: &[(PathBuf, &'static str)]) -> String {
    let crt = if group.is_static {
        "+crt-static"
    } else {
        "-crt-static"
    };
    let mut flags = vec![
        "-Ctarget-feature=".to_owned() + crt,
        "-Crelocation-model=pie".to_owned(),
        "-Crelro-level=full".to_owned(),
        // Symbols name the types of generic functions, by which `order` tells them apart.
        "-Csymbol-mangling-version=v0".to_owned(),
    ];
    flags.extend(LINKER.map(|option| format!("-Clink-arg=-Wl,{option}")));
    flags.extend(
        maps.iter()
            .map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display())),
    );
    flags.join("\u{1f}")
}

/// The names of the programs of [`Inputs::build`].
pub fn programs() -> Vec<&'static str> {
    GROUPS
        .iter()
        .flat_map(|group| group.programs.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_with_a_blank_stays_one_flag() {
        let [is_static, dynamic] = &GROUPS;
        let maps = [(PathBuf::from("/a b"), "/src")];
        let flags = rust_flags(is_static, &maps);
        assert!(
            flags
                .split('\u{1f}')
                .any(|flag| flag == "--remap-path-prefix=/a b=/src")
        );
        assert!(
            flags.contains("+crt-static") && rust_flags(dynamic, &maps).contains("-crt-static")
        );
    }

    #[test]
    fn build_key_changes_with_every_source() {
        let dir = tempfile::tempdir().unwrap();
        for source in SOURCES {
            let path = dir.path().join(source);
            if source.contains('.') {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "").unwrap();
            } else {
                fs::create_dir_all(&path).unwrap();
            }
        }
        let key = || {
            Inputs::key(dir.path(), KeyBuilder::new("rust"))
                .unwrap()
                .finish()
        };
        let before = key();
        assert_eq!(before, key());
        fs::write(dir.path().join("lib/new.rs"), "").unwrap();
        assert_ne!(before, key());
    }
}
