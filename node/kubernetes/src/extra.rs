//! Additions of a config to a component.

use corten_config::Document;
use corten_config::kinds::{KubeAPIServerConfig, KubeControllerManagerConfig, KubeSchedulerConfig};
use corten_config::v1alpha1::{Resources, VolumeMount};
use corten_values::Arguments;
use serde_json::{Value, json};

/// Arguments whose values extend the node's own instead of replacing them.
const ADDED: &[&str] = &[
    "authorization-mode",
    "controllers",
    "enable-admission-plugins",
    "feature-gates",
    "node-labels",
];
/// The same for kube-controller-manager only.
pub(crate) const ADDED_SUBNETS: &str = "service-cluster-ip-range";

/// Additions of a config to a control plane component.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Extra {
    /// Further arguments.
    pub args: Arguments,
    /// Environment variables, by name.
    pub env: Vec<(String, String)>,
    /// Directories of the node to mount.
    pub volumes: Vec<VolumeMount>,
    /// Resource requests and limits.
    pub resources: Resources,
    /// Whether the component is disabled on this node.
    pub is_disabled: bool,
}

/// Name and value of each argument.
pub(crate) type Flags = Vec<(String, String)>;

/// The flags merged with the config's arguments, sorted. An argument of the config replaces the node's own, unless it
/// is in [`ADDED`] or `added`.
pub(crate) fn merged(mut flags: Flags, args: &Arguments, added: &[&str]) -> Flags {
    for (name, values) in &args.0 {
        if ADDED.contains(&name.as_str()) || added.contains(&name.as_str()) {
            let own = flags.iter().find(|(flag, _)| flag == name);
            let own = own.map(|(_, value)| value.clone());
            let joined = joined(own.iter().chain(values));
            flags.retain(|(flag, _)| flag != name);
            flags.push((name.clone(), joined));
            continue;
        }
        flags.retain(|(flag, _)| flag != name);
        flags.extend(values.iter().map(|value| (name.clone(), value.clone())));
    }
    // A stable sort keeps the order of an argument's values.
    flags.sort_by(|(a, _), (b, _)| a.cmp(b));
    flags
}

/// Comma-separated lists as one, each item once: a repeated subnet counts as a second one.
fn joined<'a>(lists: impl Iterator<Item = &'a String>) -> String {
    let mut items: Vec<&str> = Vec::new();
    for item in lists.flat_map(|list| list.split(',')).map(str::trim) {
        if !item.is_empty() && !items.contains(&item) {
            items.push(item);
        }
    }
    items.join(",")
}

/// The flags as command line arguments.
pub(crate) fn lines(flags: Flags) -> impl Iterator<Item = String> {
    flags
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"))
}

/// Existing arguments (`--name=value`) merged with the config's.
pub(crate) fn with(own: Vec<String>, args: &Arguments) -> Vec<String> {
    let mut own = own.into_iter();
    let program = own.next();
    let flags = own.map(|line| {
        let line = line.trim_start_matches("--");
        let (name, value) = line.split_once('=').unwrap_or((line, "true"));
        (name.to_owned(), value.to_owned())
    });
    let flags = merged(flags.collect(), args, &[]);
    program.into_iter().chain(lines(flags)).collect()
}

/// Overlays `own` on a value; maps are merged.
pub(crate) fn merge(config: &mut Value, own: &Value) {
    match (config, own) {
        (Value::Object(fields), Value::Object(own)) => {
            for (name, value) in own {
                merge(fields.entry(name).or_insert(Value::Null), value);
            }
        }
        (config, own) => *config = own.clone(),
    }
}

/// The fields, with a default version and kind.
pub(crate) fn with_kind(fields: &Value, version: &str, kind: &str) -> Value {
    let mut whole = json!({ "apiVersion": version, "kind": kind });
    if let (Some(whole), Some(fields)) = (whole.as_object_mut(), fields.as_object()) {
        for (name, value) in fields {
            whole.insert(name.clone(), value.clone());
        }
    }
    whole
}

fn pairs(env: &std::collections::BTreeMap<String, String>) -> Vec<(String, String)> {
    let pairs = env
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    pairs.collect()
}

pub(crate) fn api_server(document: &Document) -> Extra {
    match document.all::<KubeAPIServerConfig>().next() {
        Some(own) => Extra {
            args: own.extra_args.clone(),
            env: pairs(&own.env),
            resources: own.resources.clone(),
            ..Extra::default()
        },
        None => {
            let own = &document.cluster.api_server;
            Extra {
                args: own.extra_args.clone(),
                env: pairs(&own.env),
                volumes: own.extra_volumes.clone(),
                resources: own.resources.clone(),
                is_disabled: false,
            }
        }
    }
}

pub(crate) fn controller_manager(document: &Document) -> Extra {
    match document.all::<KubeControllerManagerConfig>().next() {
        Some(own) => Extra {
            args: own.extra_args.clone(),
            env: pairs(&own.env),
            resources: own.resources.clone(),
            is_disabled: own.enabled == Some(false),
            ..Extra::default()
        },
        None => {
            let own = &document.cluster.controller_manager;
            Extra {
                args: own.extra_args.clone(),
                env: pairs(&own.env),
                volumes: own.extra_volumes.clone(),
                resources: own.resources.clone(),
                is_disabled: document.machine.control_plane.controller_manager.disabled,
            }
        }
    }
}

pub(crate) fn scheduler(document: &Document) -> Extra {
    match document.all::<KubeSchedulerConfig>().next() {
        Some(own) => Extra {
            args: own.extra_args.clone(),
            env: pairs(&own.env),
            resources: own.resources.clone(),
            is_disabled: own.enabled == Some(false),
            ..Extra::default()
        },
        None => {
            let own = &document.cluster.scheduler;
            Extra {
                args: own.extra_args.clone(),
                env: pairs(&own.env),
                volumes: own.extra_volumes.clone(),
                resources: own.resources.clone(),
                is_disabled: document.machine.control_plane.scheduler.disabled,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_the_config_replace_or_extend_those_of_the_node() {
        let own = [
            ("a", "1"),
            ("feature-gates", "X=true"),
            ("service-cluster-ip-range", "10.96.0.0/12"),
            ("v", "2"),
        ];
        let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let args = [
            ("feature-gates", vec!["X=true, Y=false", "Y=false"]),
            ("oidc", vec!["z", "y"]),
            ("service-cluster-ip-range", vec!["10.96.0.0/12,fd00::/108"]),
            ("v", vec!["4"]),
        ];
        let args = args.map(|(name, values)| {
            let values = values.into_iter().map(str::to_owned).collect();
            (name.to_owned(), values)
        });
        let merged = merged(own.into(), &Arguments(args.into()), &[ADDED_SUBNETS]);
        let lines: Vec<String> = lines(merged).collect();
        let expected = [
            "--a=1",
            "--feature-gates=X=true,Y=false",
            "--oidc=z",
            "--oidc=y",
            "--service-cluster-ip-range=10.96.0.0/12,fd00::/108",
            "--v=4",
        ];
        assert_eq!(lines, expected);
    }
}
