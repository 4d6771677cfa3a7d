//! The locked compilers and image tools, run without being installed.
//!
//! Each unpacked tree contains its own C library, and a program starts through that library's dynamic linker. So the
//! output does not depend on the host's distribution; only the kernel and `/bin/sh` are the host's.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::arch::Arch;
use crate::deb;
use crate::error::Result;
use crate::tool::Tool;

/// The directory of clang's own headers in a tree.
const CLANG_RESOURCES: &str = "usr/lib/llvm-19/lib/clang/19";

const TARGET_CLANG: &str = "target-clang";
const BUILD_CLANG: &str = "build-clang";

/// Shell code that turns rustc's call for a static program at a fixed address into a call for a
/// static position-independent one.
const STATIC_PIE: &str = "\
    case \" $* \" in *\" -static \"*)\n\
    for word; do shift; case $word in\n\
    -static) set -- \"$@\" -static-pie ;;\n\
    -no-pie) ;;\n\
    *) set -- \"$@\" \"$word\" ;;\n\
    esac; done ;;\n\
    esac\n";

/// Whether any build reads the path of a package.
fn is_needed(path: &str) -> bool {
    const SKIPPED: [&str; 5] = [
        "usr/share/doc/",
        "usr/share/man/",
        "usr/share/lintian/",
        "usr/share/locale/",
        "usr/share/info/",
    ];
    let go_tests = path.strip_prefix("usr/share/go-").is_some_and(|rest| {
        let below = rest.split_once('/').map_or("", |(_, below)| below);
        ["test/", "api/", "misc/"]
            .iter()
            .any(|dir| below.starts_with(dir))
            || below.contains("/testdata/")
    });
    !go_tests && !SKIPPED.iter().any(|prefix| path.starts_with(prefix))
}

/// Unpacks packages into one tree at `root`, with the links of a merged `/usr`.
pub fn unpack(packages: &[PathBuf], root: &Path) -> Result<()> {
    for package in packages {
        deb::unpack(package, root, is_needed)?;
    }
    for (link, target) in [
        ("bin", "usr/bin"),
        ("lib", "usr/lib"),
        ("lib64", "usr/lib64"),
    ] {
        let path = root.join(link);
        if path.symlink_metadata().is_err() {
            symlink(target, &path).with_context(|| format!("linking {}", path.display()))?;
        }
    }
    Ok(())
}

/// A tree of unpacked programs with the libraries they load.
#[derive(Debug, Clone)]
pub struct Locked {
    root: PathBuf,
}

impl Locked {
    /// The tree that [`unpack`] made at `root`.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// A call of the tree's program at `path`, such as `usr/bin/mksquashfs`.
    pub fn tool(&self, path: &str) -> Tool {
        Tool::new(self.loader())
            .arg("--library-path")
            .arg(self.libraries())
            .arg(self.path(path))
    }

    /// A script in `dir` that starts the program at `path`, for code that needs the path of a
    /// program.
    pub fn script(&self, path: &str, dir: &Path) -> Result<PathBuf> {
        let script = dir.join(Path::new(path).file_name().unwrap_or_default());
        write_script(
            &script,
            &format!("#!/bin/sh\nexec {} \"$@\"\n", self.start("\"$0\"", path)),
        )?;
        Ok(script)
    }

    /// The words of a shell command that starts the program at `path` with the name `argv0`.
    fn start(&self, argv0: &str, path: &str) -> String {
        format!(
            "{} --library-path {} --argv0 {argv0} {}",
            quote(&self.loader()),
            quote(&self.libraries()),
            quote(&self.path(path)),
        )
    }

    /// A script in `dir` that starts the tree's clang for the build machine, with the build
    /// machine's C library.
    pub fn clang(&self, dir: &Path) -> Result<()> {
        write_script(&dir.join("clang"), &clang_script(self, ""))
    }

    /// A path in the tree.
    pub fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The directory of the tree's libraries.
    pub fn libraries(&self) -> PathBuf {
        self.root.join("usr/lib").join(Arch::BUILD.names().gnu)
    }

    /// The tree's dynamic linker.
    pub fn loader(&self) -> PathBuf {
        self.libraries().join(Arch::BUILD.names().loader)
    }
}

/// The compilers for the image's programs: small scripts that start the locked programs.
#[derive(Debug, Clone)]
pub struct Compilers {
    /// The tree of the purpose `toolchain`.
    pub toolchain: Locked,
    /// The tree of the purpose `sysroot`: headers and libraries of the target.
    pub sysroot: PathBuf,
    /// Headers and libraries of [`Arch::BUILD`], on which build scripts and procedural macros run.
    pub build_sysroot: PathBuf,
    /// The target architecture.
    pub arch: Arch,
    bin: PathBuf,
}

/// The unpacked trees of the [`Compilers`].
#[derive(Debug, Clone, Copy)]
pub struct Trees<'a> {
    /// The tree of the purposes `toolchain` and `std`.
    pub toolchain: &'a Path,
    /// The tree of the purpose `sysroot`, for the target.
    pub sysroot: &'a Path,
    /// The tree of the purpose `sysroot`, for [`Arch::BUILD`]; the same as for the target if the
    /// target is that architecture.
    pub build_sysroot: &'a Path,
}

impl Compilers {
    /// Writes the scripts into `bin`. An unchanged script keeps its date: cargo rebuilds everything
    /// after a change of its compiler's date.
    pub fn write(trees: Trees<'_>, arch: Arch, bin: &Path) -> Result<Self> {
        let compilers = Self {
            toolchain: Locked::new(trees.toolchain),
            sysroot: trees.sysroot.to_owned(),
            build_sysroot: trees.build_sysroot.to_owned(),
            arch,
            bin: bin.to_owned(),
        };
        fs::create_dir_all(bin).with_context(|| format!("creating {}", bin.display()))?;
        for (name, text) in [
            ("lld", compilers.linker_script()),
            (TARGET_CLANG, compilers.c_script(arch, &compilers.sysroot)),
            (
                BUILD_CLANG,
                compilers.c_script(Arch::BUILD, &compilers.build_sysroot),
            ),
            ("rustc", compilers.rust_script()),
        ] {
            write_script(&bin.join(name), &text)?;
        }
        compilers.toolchain.script("usr/bin/protoc", bin)?;
        Ok(compilers)
    }

    /// The directory of the scripts, for `PATH`.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    /// The C compiler and linker driver for the image. rustc derives its flavour from its name.
    pub fn c(&self) -> PathBuf {
        self.bin.join(TARGET_CLANG)
    }

    /// The C compiler and linker driver for programs that run during the build.
    pub fn build_c(&self) -> PathBuf {
        self.bin.join(BUILD_CLANG)
    }

    /// The Rust compiler.
    pub fn rust(&self) -> PathBuf {
        self.bin.join("rustc")
    }

    /// The protobuf compiler for dependencies; our own build script does not need it.
    pub fn protoc(&self) -> PathBuf {
        self.bin.join("protoc")
    }

    /// The directory of clang's own headers.
    pub fn clang_resources(&self) -> PathBuf {
        self.toolchain.path(CLANG_RESOURCES)
    }

    /// Restricts `pkg-config` to the sysroot's libraries.
    pub fn pkg_config(&self, tool: Tool) -> Tool {
        let gnu = self.arch.names().gnu;
        let directory = self.sysroot.join(format!("usr/lib/{gnu}/pkgconfig"));
        tool.env("PKG_CONFIG_LIBDIR", directory)
            .env("PKG_CONFIG_SYSROOT_DIR", &self.sysroot)
            .env("PKG_CONFIG_ALLOW_CROSS", "1")
    }

    /// A script for lld, which selects its flavour by its name.
    fn linker_script(&self) -> String {
        format!(
            "#!/bin/sh\nexec {} \"$@\"\n",
            self.toolchain.start("ld.lld", "usr/lib/llvm-19/bin/lld")
        )
    }

    fn c_script(&self, arch: Arch, sysroot: &Path) -> String {
        let gnu = arch.names().gnu;
        let script = clang_script(
            &self.toolchain,
            &format!(
                "--target={gnu} --sysroot={sysroot} \
                 --gcc-install-dir={sysroot}/usr/lib/gcc/{gnu}/14 \
                 --ld-path={lld} -Wno-unused-command-line-argument",
                sysroot = quote(sysroot),
                lld = quote(&self.bin.join("lld")),
            ),
        );
        match arch.names().rust_links_static_pie {
            true => script,
            false => script.replacen("#!/bin/sh\n", &format!("#!/bin/sh\n{STATIC_PIE}"), 1),
        }
    }

    /// The script for rustc. Build scripts run on the host but link to the locked C library, so
    /// that they must start through its dynamic linker. `check_*` are probes that a build script
    /// compiles with a bare `rustc`.
    fn rust_script(&self) -> String {
        format!(
            "#!/bin/sh\n\
             case \"$*\" in *\"--crate-name build_script_\"*|*/check_*.rs*)\n\
             set -- \"$@\" -C linker={clang} -C link-arg=-Wl,--dynamic-linker={loader} \
             -C link-arg=-Wl,-rpath,{libraries} -C link-arg=-Wl,--disable-new-dtags ;;\n\
             esac\n\
             exec {rustc} \"$@\"\n",
            clang = quote(&self.build_c()),
            loader = quote(&self.toolchain.loader()),
            libraries = quote(&self.toolchain.libraries()),
            rustc = self.toolchain.start("rustc", "usr/bin/rustc"),
        )
    }
}

/// A script that starts the clang of `tree`, with `arguments` (words of the shell) before the
/// caller's.
///
/// For some calls clang starts itself again by the name it was given, and it looks for its headers
/// beside its program. Both must be the program in the tree, not the script.
fn clang_script(tree: &Locked, arguments: &str) -> String {
    let clang = tree.start("\"$0\"", "usr/lib/llvm-19/bin/clang");
    let resources = quote(&tree.path(CLANG_RESOURCES));
    format!(
        "#!/bin/sh\n\
         case \"$1\" in -cc1*) exec {clang} \"$@\" ;; esac\n\
         exec {clang} -no-canonical-prefixes -resource-dir={resources} {arguments} \"$@\"\n"
    )
}

/// A path, quoted as one word of the shell.
pub fn quote(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

/// Writes a program in the language of the shell. An unchanged script keeps its date.
pub fn write_script(path: &Path, text: &str) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    let partial = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&partial, text)
        .and_then(|()| fs::set_permissions(&partial, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&partial, path))
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_and_tests_stay_packed() {
        for path in ["usr/share/doc/x/y", "usr/share/go-1.26/test/a.go"] {
            assert!(!is_needed(path), "{path}");
        }
        assert!(!is_needed("usr/share/go-1.26/src/a/testdata/b"));
        for path in [
            "usr/share/go-1.26/src/a.go",
            "usr/share/go-1.26/src/testing/t.go",
            "usr/bin/x",
        ] {
            assert!(is_needed(path), "{path}");
        }
    }

    #[test]
    fn scripts_hold_hostile_paths_and_are_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("it's a $(tree)");
        let make = || {
            let trees = Trees {
                toolchain: &root.join("tools"),
                sysroot: &root.join("sys"),
                build_sysroot: &root.join("build"),
            };
            Compilers::write(trees, Arch::Arm64, &root.join("bin")).unwrap()
        };
        let c = make().c();
        let first = fs::metadata(&c).unwrap().modified().unwrap();
        let text = fs::read_to_string(&c).unwrap();
        assert!(text.contains(r"it'\''s a $(tree)"), "{text}");
        Tool::new("sh").arg("-n").arg(&c).run().unwrap();
        Tool::new("sh").arg("-n").arg(make().rust()).run().unwrap();
        assert_eq!(fs::metadata(&c).unwrap().modified().unwrap(), first);
    }

    #[test]
    fn static_programs_are_linked_for_any_address() {
        let call = |words: &[&str]| {
            let script = format!("{STATIC_PIE}printf '%s\\n' \"$@\"");
            let said = Tool::new("sh")
                .args(["-c", &script, "sh"])
                .args(words)
                .output()
                .unwrap();
            String::from_utf8(said).unwrap()
        };
        assert_eq!(call(&["-static", "-no-pie", "a b"]), "-static-pie\na b\n");
        assert_eq!(call(&["-no-pie", "$x"]), "-no-pie\n$x\n");
    }
}
