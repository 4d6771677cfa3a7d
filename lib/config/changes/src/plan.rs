//! The effects of a change from one config to another on a node.

use std::collections::BTreeSet;
use std::fmt;

use corten_config::Document;
use corten_config::cri;
use corten_config::identity::identity;
use corten_config::identity::table_of;
use corten_config::v1alpha1::MachineFile;
use corten_yaml::table::{self, Shape, Support};
use corten_yaml::tree::{Content, Node};

use crate::reach;

/// The effect of a changed field.
enum Effect {
    /// Restarts these services; a `*` at the end matches any suffix.
    Restarts(&'static [&'static str]),
    /// Restarts the extension's service that the document names.
    RestartsNamed,
    /// A part of containerd's configuration restarts containerd; other files need a reboot.
    Files,
    /// Needs a reboot, for this reason.
    Reboot(&'static str),
}

/// Kind of a document for an extension's service.
const EXTENSION: &str = "ExtensionServiceConfig";

/// Fields with an effect beyond immediate application, by path prefix; the first match counts. `~` in front: only a
/// removal. `*` is the name of an entry, which may contain dots; the step after it is the last but one of the path.
const EFFECTS: &[(&str, Effect)] = &[
    (
        "machine.type",
        Effect::Reboot("the type of a node is set at boot"),
    ),
    (
        "~KernelModuleConfig",
        Effect::Reboot("a kernel module must be unloaded"),
    ),
    (
        "KernelModuleConfig",
        Effect::Reboot("a kernel module must be loaded with other parameters"),
    ),
    (
        "machine.kernel",
        Effect::Reboot("kernel modules are loaded at boot"),
    ),
    (
        "machine.systemDiskEncryption",
        Effect::Reboot("volumes are opened at boot"),
    ),
    ("VolumeConfig", Effect::Reboot("volumes are opened at boot")),
    ("machine.disks", Effect::Reboot("disks are mounted at boot")),
    ("machine.files", Effect::Files),
    (
        "machine.env",
        Effect::Restarts(&["containerd", "kubelet", "ext-*"]),
    ),
    (
        "EnvironmentConfig",
        Effect::Restarts(&["containerd", "kubelet", "ext-*"]),
    ),
    (EXTENSION, Effect::RestartsNamed),
    // containerd reads the files once; mirrors and certificates of registries it reads at every pull.
    ("TrustedRootsConfig", Effect::Restarts(&["containerd"])),
    ("RegistryAuthConfig", Effect::Restarts(&["containerd"])),
    ("CRICustomizationConfig", Effect::Restarts(&["containerd"])),
    (
        "CRIBaseRuntimeSpecConfig",
        Effect::Restarts(&["containerd"]),
    ),
    (
        "machine.baseRuntimeSpecOverrides",
        Effect::Restarts(&["containerd"]),
    ),
    (
        "machine.registries.config.*.auth",
        Effect::Restarts(&["containerd"]),
    ),
];

/// A changed field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Path of the field, as in `machine.network.hostname` or `LinkConfig eth0: mtu`.
    pub path: String,
    /// Whether the new config lacks it.
    pub removed: bool,
    /// Whether the node acts on it; otherwise it is only kept.
    pub acted: bool,
}

/// The effects of a change of config on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Changed fields in the order of the new config, removed ones last.
    pub changes: Vec<Change>,
    /// Running services that restart.
    pub restarts: BTreeSet<String>,
    /// Reasons for a reboot; empty: none is needed.
    pub reboot: BTreeSet<String>,
    /// Reasons why the node may become unreachable; empty: none found.
    pub risks: Vec<String>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changes.is_empty() {
            return f.write_str("nothing changes\n");
        }
        for change in &self.changes {
            let sign = if change.removed { "-" } else { "~" };
            let note = if change.acted {
                ""
            } else {
                " (kept; this version does not act on it)"
            };
            writeln!(f, "{sign} {}{note}", change.path)?;
        }
        if !self.restarts.is_empty() {
            let names: Vec<&str> = self.restarts.iter().map(String::as_str).collect();
            writeln!(f, "restarts: {}", names.join(", "))?;
        }
        for reason in &self.reboot {
            writeln!(f, "needs a reboot: {reason}")?;
        }
        for risk in &self.risks {
            writeln!(f, "may cut you off: {risk}")?;
        }
        if self.risks.is_empty() {
            writeln!(f, "no change found that cuts you off")?;
        }
        Ok(())
    }
}

/// The plan of a change from `old` to `new`. `None`: the node has no config yet. `running`: the ids of the running
/// services.
#[must_use]
pub fn plan(old: Option<&Document>, new: &Document, running: &[&str]) -> Plan {
    let mut plan = Plan::default();
    let before = old.map(Document::trees).unwrap_or_default();
    let after = new.trees();
    for tree in after {
        let twin = before
            .iter()
            .find(|other| identity(other) == identity(tree));
        compare(twin, Some(tree), &mut plan.changes);
    }
    for tree in before {
        if !after.iter().any(|other| identity(other) == identity(tree)) {
            compare(Some(tree), None, &mut plan.changes);
        }
    }
    // A node without a config runs nothing that needs a restart.
    let Some(old) = old else { return plan };
    for change in plan.changes.iter().filter(|change| change.acted) {
        let fits = |pattern: &str| match pattern.strip_prefix('~') {
            Some(start) => change.removed && starts(&change.path, start),
            None => starts(&change.path, pattern),
        };
        match EFFECTS.iter().find(|(pattern, _)| fits(pattern)) {
            Some((_, Effect::Restarts(patterns))) => {
                let fits = |id: &str| patterns.iter().any(|pattern| names(pattern, id));
                restart(&mut plan.restarts, running, fits);
            }
            Some((_, Effect::RestartsNamed)) => {
                let named = extension(&change.path);
                let fits = |id: &str| named.is_some() && id.strip_prefix("ext-") == named;
                restart(&mut plan.restarts, running, fits);
            }
            Some((_, Effect::Files)) => {
                let (part, files) = differing_files(old, new);
                restart(&mut plan.restarts, running, |id| part && id == "containerd");
                if files {
                    let why = format!("files are written at boot ({})", change.path);
                    plan.reboot.insert(why);
                }
            }
            Some((_, Effect::Reboot(why))) => {
                plan.reboot.insert(format!("{why} ({})", change.path));
            }
            None => {}
        }
    }
    plan.risks = reach::risks(old, new);
    plan
}

/// Whether containerd's part differs, and whether other files do.
fn differing_files(old: &Document, new: &Document) -> (bool, bool) {
    fn split(document: &Document) -> (Vec<&MachineFile>, Vec<&MachineFile>) {
        let files = document.machine.files.iter();
        files.partition(|file| cri::is_part(file))
    }
    let ((old_part, old_files), (new_part, new_files)) = (split(old), split(new));
    (old_part != new_part, old_files != new_files)
}

fn restart(restarts: &mut BTreeSet<String>, running: &[&str], fits: impl Fn(&str) -> bool) {
    let fitting = running.iter().filter(|id| fits(id));
    restarts.extend(fitting.map(|id| (*id).to_owned()));
}

fn names(pattern: &str, id: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => id.starts_with(start),
        None => id == pattern,
    }
}

/// The extension of a changed field, from a path such as `ExtensionServiceConfig ups: environment`.
fn extension(path: &str) -> Option<&str> {
    let rest = path.strip_prefix(EXTENSION)?.strip_prefix(' ')?;
    Some(rest.split_once(':').map_or(rest, |(name, _)| name))
}

fn starts(path: &str, start: &str) -> bool {
    if let Some((map, field)) = start.split_once(".*.") {
        return starts(path, map) && path.rsplit('.').nth(1) == Some(field);
    }
    path.strip_prefix(start)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', ' ', ':']))
}

fn compare(old: Option<&Node>, new: Option<&Node>, changes: &mut Vec<Change>) {
    let Some(some) = new.or(old) else { return };
    let identity = identity(some);
    let prefix = match identity.kind.as_str() {
        "" => String::new(),
        _ => identity.to_string(),
    };
    let support = match identity.kind.as_str() {
        "" => Support::Acted,
        kind => corten_config::kinds::kind(kind).map_or(Support::Later, |info| info.support),
    };
    if !prefix.is_empty() && (old.is_none() || new.is_none()) {
        changes.push(Change {
            path: prefix,
            removed: new.is_none(),
            acted: support == Support::Acted,
        });
        return;
    }
    let shape = table_of(some).map(Shape::Fields);
    let acted = support == Support::Acted;
    fields(old, new, shape, (&prefix, &prefix), acted, changes);
}

/// Compares maps field by field or name by name; lists are compared as a whole.
fn fields(
    old: Option<&Node>,
    new: Option<&Node>,
    shape: Option<Shape>,
    (document, path): (&str, &str),
    acted: bool,
    changes: &mut Vec<Change>,
) {
    let given = |node: Option<&Node>| node.is_some_and(|node| !node.is_empty());
    if !given(old) && !given(new) {
        return;
    }
    let map = |node: Option<&Node>| {
        node.is_none_or(|node| node.is_null() || matches!(node.content, Content::Map(_)))
    };
    let inner = |name: &str| match shape {
        Some(Shape::Fields(table)) => {
            table::find(table, name).map(|field| (field.shape, field.support))
        }
        Some(Shape::Map(inner)) => Some((*inner, Support::Acted)),
        _ => None,
    };
    if map(old) && map(new) && matches!(shape, Some(Shape::Fields(_) | Shape::Map(_))) {
        let names = |node: Option<&Node>| {
            let entries = node.map(Node::entries).unwrap_or_default();
            entries
                .iter()
                .map(|(key, _)| key.name.clone())
                .collect::<Vec<_>>()
        };
        let mut all = names(new);
        all.extend(names(old));
        let mut seen = BTreeSet::new();
        for name in all.into_iter().filter(|name| seen.insert(name.clone())) {
            let step = match path {
                "" => name.clone(),
                path if path == document => format!("{path}: {name}"),
                path => format!("{path}.{name}"),
            };
            let (shape, support) = inner(&name).unzip();
            let acted = acted && support != Some(Support::Held);
            let old = old.and_then(|node| node.entry(&name));
            let new = new.and_then(|node| node.entry(&name));
            fields(old, new, shape, (document, &step), acted, changes);
        }
        return;
    }
    let same = match (old, new) {
        (Some(old), Some(new)) => same_value(old, new, shape),
        _ => false,
    };
    if !same {
        changes.push(Change {
            path: corten_yaml::problem::printable(path),
            removed: !given(new),
            acted,
        });
    }
}

/// `1` and `"1"` are equal in a text field only.
fn same_value(old: &Node, new: &Node, shape: Option<Shape>) -> bool {
    match shape {
        Some(Shape::Text(_) | Shape::Choice(_) | Shape::Secret) => old.text() == new.text(),
        _ => old == new,
    }
}
