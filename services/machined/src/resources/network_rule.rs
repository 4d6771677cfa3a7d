//! Which packets look into which routing table.

use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::network_spec::{Layer, table_name};
use super::prefix::Prefix;
use super::{column, is_default, open};

const NAMESPACE: &str = "network";

/// What a rule looks at and does; what is empty or 0 is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutingRule {
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// From.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<Prefix>,
    /// To.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<Prefix>,
    /// Came in by.
    #[serde(rename = "iifName", skip_serializing_if = "String::is_empty")]
    pub iif_name: String,
    /// Goes out by.
    #[serde(rename = "oifName", skip_serializing_if = "String::is_empty")]
    pub oif_name: String,
    /// Its mark, ...
    #[serde(skip_serializing_if = "is_default")]
    pub fw_mark: u32,
    /// ... as far as these bits go.
    #[serde(skip_serializing_if = "is_default")]
    pub fw_mask: u32,
    /// Where to look.
    #[serde(serialize_with = "table")]
    pub table: u32,
    /// Lower comes first.
    pub priority: u32,
    /// `unicast`, `blackhole`, `unreachable`, `prohibit`.
    pub action: &'static str,
}

/// A rule there shall be; its id is `<family>/<priority>`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RoutingRuleSpec {
    /// The rule.
    #[serde(flatten)]
    pub rule: RoutingRule,
    /// Who said so.
    pub layer: Layer,
}

impl Spec for RoutingRuleSpec {
    const DEFINITION: Definition = open("RoutingRuleSpecs.net.talos.dev", NAMESPACE, &[], &[]);
}

/// A rule the kernel has; its id is that of a spec, with a number behind it where there are several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct RoutingRuleStatus(pub RoutingRule);

impl Spec for RoutingRuleStatus {
    const DEFINITION: Definition = open(
        "RoutingRuleStatuses.net.talos.dev",
        NAMESPACE,
        &["routingrule", "routingrules"],
        &[
            column("Src", ".src"),
            column("Dst", ".dst"),
            column("Table", ".table"),
            column("Priority", ".priority"),
        ],
    );
}

fn table<S: serde::Serializer>(value: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&table_name(*value))
}
