//! Types of a node's resources. Clients depend on their names, namespaces, fields and columns.
//!
//! Owns: a module for each group of types, and the value names of their fields (`names`).
//! Never: reads or writes a resource; controllers do.
#![expect(
    missing_docs,
    reason = "fields that only repeat the contract's names say what they are by their names"
)]

pub mod api_service;
pub mod bill;
pub mod block;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod cri;
pub mod diagnostic;
pub mod environment;
pub mod etcd;
pub mod expression;
pub mod extension;
pub mod files;
pub mod firewall;
pub mod hardware;
pub mod image_cache;
pub mod kernel;
pub mod kube_prism;
pub mod kubernetes;
pub mod kubernetes_components;
pub mod kubernetes_kubelet;
pub mod kubernetes_manifests;
pub mod kubernetes_node;
pub mod kubernetes_policies;
pub mod logging;
mod message;
pub mod meta;
pub mod names;
pub mod network;
pub mod network_alias;
mod network_bond_config;
pub mod network_dns;
pub mod network_ethernet;
pub mod network_filter;
pub mod network_hardware;
pub mod network_kind;
pub mod network_names;
pub mod network_probe;
pub mod network_rule;
pub mod network_spec;
pub mod network_wireguard;
mod network_wireguard_config;
pub mod perf;
pub mod pod_access;
pub mod prefix;
pub mod rebind;
pub mod registries;
pub mod runtime;
pub mod secrets;
pub mod secrets_kubernetes;
pub mod security;
pub mod stage;
pub mod stop;
pub mod trim;
pub mod unattended_install;
pub mod volume;
pub mod volume_config;

use std::time::Duration;

use corten_resources::{Column, Definition, Sensitivity};
use serde::Serializer;

const fn column(name: &'static str, path: &'static str) -> Column {
    Column { name, path }
}

/// Definition of a type that every reader may read.
const fn open(
    type_name: &'static str,
    default_namespace: &'static str,
    aliases: &'static [&'static str],
    columns: &'static [Column],
) -> Definition {
    Definition {
        type_name,
        default_namespace,
        aliases,
        columns,
        sensitivity: Sensitivity::NonSensitive,
        only_declared_aliases: false,
    }
}

/// Whether the YAML omits a field.
fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

/// Formats a duration as clients expect it: `1h0m0s`, `1.5s`, `500ms` (Go, `time.Duration.String`).
#[must_use]
pub fn duration(duration: Duration) -> String {
    let (seconds, nanoseconds) = (duration.as_secs(), duration.subsec_nanos());
    if duration.is_zero() {
        return "0s".to_owned();
    }
    if seconds == 0 {
        return format!("{duration:?}");
    }
    let fraction = format!(".{nanoseconds:09}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let rest = format!("{}{fraction}s", seconds % 60);
    match (hours, minutes) {
        (0, 0) => rest,
        (0, _) => format!("{minutes}m{rest}"),
        _ => format!("{hours}h{minutes}m{rest}"),
    }
}

/// Serializes a spec field with [`duration`].
fn duration_text<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&duration(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_format_like_the_reference() {
        for (milliseconds, text) in [
            (0, "0s"),
            (500, "500ms"),
            (1_500, "1.5s"),
            (60_000, "1m0s"),
            (3_600_000, "1h0m0s"),
            (5_025_010, "1h23m45.01s"),
        ] {
            assert_eq!(duration(Duration::from_millis(milliseconds)), text);
        }
    }
}
