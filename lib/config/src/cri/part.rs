//! A part of containerd's configuration in TOML: its problems, and the settings that a config may not change.
//!
//! containerd does not start if a setting has the wrong type, and drops a plugin whose settings it cannot apply.
//! `settings.toml` lists settings and types (containerd 2.3, `docs/man/containerd-config.toml.5.md`).

use std::sync::LazyLock;

use corten_yaml::problem::printable;
use corten_yaml::scalars::duration;
use toml::{Table, Value};

/// File with the base specification of containers, for references in parts.
pub const BASE_SPEC_FILE: &str = "/etc/cri/conf.d/base-spec.json";

/// Every setting by path, with a sample value of its type.
static KNOWN: LazyLock<Table> = LazyLock::new(|| {
    // A test parses it.
    let mut known: Table = include_str!("settings.toml").parse().unwrap_or_default();
    // Older versions have one table in place of three.
    if let Some(Value::Table(plugins)) = known.get_mut("plugins") {
        let parts = [CRI_RUNTIME, CRI_IMAGES].map(|name| plugins.get(name).cloned());
        if let Some(Value::Table(old)) = plugins.get_mut(CRI) {
            for part in parts.into_iter().flatten() {
                if let Value::Table(part) = part {
                    old.extend(part);
                }
            }
        }
    }
    known
});

/// The CRI plugins: the service, and since containerd 2 separate ones for the runtime and for images.
const CRI: &str = "io.containerd.grpc.v1.cri";
const CRI_RUNTIME: &str = "io.containerd.cri.v1.runtime";
const CRI_IMAGES: &str = "io.containerd.cri.v1.images";
/// Stands for any of the three in a pattern.
const ANY_CRI: &str = "CRI";

const NRI: &str = "io.containerd.nri.v1.nri";
/// Plugins disabled in the image's containerd (`rootfs/etc/containerd/config.toml`, `disabled_plugins`).
const LEFT_OUT: [&str; 7] = [
    "io.containerd.differ.v1.erofs",
    "io.containerd.image-verifier.v1.bindir",
    "io.containerd.internal.v1.opt",
    "io.containerd.mount-handler.v1.erofs",
    NRI,
    "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.erofs",
];

const PLACES: &str = "the node sets containerd's directories";
const ACCESS: &str = "only the node itself calls containerd";
const PARTS: &str = "the image sets the plugins of containerd";
const BOUNDS: &str = "the node sets the resource limits of containerd";
const REGISTRIES: &str = "use RegistryMirrorConfig, RegistryAuthConfig and RegistryTLSConfig";
const NETWORK: &str = "the node sets the directories of network plugins";
const RUNC: &str = "the image sets runc; add a runtime with another name";

/// Settings that a config may not change, and the reason. A `*` at the end of a step matches anything.
const OURS: &[(&[&str], &str)] = &[
    (&["root"], PLACES),
    (&["state"], PLACES),
    (&["temp"], PLACES),
    (&["imports"], PLACES),
    (&["disabled_plugins"], PARTS),
    (&["required_plugins"], PARTS),
    (&["oom_score"], BOUNDS),
    (&["cgroup"], BOUNDS),
    (&["grpc"], ACCESS),
    (&["ttrpc"], ACCESS),
    (&["debug", "address"], ACCESS),
    (&["debug", "uid"], ACCESS),
    (&["debug", "gid"], ACCESS),
    (&["plugins", "io.containerd.server.v1.debug"], ACCESS),
    (
        &["plugins", "io.containerd.server.v1.grpc", "address"],
        ACCESS,
    ),
    (&["plugins", "io.containerd.server.v1.grpc", "uid"], ACCESS),
    (&["plugins", "io.containerd.server.v1.grpc", "gid"], ACCESS),
    (&["plugins", "io.containerd.server.v1.grpc-tcp"], ACCESS),
    (&["plugins", "io.containerd.server.v1.ttrpc"], ACCESS),
    (
        &["plugins", "io.containerd.shim.v1.manager", "socket_dir"],
        PLACES,
    ),
    (
        &["plugins", "io.containerd.snapshotter.v1.*", "root_path"],
        PLACES,
    ),
    (
        &["plugins", "io.containerd.transfer.v1.local", "config_path"],
        REGISTRIES,
    ),
    (
        &[
            "plugins",
            "io.containerd.transfer.v1.local",
            "unpack_config",
        ],
        PARTS,
    ),
    (&["plugins", ANY_CRI, "registry"], REGISTRIES),
    (&["plugins", ANY_CRI, "disable_tcp_service"], ACCESS),
    (&["plugins", ANY_CRI, "stream_server_address"], ACCESS),
    (&["plugins", ANY_CRI, "cni", "bin_dir"], NETWORK),
    (&["plugins", ANY_CRI, "cni", "bin_dirs"], NETWORK),
    (&["plugins", ANY_CRI, "cni", "conf_dir"], NETWORK),
    (
        &[
            "plugins",
            ANY_CRI,
            "containerd",
            "runtimes",
            "runc",
            "runtime_type",
        ],
        RUNC,
    ),
    (
        &[
            "plugins",
            ANY_CRI,
            "containerd",
            "runtimes",
            "runc",
            "runtime_path",
        ],
        RUNC,
    ),
    (
        &[
            "plugins",
            ANY_CRI,
            "containerd",
            "runtimes",
            "runc",
            "options",
            "BinaryName",
        ],
        RUNC,
    ),
];

/// Wildcard in the table of settings for a user-chosen name.
const ANY_NAME: &str = "any";
/// Valid types of a proxy (`cmd/containerd/server/server.go`, `LoadPlugins`); containerd exits on any other.
const PROXY_TYPES: [&str; 8] = [
    "content",
    "diff",
    "sandbox",
    "snapshot",
    "io.containerd.content.v1",
    "io.containerd.differ.v1",
    "io.containerd.sandbox.controller.v1",
    "io.containerd.snapshotter.v1",
];
/// Names of containerd's own plugins; containerd exits when two plugins of a type have one name.
const PROXY_TAKEN: [&str; 11] = [
    "blockfile",
    "btrfs",
    "content",
    "devmapper",
    "erofs",
    "native",
    "overlayfs",
    "podsandbox",
    "shim",
    "walking",
    "zfs",
];
/// Supported versions of the configuration; version 1 had other names for everything.
const VERSIONS: std::ops::RangeInclusive<i64> = 2..=4;
/// Version of a part that states none; names of all versions are accepted in it.
const VERSION: i64 = 2;

/// The part in TOML 1.0 for containerd, from any newer version of TOML. `None`: not TOML.
#[must_use]
pub fn normal(text: &str) -> Option<String> {
    let mut part: Table = text.parse().ok()?;
    let version = part.remove("version");
    let mut whole = Table::new();
    whole.insert(
        "version".to_owned(),
        version.unwrap_or(Value::Integer(VERSION)),
    );
    whole.extend(part);
    toml::to_string(&whole).ok()
}

/// The problems of a part; values are not shown, because they may be secrets.
pub(super) fn problems(text: &str) -> Vec<String> {
    match text.parse::<Table>() {
        Ok(part) => {
            let mut walk = Walk::default();
            walk.table(&part, Some(&KNOWN));
            walk.found
        }
        Err(error) => {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.unwrap_or_default().matches('\n').count() + 1;
            let why = printable(error.message());
            vec![format!("is not TOML, in its line {line}: {why}")]
        }
    }
}

#[derive(Default)]
struct Walk<'a> {
    path: Vec<&'a str>,
    found: Vec<String>,
}

impl<'a> Walk<'a> {
    fn table(&mut self, table: &'a Table, known: Option<&Table>) {
        for (key, value) in table {
            self.path.push(key);
            let example = known.and_then(|known| known.get(key).or_else(|| known.get(ANY_NAME)));
            self.entry(value, example);
            self.path.pop();
        }
    }

    fn entry(&mut self, value: &'a Value, example: Option<&Value>) {
        if let Some((_, why)) = OURS.iter().find(|(pattern, _)| fits(pattern, &self.path)) {
            return self.wrong(&format!("must not be set: {why}"));
        }
        if let Some(what) = unusable(&self.path, value) {
            return self.wrong(&what);
        }
        match (value, example) {
            (_, None) if self.path.len() == 1 => self.wrong("is unknown to containerd"),
            (Value::Table(inner), None) => self.table(inner, None),
            (Value::Table(inner), Some(Value::Table(known))) => self.table(inner, Some(known)),
            (value, Some(example)) => {
                if let Some(type_name) = mismatch(value, example) {
                    self.wrong(&format!("must be {type_name}"));
                }
            }
            (_, None) => {}
        }
    }

    fn wrong(&mut self, what: &str) {
        let path = shown(&self.path);
        self.found.push(format!("has {path}, which {what}"));
    }
}

fn fits(pattern: &[&str], path: &[&str]) -> bool {
    let step = |(pattern, step): (&&str, &&str)| match pattern.strip_suffix('*') {
        Some(start) => step.starts_with(start),
        None if *pattern == ANY_CRI => [CRI, CRI_RUNTIME, CRI_IMAGES].contains(step),
        None => pattern == step,
    };
    pattern.len() == path.len() && pattern.iter().zip(path).all(step)
}

/// The reason why containerd or the node cannot work with a setting.
fn unusable(path: &[&str], value: &Value) -> Option<String> {
    let text = value.as_str();
    let is_runtime = |steps: &[&str]| {
        let pattern = [&["plugins", ANY_CRI, "containerd", "runtimes", "*"], steps].concat();
        fits(&pattern, path)
    };
    let must = |good: bool, what: &str| (!good).then(|| format!("must be {what}"));
    match path {
        ["version"] => must(
            value.as_integer().is_some_and(|it| VERSIONS.contains(&it)),
            "2, 3 or 4; or leave it out",
        ),
        ["plugins", name] if !name.contains('.') => must(
            false,
            "a plugin's whole name, such as io.containerd.cri.v1.runtime",
        ),
        ["plugins", name] if LEFT_OUT.contains(name) => {
            let off = |table: &Table| {
                table.len() == 1 && table.get("disable").and_then(Value::as_bool) == Some(true)
            };
            // A part may state that the plugin is disabled.
            let is_off = *name == NRI && value.as_table().is_some_and(off);
            (!is_off).then(|| "is disabled in the image's containerd; leave it out".to_owned())
        }
        ["proxy_plugins", name] if name.is_empty() || PROXY_TAKEN.contains(name) => must(
            false,
            "given another name: containerd has a plugin of this name",
        ),
        ["proxy_plugins", _] => {
            let kind = value.as_table().and_then(|proxy| proxy.get("type"));
            let kind = kind.and_then(Value::as_str);
            must(
                kind.is_some_and(|kind| PROXY_TYPES.contains(&kind)),
                "of the type snapshot, content, diff or sandbox",
            )
        }
        [.., name] if is_duration(path, name) => must(
            text.is_none_or(|text| text.is_empty() || duration(text).is_some()),
            "a duration such as 1m30s",
        ),
        [.., "default_runtime_name"] => must(text != Some(""), "the name of a runtime"),
        _ if is_runtime(&["options", "SystemdCgroup"]) => must(
            value.as_bool() != Some(true),
            "false: there is no systemd on the node",
        ),
        _ if is_runtime(&["base_runtime_spec"]) => must(
            text.is_none_or(|text| text.is_empty() || text == BASE_SPEC_FILE),
            &format!("{BASE_SPEC_FILE}; set its content in a CRIBaseRuntimeSpecConfig"),
        ),
        _ => None,
    }
}

/// Whether containerd parses the text as a duration.
fn is_duration(path: &[&str], name: &str) -> bool {
    let ends = ["_timeout", "_period", "_delay", "interval"];
    matches!(path, ["timeouts", _]) || ends.iter().any(|end| name.ends_with(end))
}

/// The expected type of a value with a wrong type. Lists of containerd contain text, and an integer is valid as a
/// number.
fn mismatch(value: &Value, example: &Value) -> Option<&'static str> {
    let (good, name) = match example {
        Value::String(_) => (value.is_str(), "text"),
        Value::Integer(_) => (value.is_integer(), "a whole number"),
        Value::Float(_) => (value.is_float() || value.is_integer(), "a number"),
        Value::Boolean(_) => (value.is_bool(), "true or false"),
        Value::Table(_) => (value.is_table(), "a table"),
        Value::Array(_) => {
            let of_text = |items: &Vec<Value>| items.iter().all(Value::is_str);
            (value.as_array().is_some_and(of_text), "a list of text")
        }
        Value::Datetime(_) => (value.is_datetime(), "a time"),
    };
    (!good).then_some(name)
}

/// A path in TOML's notation.
fn shown(path: &[&str]) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let steps = path.iter().map(|step| {
        if !step.is_empty() && step.chars().all(is_bare) {
            (*step).to_owned()
        } else {
            format!("\"{step}\"")
        }
    });
    printable(&steps.collect::<Vec<_>>().join("."))
}
