//! Builds the container runtime and the CNI plugins from the Go modules that `rootfs/go` pins.
//!
//! `go.sum` holds the checksum of every module. Fetching is a step of its own; the build has no
//! network. Never executes code of the target architecture.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::arch::Arch;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Failure, Result};
use corten_steps::tool::Tool;
use corten_steps::toolchain::{Compilers, quote};

use crate::{cni, go_size};

/// The module's directory, from the root of the repository.
pub const DIRECTORY: &str = "rootfs/go";

const CONTAINERD: &str = "github.com/containerd/containerd/v2";
const CONTAINERD_VERSION: &str = "github.com/containerd/containerd/v2/version.Version";
const RUNC: &str = "github.com/opencontainers/runc";
const PLUGINS: &str = "github.com/containernetworking/plugins";

/// Build tags that leave parts out: snapshotters whose file systems the kernel lacks, tracing exporters, and gRPC's
/// trace pages. Further ones are the WebAssembly machine of NRI, which the image's configuration turns off, generated
/// manuals, and C where pure Go has the same effect. The trace pages use templates, which keep the linker from dropping
/// unused methods: without them the shim of each pod is a third smaller.
const TAGS: &str = "no_btrfs,no_devmapper,no_zfs,no_tracing,nri_no_wasm,grpcnotrace,no_rdt,urfave_cli_no_docs,osusergo,netgo";

/// The version of this module's build steps; must be raised when they change.
const RECIPE: &str = "4";

/// The directories of our own CNI plugins, below the module.
const OWN_PLUGINS: [&str; 2] = ["flannel", "portmap"];

/// The name of the module `rootfs/go`.
const MODULE: &str = "corten/rootfs";

/// Programs of one module with the same build options.
struct Group {
    module: &'static str,
    packages: &'static [&'static str],
    /// The name of one program that all packages are combined into (see [`cni`]); `None` for a
    /// program per package.
    combined: Option<&'static str>,
    /// Build tags besides [`TAGS`].
    tags: &'static [&'static str],
    /// The variable the linker writes the version into.
    version: &'static str,
    /// Whether it needs a C compiler: runc enters namespaces before Go's runtime starts.
    c: bool,
}

const GROUPS: [Group; 4] = [
    Group {
        module: CONTAINERD,
        packages: &["cmd/containerd"],
        combined: None,
        tags: &[],
        version: CONTAINERD_VERSION,
        c: false,
    },
    Group {
        module: CONTAINERD,
        packages: &["cmd/containerd-shim-runc-v2"],
        combined: None,
        // The shim speaks ttrpc only. Without the stubs of gRPC, TLS is not in its program either (containerd, `Makefile`).
        tags: &["no_grpc"],
        version: CONTAINERD_VERSION,
        c: false,
    },
    Group {
        module: PLUGINS,
        packages: &[
            "plugins/main/bridge",
            "plugins/main/loopback",
            "plugins/ipam/host-local",
        ],
        combined: Some(cni::PROGRAM),
        tags: &[],
        version: "github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion",
        c: false,
    },
    Group {
        module: RUNC,
        packages: &[""],
        combined: None,
        tags: &["seccomp", "runc_nocriu"],
        version: "main.version",
        c: true,
    },
];

/// The inputs of the programs.
#[derive(Debug)]
pub struct Inputs<'a> {
    /// The unpacked packages of the purpose `go`.
    pub go: &'a Path,
    /// `rootfs/go` of the repository.
    pub module: &'a Path,
    /// The C compilers for the target, with its architecture.
    pub compilers: &'a Compilers,
    /// The directory of fetched modules and compiled packages; its content changes no output.
    pub cache: &'a Path,
}

impl Inputs<'_> {
    /// Adds the inputs that are files of the repository to a step's key. The caller adds the keys
    /// of the unpacked trees.
    pub fn key(module: &Path, arch: Arch, key: KeyBuilder) -> Result<KeyBuilder> {
        let key = key
            .add("revision", super::REVISION)
            .add("recipe", RECIPE)
            .add("tags", TAGS)
            .add("inlined", go_size::INLINED.join(","));
        let mut key = key
            .add("arch", arch.names().go)
            .file(&module.join("go.mod"))?
            .file(&module.join("go.sum"))?;
        for plugin in OWN_PLUGINS {
            key = key.tree(&module.join(plugin))?;
        }
        Ok(key)
    }

    /// Fetches every pinned module that is missing in the cache, verified by `go.sum`.
    pub fn fetch(&self, offline: bool) -> Result<()> {
        for group in &GROUPS {
            // Loads exactly the modules with a package in one of the programs.
            self.tool(offline.then_some("off"))?
                .env("CGO_ENABLED", if group.c { "1" } else { "0" })
                .args(["list", "-mod=readonly", "-deps", "-tags", &group.tags()])
                .args(group.paths())
                .args(group.own().map(|plugin| format!("./{plugin}")))
                .run()
                .with_context(|| format!("fetching the Go modules of {}", group.module))?;
        }
        Ok(())
    }

    /// Builds every program into `out` without network; needs the modules of [`Self::fetch`].
    pub fn build(&self, out: &Path, scratch: &Path) -> Result<()> {
        let gomod = std::fs::read_to_string(self.module.join("go.mod"))
            .with_context(|| format!("reading {}", self.module.join("go.mod").display()))?;
        let overlay = go_size::overlay(&self.directory(&["env", "GOROOT"])?, scratch)?;
        for group in &GROUPS {
            let version = module_version(&gomod, group.module)?;
            let mut flags = format!("-s -w -buildid= -X {}={version}", group.version);
            // Go refuses linker scripts, such as the C library's, below its temporary directory,
            // and the cache may be in /tmp.
            let mut tool = self.tool(Some("off"))?.env("TMPDIR", scratch);
            if group.c {
                tool = self.with_c(tool);
                flags.push_str(" -linkmode=external");
            } else {
                tool = tool.env("CGO_ENABLED", "0");
            }
            tool = tool.args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false"]);
            if group.c {
                tool = tool.arg("-buildmode=pie");
            }
            tool = tool
                .args(go_size::compiler_flags())
                .arg("-overlay")
                .arg(&overlay)
                .args(["-tags", &group.tags(), "-ldflags", &flags, "-o"])
                .arg(out.join(""));
            tool = match group.combined {
                None => tool.args(group.paths()),
                Some(program) => {
                    let module = self.combine(group, &scratch.join(program))?;
                    tool.dir(&module).arg(format!("./{program}"))
                }
            };
            tool.run()
                .with_context(|| format!("building {} {version}", group.module))?;
        }
        Ok(())
    }

    /// Makes a copy of `rootfs/go` in `module` with the group's combined program.
    fn combine(&self, group: &Group, module: &Path) -> Result<PathBuf> {
        // Go does not look for an absolute path among the module's sources.
        let sources = std::path::absolute(self.module)
            .with_context(|| format!("finding {}", self.module.display()))?;
        let own = group.own().map(|plugin| sources.join(plugin));
        let own: Vec<String> = own
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        let mut packages = group.packages.to_vec();
        packages.extend(own.iter().map(String::as_str));
        cni::combine(&self.sources(group.module)?, &packages, module, MODULE)?;
        self.copy_pins(module)?;
        Ok(module.to_owned())
    }

    /// The directory of a fetched module's sources.
    pub(super) fn sources(&self, module: &str) -> Result<PathBuf> {
        self.directory(&["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module])
    }

    /// The directory that a `go` command with `arguments` prints.
    fn directory(&self, arguments: &[&str]) -> Result<PathBuf> {
        let found = self.tool(Some("off"))?.args(arguments).output()?;
        Ok(PathBuf::from(String::from_utf8_lossy(&found).trim()))
    }

    /// Makes the directory `module` a Go module with the same pins.
    pub(super) fn copy_pins(&self, module: &Path) -> Result<()> {
        for name in ["go.mod", "go.sum"] {
            std::fs::copy(self.module.join(name), module.join(name))
                .with_context(|| format!("copying {name}"))?;
        }
        Ok(())
    }

    /// A call of `go` with a complete environment; `proxy` overrides the source of modules.
    pub(super) fn tool(&self, proxy: Option<&str>) -> Result<Tool> {
        let mut tool = Tool::new(go_program(self.go)?)
            .dir(self.module)
            .env("GOENV", "off")
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "-modcacherw")
            .env("GOWORK", "off")
            .env("GOTELEMETRY", "off")
            .env("GOOS", "linux")
            .env("GOARCH", self.compilers.arch.names().go)
            .env("GOMODCACHE", modules(self.cache))
            .env("GOPATH", self.cache.join("path"))
            .env("GOCACHE", self.cache.join("build"));
        for name in [
            "GOPROXY",
            "GONOPROXY",
            "GONOSUMDB",
            "GOSUMDB",
            "GOPRIVATE",
            "GOINSECURE",
        ] {
            if let Some(value) = std::env::var_os(name) {
                tool = tool.env(name, value);
            }
        }
        for name in ["http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                tool = tool.env(name, value);
            }
        }
        Ok(match proxy {
            Some(proxy) => tool.env("GOPROXY", proxy),
            None => tool,
        })
    }

    fn with_c(&self, tool: Tool) -> Tool {
        let prefix = format!(
            "-ffile-prefix-map={}=/sysroot",
            quote(&self.compilers.sysroot)
        );
        let hardening = "-O2 -g0 -fPIE -fstack-protector-strong -fstack-clash-protection \
                         -D_FORTIFY_SOURCE=3 -Wno-macro-redefined";
        self.compilers
            .pkg_config(tool)
            .env("CGO_ENABLED", "1")
            .env("CC", self.compilers.c())
            .env("CGO_CFLAGS", format!("{hardening} {prefix}"))
            .env("CGO_LDFLAGS_ALLOW", "-Wl,.*")
            .env(
                "CGO_LDFLAGS",
                "-Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--build-id=none",
            )
    }
}

impl Group {
    fn tags(&self) -> String {
        [&[TAGS], self.tags].concat().join(",")
    }

    /// Our own packages that are combined with the group's.
    fn own(&self) -> impl Iterator<Item = &'static str> {
        let own: &[&str] = match self.combined {
            Some(_) => &OWN_PLUGINS,
            None => &[],
        };
        own.iter().copied()
    }

    fn paths(&self) -> impl Iterator<Item = String> + '_ {
        self.packages.iter().map(|package| {
            if package.is_empty() {
                self.module.to_owned()
            } else {
                format!("{}/{package}", self.module)
            }
        })
    }
}

/// The names of the programs of [`Inputs::build`].
pub fn programs() -> Vec<&'static str> {
    let last = |path: &'static str| path.rsplit('/').next().unwrap_or(path);
    GROUPS
        .iter()
        .flat_map(|group| match group.combined {
            Some(program) => vec![program],
            None => group
                .packages
                .iter()
                .map(|package| match *package {
                    "" => last(group.module),
                    package => last(package),
                })
                .collect(),
        })
        .collect()
}

/// The pinned version of a module, without the `v`.
pub fn module_version<'a>(gomod: &'a str, module: &str) -> Result<&'a str> {
    gomod
        .lines()
        .filter_map(|line| line.trim().strip_prefix(module)?.strip_prefix(" v"))
        .filter_map(|rest| rest.split_whitespace().next())
        .next()
        .ok_or_else(|| {
            Failure::new(
                format!("go.mod does not pin {module}"),
                "pin it: go get -tool MODULE/PACKAGE@VERSION in rootfs/go or rootfs/kubernetes",
            )
        })
}

/// The directory of a module's sources, below that of all fetched modules: Go writes `!a` for `A`.
pub fn directory(module: &str, version: &str) -> String {
    let escaped = |c: char| match c.is_ascii_uppercase() {
        true => format!("!{}", c.to_ascii_lowercase()),
        false => c.to_string(),
    };
    format!("{module}@{version}").chars().map(escaped).collect()
}

/// The directory of all fetched modules below [`Inputs::cache`].
pub fn modules(cache: &Path) -> PathBuf {
    cache.join("modules")
}

/// The `go` program of the tree unpacked at `root`, of any version.
pub fn go_program(root: &Path) -> Result<PathBuf> {
    let lib = root.join("usr/lib");
    // A missing directory means that there is no `go` program.
    for entry in std::fs::read_dir(&lib).into_iter().flatten() {
        let program = entry?.path().join("bin/go");
        if program.is_file() {
            return Ok(program);
        }
    }
    Err(Failure::new(
        format!("there is no Go compiler below {}", lib.display()),
        "lock golang-*-go and golang-*-src for the use \"go\" in rootfs/packages.lock",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_module_built_is_pinned_with_a_checksum() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rootfs/go");
        let gomod = std::fs::read_to_string(dir.join("go.mod")).unwrap();
        let gosum = std::fs::read_to_string(dir.join("go.sum")).unwrap();
        for group in &GROUPS {
            let version = module_version(&gomod, group.module).unwrap();
            assert!(
                gosum.contains(&format!("{} v{version} h1:", group.module)),
                "{}",
                group.module
            );
        }
        let error = module_version(&gomod, "example.org/none")
            .unwrap_err()
            .to_string();
        assert!(error.contains("does not pin example.org/none"), "{error}");
    }

    #[test]
    fn directory_of_a_module_is_that_of_go() {
        let found = directory("github.com/Microsoft/hcsshim", "v0.15.0-rc.1");
        assert_eq!(found, "github.com/!microsoft/hcsshim@v0.15.0-rc.1");
    }

    #[test]
    fn own_cni_plugins_are_combined_into_the_program() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rootfs/go");
        let own = OWN_PLUGINS.map(|plugin| dir.join(plugin).to_string_lossy().into_owned());
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let module = tempfile::tempdir().unwrap();
        cni::combine(Path::new("/nonexistent"), &own, module.path(), MODULE).unwrap();
        let main = std::fs::read_to_string(module.path().join("cni/main.go")).unwrap();
        for (index, plugin) in OWN_PLUGINS.iter().enumerate() {
            let row = format!("\t\"{plugin}\": p{index}.Main,");
            assert!(main.contains(&row), "{main}");
        }
    }

    #[test]
    fn programs_are_named_by_their_last_path_element() {
        let names = programs();
        for name in ["containerd", "containerd-shim-runc-v2", "runc", "cni"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert_eq!(names.len(), 4);
    }
}
