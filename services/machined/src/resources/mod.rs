//! The types of resources a node has. Names, namespaces, fields and columns are those clients know.

pub mod block;
pub mod config;
pub mod firewall;
pub mod kernel;
mod message;
pub mod names;
pub mod network;
pub mod network_dns;
pub mod network_names;
pub mod network_probe;
pub mod network_rule;
pub mod network_spec;
pub mod prefix;
pub mod runtime;
pub mod secrets;

use corten_resources::{Column, Definition, Sensitivity};

const fn column(name: &'static str, path: &'static str) -> Column {
    Column { name, path }
}

/// A type every reader may read.
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
    }
}
