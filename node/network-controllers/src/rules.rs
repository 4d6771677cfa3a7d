//! Applies and shows routing rules.

use std::collections::{BTreeMap, BTreeSet};

use corten_base::console;
use corten_network::rules::{apply, found};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::network_rule::{RoutingRule, RoutingRuleSpec, RoutingRuleStatus};
use rtnetlink::MulticastGroup;

use crate::netlink::Kernel;

const GROUPS: [MulticastGroup; 2] = [MulticastGroup::Ipv4Rule, MulticastGroup::Ipv6Rule];

/// Makes the kernel's rules follow the specs.
#[derive(Debug, Clone)]
pub(crate) struct Rules;

impl Controller for Rules {
    fn name(&self) -> &'static str {
        "network.RoutingRuleSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<RoutingRuleSpec>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut kernel = Kernel::connect(&GROUPS)?;
        // Each refused rule is logged once.
        let mut told = BTreeSet::new();
        loop {
            tokio::select! {
                () = context.event() => {}
                changed = kernel.changed() => changed?,
            }
            let specs = context.list::<RoutingRuleSpec>()?;
            let wanted: BTreeSet<RoutingRule> =
                specs.iter().map(|spec| spec.rule.clone()).collect();
            let complaints: BTreeSet<String> =
                apply(&kernel.handle, &wanted).await?.into_iter().collect();
            for complaint in complaints.difference(&told) {
                console::warn(&format!("network: {complaint}"));
            }
            told = complaints;
        }
    }
}

/// Shows the kernel's rules.
#[derive(Debug, Clone)]
pub(crate) struct RuleStatuses;

impl Controller for RuleStatuses {
    fn name(&self) -> &'static str {
        "network.RoutingRuleStatusController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<RoutingRuleStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        let mut kernel = Kernel::connect(&GROUPS)?;
        loop {
            let mut counts: BTreeMap<String, usize> = BTreeMap::new();
            context.start_outputs();
            for found in found(&kernel.handle).await? {
                let id = format!("{}/{}", found.rule.family, found.rule.priority);
                let count = counts.entry(id.clone()).or_default();
                *count += 1;
                let id = match *count {
                    1 => id,
                    more => format!("{id}/{more}"),
                };
                context.put(Draft::new(&id, RoutingRuleStatus(found.rule)))?;
            }
            context.remove_others::<RoutingRuleStatus>()?;
            kernel.changed().await?;
        }
    }
}
