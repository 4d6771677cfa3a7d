//! Builds the programs of the container images from the Go modules that `rootfs/kubernetes` pins.
//!
//! Fetches and builds by the rules of [`go`](super::go): `go.sum` holds every checksum, the build
//! has no network, and no code of the target architecture runs. No program contains C.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use corten_steps::cache::KeyBuilder;
use corten_steps::error::{Failure, Result};
use corten_steps::tool::Tool;

use super::go::{Inputs, module_version};

/// The module's directory, from the root of the repository.
pub const DIRECTORY: &str = "rootfs/kubernetes";

/// The version of this module's build steps; must be raised when they change.
const RECIPE: &str = "3";

/// Build tag that leaves out gRPC's trace pages, as in the upstream builds. Their templates keep
/// the linker from dropping unused methods.
const TAGS: &str = "grpcnotrace";

const KUBERNETES: &str = "k8s.io/kubernetes";
const ETCD: &str = "go.etcd.io/etcd/server/v3";
const FLANNEL: &str = "github.com/flannel-io/flannel";

/// The packages with the version that Kubernetes' programs and their client library report.
const VERSION_PACKAGES: [&str; 2] = [
    "k8s.io/component-base/version",
    "k8s.io/client-go/pkg/version",
];

/// Omitted backends of flannel: one needs C, one the API of a cloud.
const NO_BACKENDS: [&str; 2] = ["udp", "tencentvpc"];

/// The packages of [`KUBERNETES`] that are programs.
const PROGRAMS: [&str; 6] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
];

/// The other programs: name and package.
const OTHERS: [(&str, &str); 8] = [
    ("cp", "./cp"),
    ("coredns", "./coredns"),
    ("etcd", ETCD),
    ("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
    ("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
    (FLANNELD, "./flanneld"),
    ("iscsiadm", "./iscsiadm"),
    (
        "netpol",
        "sigs.k8s.io/kube-network-policies/cmd/kube-network-policies/standard",
    ),
];

/// flannel's program, built from a modified copy of the module.
const FLANNELD: &str = "flanneld";

/// The program that holds a pod's namespaces. It is ours, so that its version is not a module's.
const PAUSE: &str = "pause";

/// Adds the inputs that are files of the repository to a step's key. The caller adds the compilers'
/// keys.
///
/// # Errors
/// A file of the module cannot be read.
pub fn key(module: &Path, arch: &str, key: KeyBuilder) -> Result<KeyBuilder> {
    let mut key = key.add("recipe", RECIPE).add("arch", arch);
    for name in ["go.mod", "go.sum"] {
        key = key.file(&module.join(name))?;
    }
    for name in ["coredns", "cp", "flanneld", "iscsiadm", "pause"] {
        key = key.tree(&module.join(name))?;
    }
    Ok(key)
}

/// Fetches every pinned module that is missing in the cache, verified by `go.sum`.
///
/// # Errors
/// A module cannot be fetched, or does not match its checksum.
pub fn fetch(inputs: &Inputs<'_>, offline: bool) -> Result<()> {
    let others = OTHERS.iter().map(|(_, package)| (*package).to_owned());
    tool(inputs, offline.then_some("off"))?
        .args([
            "list",
            "-mod=readonly",
            "-deps",
            "-tags",
            "dependencies",
            "./pause",
        ])
        .args(PROGRAMS.map(package))
        .args(others)
        .run()
        .context("fetching the Go modules of Kubernetes")
}

/// Builds every program into `out` without network, with `jobs` compilers in parallel; needs the
/// modules of [`fetch`].
///
/// # Errors
/// A program does not compile; the error names it.
pub fn build(
    inputs: &Inputs<'_>,
    out: &Path,
    scratch: &Path,
    pause: &str,
    jobs: usize,
) -> Result<()> {
    let gomod = inputs.module.join("go.mod");
    let gomod =
        fs::read_to_string(&gomod).with_context(|| format!("reading {}", gomod.display()))?;
    let module = flanneld(inputs, scratch)?;
    let compile = |name: &str, package: &str, variables: &str| {
        let mut tool = tool(inputs, Some("off"))?.env("TMPDIR", scratch);
        if name == FLANNELD {
            tool = tool.dir(&module);
        }
        tool.args(["build", "-mod=readonly", "-trimpath", "-buildvcs=false"])
            .args(["-tags", TAGS, "-p", &jobs.to_string(), "-ldflags"])
            .arg(format!("-s -w -buildid={variables}"))
            .arg("-o")
            .arg(out.join(name))
            .arg(package)
            .run()
            .with_context(|| format!("building {name}"))
    };
    let version = version_variables(module_version(&gomod, KUBERNETES)?)?;
    for program in PROGRAMS {
        compile(program, &package(program), &version)?;
    }
    let flannel = module_version(&gomod, FLANNEL)?;
    for (name, package) in OTHERS {
        let variable = match name {
            FLANNELD => format!(" -X {FLANNEL}/pkg/version.Version=v{flannel}"),
            _ => String::new(),
        };
        compile(name, package, &variable)?;
    }
    compile(PAUSE, "./pause", &format!(" -X main.version={pause}"))
}

/// The names of the programs of [`build`].
pub fn programs() -> impl Iterator<Item = &'static str> {
    let others = OTHERS.iter().map(|(name, _)| *name);
    PROGRAMS.into_iter().chain(others).chain([PAUSE])
}

fn package(program: &str) -> String {
    format!("{KUBERNETES}/cmd/{program}")
}

fn tool(inputs: &Inputs<'_>, proxy: Option<&str>) -> Result<Tool> {
    Ok(inputs.tool(proxy)?.env("CGO_ENABLED", "0"))
}

/// The linker flags for Kubernetes' version, which clients and servers report to each other.
fn version_variables(version: &str) -> Result<String> {
    let mut parts = version.split('.');
    let (Some(major), Some(minor)) = (parts.next(), parts.next()) else {
        return Err(Failure::new(
            format!("Kubernetes' version {version:?} in go.mod has no minor version"),
            "pin a released version",
        ));
    };
    let flags = VERSION_PACKAGES.map(|package| {
        format!(
            " -X {package}.gitVersion=v{version} -X {package}.gitMajor={major} \
             -X {package}.gitMinor={minor} -X {package}.gitTreeState=clean"
        )
    });
    Ok(flags.concat())
}

/// Makes a module below `scratch` whose package `flanneld` is the pinned program without
/// [`NO_BACKENDS`].
fn flanneld(inputs: &Inputs<'_>, scratch: &Path) -> Result<std::path::PathBuf> {
    let main = inputs.sources(FLANNEL)?.join("main.go");
    let text = fs::read_to_string(&main).with_context(|| format!("reading {}", main.display()))?;
    let module = scratch.join("module");
    let package = module.join("flanneld");
    fs::create_dir_all(&package).with_context(|| format!("creating {}", package.display()))?;
    inputs.copy_pins(&module)?;
    let to = package.join("main.go");
    fs::write(&to, without_backends(&text)?)
        .with_context(|| format!("writing {}", to.display()))?;
    Ok(module)
}

/// The program's source without the imports of [`NO_BACKENDS`].
fn without_backends(text: &str) -> Result<String> {
    let mut lines: Vec<&str> = text.lines().collect();
    for backend in NO_BACKENDS {
        let import = format!("_ \"{FLANNEL}/pkg/backend/{backend}\"");
        let before = lines.len();
        lines.retain(|line| line.trim() != import);
        if lines.len() + 1 != before {
            return Err(Failure::new(
                format!("flannel's main.go does not import its backend {backend} once"),
                "adapt mkimage/rootfs/src/kubernetes.rs to the pinned version",
            ));
        }
    }
    Ok(lines.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unbuildable_backends_are_removed_from_flanneld() {
        let text = "package main\nimport (\n\t_ \"github.com/flannel-io/flannel/pkg/backend/udp\"\n\
                    \t_ \"github.com/flannel-io/flannel/pkg/backend/vxlan\"\n\
                    \t_ \"github.com/flannel-io/flannel/pkg/backend/tencentvpc\"\n)\n";
        let wanted =
            "package main\nimport (\n\t_ \"github.com/flannel-io/flannel/pkg/backend/vxlan\"\n)\n";
        assert_eq!(without_backends(text).unwrap(), wanted);
        let error = without_backends(wanted).unwrap_err().to_string();
        assert!(error.contains("backend udp"), "{error}");
    }

    #[test]
    fn programs_report_the_pinned_version() {
        let flags = version_variables("1.37.2").unwrap();
        for wanted in [
            "component-base/version.gitVersion=v1.37.2 ",
            "client-go/pkg/version.gitMinor=37 ",
        ] {
            assert!(flags.contains(wanted), "{flags}");
        }
    }

    #[test]
    fn every_module_of_an_image_is_pinned_with_a_checksum() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(DIRECTORY);
        let gomod = fs::read_to_string(dir.join("go.mod")).unwrap();
        let gosum = fs::read_to_string(dir.join("go.sum")).unwrap();
        for module in [KUBERNETES, ETCD, FLANNEL, "github.com/coredns/coredns"] {
            let version = module_version(&gomod, module).unwrap();
            assert!(
                gosum.contains(&format!("{module} v{version} h1:")),
                "{module}"
            );
        }
    }
}
