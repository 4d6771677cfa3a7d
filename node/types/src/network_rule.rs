//! Routing rules, which select the routing table for a packet.

use corten_api::talos::resource::definitions::network as wire;
use corten_resources::{Definition, Spec};
use serde::Serialize;

use super::message::net_prefix;
use super::names::{FAMILIES, RULE_ACTIONS, number};
use super::network_kind::table;
use super::network_spec::Layer;
use super::prefix::Prefix;
use super::{column, is_default, open};

const NAMESPACE: &str = "network";

/// Match and action of a rule; an empty or 0 field matches every packet.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RoutingRule {
    /// `inet4`, `inet6`.
    pub family: &'static str,
    /// Source network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub src: Option<Prefix>,
    /// Destination network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dst: Option<Prefix>,
    /// Incoming link.
    #[serde(rename = "iifName", skip_serializing_if = "String::is_empty")]
    pub iif_name: String,
    /// Outgoing link.
    #[serde(rename = "oifName", skip_serializing_if = "String::is_empty")]
    pub oif_name: String,
    /// Firewall mark.
    #[serde(skip_serializing_if = "is_default")]
    pub fw_mark: u32,
    /// Bits of the firewall mark to compare.
    #[serde(skip_serializing_if = "is_default")]
    pub fw_mask: u32,
    /// Routing table to search.
    #[serde(serialize_with = "table")]
    pub table: u32,
    /// Priority; lower values come first.
    pub priority: u32,
    /// `unicast`, `blackhole`, `unreachable`, `prohibit`.
    pub action: &'static str,
}

impl RoutingRule {
    fn message(&self) -> wire::RoutingRuleStatusSpec {
        wire::RoutingRuleStatusSpec {
            family: number(self.family, FAMILIES).unwrap_or_default(),
            src: self.src.map(net_prefix),
            dst: self.dst.map(net_prefix),
            table: self.table,
            priority: self.priority,
            action: number(self.action, RULE_ACTIONS).unwrap_or_default(),
            iif_name: self.iif_name.clone(),
            oif_name: self.oif_name.clone(),
            fw_mark: self.fw_mark,
            fw_mask: self.fw_mask,
        }
    }
}

/// A desired rule; its id is `<family>/<priority>`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RoutingRuleSpec {
    /// The rule.
    #[serde(flatten)]
    pub rule: RoutingRule,
    /// Layer that set it.
    pub layer: Layer,
}

impl Spec for RoutingRuleSpec {
    const DEFINITION: Definition = open("RoutingRuleSpecs.net.talos.dev", NAMESPACE, &[], &[]);

    type Message = wire::RoutingRuleSpecSpec;

    fn message(&self) -> wire::RoutingRuleSpecSpec {
        let rule = self.rule.message();
        wire::RoutingRuleSpecSpec {
            family: rule.family,
            src: rule.src,
            dst: rule.dst,
            table: rule.table,
            priority: rule.priority,
            action: rule.action,
            iif_name: rule.iif_name,
            oif_name: rule.oif_name,
            fw_mark: rule.fw_mark,
            fw_mask: rule.fw_mask,
            config_layer: self.layer.number(),
        }
    }
}

/// A rule in the kernel; its id is that of a spec, followed by a number if several rules share it.
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

    type Message = wire::RoutingRuleStatusSpec;

    fn message(&self) -> wire::RoutingRuleStatusSpec {
        self.0.message()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routing_rule_is_encoded_as_numbers_and_bytes() {
        let rule = RoutingRule {
            family: "inet4",
            src: Some(Prefix::host("10.0.0.1".parse().unwrap())),
            iif_name: "eth0".to_owned(),
            fw_mark: 1,
            fw_mask: 255,
            table: 100,
            priority: 1000,
            action: "prohibit",
            ..RoutingRule::default()
        };
        let status = RoutingRuleStatus(rule.clone()).message();
        assert_eq!((status.family, status.action), (2, 8));
        assert_eq!((status.table, status.priority), (100, 1000));
        assert_eq!(status.src.as_ref().unwrap().prefix_length, 32);
        let spec = RoutingRuleSpec {
            rule,
            layer: Layer::Configuration,
        };
        let spec = spec.message();
        assert_eq!((spec.src, spec.dst), (status.src, None));
        assert_eq!((&*spec.iif_name, spec.config_layer), ("eth0", 4));
        assert_eq!((spec.fw_mark, spec.fw_mask), (1, 255));
    }
}
