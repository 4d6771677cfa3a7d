//! Additions to the container of a component. An addition that Kubernetes refuses would keep the component, and with it
//! the cluster, from running.

use std::collections::{BTreeMap, BTreeSet};

use corten_values::{AbsolutePath, is_variable, quantity};
use corten_yaml::read::Reader;
use corten_yaml::section;
use corten_yaml::tree::{Content, Node};

/// Directories that every component already has, and prefixes of those for its own files.
const TAKEN: &[&str] = &["/tmp", "/var/log/audit/kube", "/var/run/kubernetes"];
const TAKEN_BELOW: &[&str] = &["/system/secrets/", "/system/config/"];

section! {
    /// Resource requests and limits of a container.
    pub struct Resources [check_resources] {
        Acted "requests" requests: BTreeMap<String, String> = "Guaranteed resources: `cpu`, `memory`";
        Acted "limits" limits: BTreeMap<String, String> = "Upper bounds: `cpu`, `memory`";
    }
}

section! {
    /// A directory of the host in a container.
    pub struct VolumeMount {
        Acted "hostPath" host_path: AbsolutePath = "Path on the node", required;
        Acted "mountPath" mount_path: AbsolutePath = "Path in the container", required;
        Acted "readonly" readonly: bool = "Whether the mount is read-only";
    }
}

fn check_resources(resources: &Resources, node: &Node, reader: &mut Reader<'_>) {
    for field in ["requests", "limits"] {
        let entries = node.get(field).map(Node::entries).unwrap_or_default();
        reader.within(field, |reader| {
            for (key, value) in entries {
                if !matches!(key.name.as_str(), "cpu" | "memory") {
                    reader.wrong(key.mark, "must hold cpu and memory only");
                } else if value.text().and_then(quantity).is_none() {
                    let what = "must be a quantity of Kubernetes such as 250m, 2 or 512Mi";
                    reader.within(&key.name, |reader| reader.wrong(value.mark, what));
                }
            }
        });
    }
    for (name, request) in &resources.requests {
        let limit = resources.limits.get(name);
        if let (Some(request), Some(limit)) = (quantity(request), limit.and_then(|l| quantity(l)))
            && request > limit
        {
            let what = format!("must be at most limits.{name}");
            reader.within("requests", |reader| reader.wrong_in(node, name, &what));
        }
    }
}

/// Reports variables and mounts that the component already has, or that are invalid.
pub(crate) fn check_container(node: &Node, reader: &mut Reader<'_>) {
    let variables = node.get("env").map(Node::entries).unwrap_or_default();
    reader.within("env", |reader| {
        for (key, _) in variables {
            if key.name == "POD_IP" {
                reader.wrong(
                    key.mark,
                    "must not have POD_IP, which the node sets: leave it out",
                );
            } else if !is_variable(&key.name) {
                reader.wrong(key.mark, "has a name that is not valid for a variable");
            }
        }
    });
    let Some(Content::List(volumes)) = node.get("extraVolumes").map(|list| &list.content) else {
        return;
    };
    let mut seen = BTreeSet::new();
    for (number, volume) in volumes.iter().enumerate() {
        let Some(path) = volume.get("mountPath").and_then(Node::text) else {
            continue;
        };
        let path = path.trim_end_matches('/');
        let is_taken = |path: &str| {
            TAKEN.contains(&path) || TAKEN_BELOW.iter().any(|start| path.starts_with(start))
        };
        let what = if path.is_empty() || path.contains(':') {
            "must be a directory other than the root, without a colon in its path"
        } else if is_taken(path) {
            "is a directory of the component itself: mount it elsewhere"
        } else if !seen.insert(path) {
            "is given twice: give each mount its own directory"
        } else {
            continue;
        };
        reader.within(&format!("extraVolumes[{number}]"), |reader| {
            reader.wrong_in(volume, "mountPath", what);
        });
    }
}
