//! Policy routing rules (ip-rule(8)) over rtnetlink.

use std::collections::BTreeSet;
use std::net::IpAddr;

use corten_types::network_rule::RoutingRule;
use corten_types::prefix::Prefix;
use futures_util::TryStreamExt as _;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::RouteProtocol;
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion};

use super::apply::describe;

/// A rule in the kernel, and whether machined owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The rule.
    pub rule: RoutingRule,
    /// Whether machined added it.
    pub is_ours: bool,
}

/// All rules, in the kernel's order.
///
/// # Errors
/// The kernel does not report its rules.
pub async fn found(handle: &Handle) -> Result<Vec<Found>, String> {
    let mut all = Vec::new();
    for version in [IpVersion::V4, IpVersion::V6] {
        let messages = handle.rule().get(version).execute();
        let messages: Vec<RuleMessage> = messages
            .try_collect()
            .await
            .map_err(|error| describe(&error))?;
        all.extend(messages.iter().filter_map(read));
    }
    Ok(all)
}

/// Replaces machined's rules with these. Returns the failures as messages for the operator; the other rules are
/// applied.
///
/// # Errors
/// The kernel does not report its rules.
pub async fn apply(handle: &Handle, wanted: &BTreeSet<RoutingRule>) -> Result<Vec<String>, String> {
    let present = found(handle).await?;
    let ours: BTreeSet<&RoutingRule> = present
        .iter()
        .filter(|found| found.is_ours)
        .map(|found| &found.rule)
        .collect();
    let mut complaints = Vec::new();
    // New rules first: a packet in between matches an old or a new rule rather than none.
    for rule in wanted.iter().filter(|rule| !ours.contains(rule)) {
        let mut add = handle.rule().add();
        *add.message_mut() = message(rule);
        if let Err(error) = add.execute().await {
            let what = format!("cannot add the routing rule {}", rule.priority);
            complaints.push(format!("{what}: {}", describe(&error)));
        }
    }
    for rule in ours.iter().filter(|rule| !wanted.contains(**rule)) {
        if let Err(error) = handle.rule().del(message(rule)).execute().await {
            let what = format!("cannot remove the routing rule {}", rule.priority);
            complaints.push(format!("{what}: {}", describe(&error)));
        }
    }
    Ok(complaints)
}

/// Marks machined's rules; no other program marks rules as static.
const OURS: RouteProtocol = RouteProtocol::Static;

fn message(rule: &RoutingRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    let header = &mut message.header;
    header.family = if rule.family == "inet6" {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    header.action = match rule.action {
        "blackhole" => RuleAction::Blackhole,
        "unreachable" => RuleAction::Unreachable,
        "prohibit" => RuleAction::Prohibit,
        _ => RuleAction::ToTable,
    };
    let attributes = &mut message.attributes;
    if let Some(Prefix { address, length }) = rule.src {
        header.src_len = length;
        attributes.push(RuleAttribute::Source(address));
    }
    if let Some(Prefix { address, length }) = rule.dst {
        header.dst_len = length;
        attributes.push(RuleAttribute::Destination(address));
    }
    if !rule.iif_name.is_empty() {
        attributes.push(RuleAttribute::Iifname(rule.iif_name.clone()));
    }
    if !rule.oif_name.is_empty() {
        attributes.push(RuleAttribute::Oifname(rule.oif_name.clone()));
    }
    if rule.fw_mark != 0 || rule.fw_mask != 0 {
        attributes.push(RuleAttribute::FwMark(rule.fw_mark));
        attributes.push(RuleAttribute::FwMask(rule.fw_mask));
    }
    if rule.action == "unicast" {
        attributes.push(RuleAttribute::Table(rule.table));
    }
    attributes.push(RuleAttribute::Priority(rule.priority));
    attributes.push(RuleAttribute::Protocol(OURS));
    message
}

fn read(message: &RuleMessage) -> Option<Found> {
    let header = &message.header;
    let mut rule = RoutingRule {
        family: match header.family {
            AddressFamily::Inet => "inet4",
            AddressFamily::Inet6 => "inet6",
            _ => return None,
        },
        table: header.table.into(),
        action: match header.action {
            RuleAction::ToTable => "unicast",
            RuleAction::Blackhole => "blackhole",
            RuleAction::Unreachable => "unreachable",
            RuleAction::Prohibit => "prohibit",
            _ => "unspec",
        },
        ..RoutingRule::default()
    };
    let mut is_ours = false;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(address) => rule.src = with(*address, header.src_len),
            RuleAttribute::Destination(address) => rule.dst = with(*address, header.dst_len),
            RuleAttribute::Iifname(name) => rule.iif_name.clone_from(name),
            RuleAttribute::Oifname(name) => rule.oif_name.clone_from(name),
            RuleAttribute::FwMark(mark) => rule.fw_mark = *mark,
            RuleAttribute::FwMask(mask) => rule.fw_mask = *mask,
            RuleAttribute::Table(table) => rule.table = *table,
            RuleAttribute::Priority(priority) => rule.priority = *priority,
            RuleAttribute::Protocol(protocol) => is_ours = *protocol == OURS,
            _ => {}
        }
    }
    Some(Found { rule, is_ours })
}

fn with(address: IpAddr, length: u8) -> Option<Prefix> {
    Some(Prefix { address, length })
}

#[cfg(test)]
mod tests {
    use corten_base::testing::alone;

    use super::*;

    fn prefix(text: &str) -> Option<Prefix> {
        let (address, length) = text.split_once('/').unwrap();
        with(address.parse().unwrap(), length.parse().unwrap())
    }

    fn rule(family: &'static str, priority: u32) -> RoutingRule {
        RoutingRule {
            family,
            priority,
            table: 100,
            action: "unicast",
            ..RoutingRule::default()
        }
    }

    /// Rules that cover each field.
    fn several() -> BTreeSet<RoutingRule> {
        let by_address = RoutingRule {
            src: prefix("10.1.0.0/16"),
            dst: prefix("0.0.0.0/1"),
            table: 7000,
            ..rule("inet4", 10)
        };
        let by_mark = RoutingRule {
            fw_mark: 0x20,
            fw_mask: 0x60,
            iif_name: "lo".to_owned(),
            ..rule("inet6", 20)
        };
        let refuses = RoutingRule {
            dst: prefix("fd00:1::/64"),
            oif_name: "eth7".to_owned(),
            action: "prohibit",
            table: 0,
            ..rule("inet6", 30)
        };
        BTreeSet::from([by_address, by_mark, refuses])
    }

    #[test]
    fn routing_rule_round_trips_through_its_message() {
        for rule in several() {
            let read = read(&message(&rule)).unwrap();
            assert_eq!((read.rule, read.is_ours), (rule, true));
        }
    }

    #[test]
    fn routing_rules_are_applied_to_the_kernel_and_removed() {
        alone(async {
            let (connection, handle, _) = rtnetlink::new_connection().unwrap();
            tokio::spawn(connection);
            let others = found(&handle).await.unwrap();
            assert!(others.iter().all(|found| !found.is_ours), "{others:?}");
            let ours = async || -> BTreeSet<RoutingRule> {
                let found = found(&handle).await.unwrap();
                let ours = found.into_iter().filter(|found| found.is_ours);
                ours.map(|found| found.rule).collect()
            };
            let mut wanted = several();
            assert_eq!(apply(&handle, &wanted).await.unwrap(), [""; 0]);
            assert_eq!(ours().await, wanted);
            // One rule replaces the first; applying the same again changes nothing.
            wanted.pop_first();
            wanted.insert(rule("inet4", 10));
            for _ in 0..2 {
                assert_eq!(apply(&handle, &wanted).await.unwrap(), [""; 0]);
                assert_eq!(ours().await, wanted);
            }
            // A rule that the kernel refuses is reported, and the others are applied.
            let mut bad = wanted.clone();
            bad.insert(RoutingRule {
                iif_name: "a-name-that-is-too-long".to_owned(),
                ..rule("inet4", 40)
            });
            let complaints = apply(&handle, &bad).await.unwrap();
            assert!(complaints[0].starts_with("cannot add the routing rule 40: "));
            assert_eq!(ours().await, wanted);
            assert_eq!(apply(&handle, &BTreeSet::new()).await.unwrap(), [""; 0]);
            assert_eq!(found(&handle).await.unwrap(), others);
        });
    }
}
