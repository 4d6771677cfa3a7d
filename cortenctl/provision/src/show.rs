//! `cluster show`: the clusters of this machine, or the nodes of one.

use corten_client::failure::Failure;
use corten_client::format::Format;
use corten_client::table::{Table, print};
use serde_json::json;

use super::backend::Backend;
use super::place::{Place, clusters};
use crate::args::ClusterShow;

const CLUSTERS: &[&str] = &["CLUSTER", "NODES", "RUNNING", "DIRECTORY"];
const NODES: &[&str] = &["NODE", "ROLE", "ADDRESS", "STATE", "CONSOLE"];

pub(super) fn run(args: &ClusterShow) -> Result<(), Failure> {
    let state = args.state.as_deref();
    let names = match &args.name {
        Some(name) => vec![name.clone()],
        None => clusters(state)?,
    };
    let mut table = Table::new(if args.name.is_some() { NODES } else { CLUSTERS });
    let mut items = Vec::new();
    for name in names {
        let place = Place::of(state, &name)?;
        let plan = place.plan()?;
        let backend = Backend::of(&plan.name, plan.provisioner)?;
        let mut nodes = Vec::new();
        let mut running = 0;
        for node in &plan.nodes {
            let runs = backend.runs(&node.name);
            running += usize::from(runs);
            let is = if runs { "running" } else { "stopped" };
            let address = node.address.to_string();
            let console = backend.console(&place, node);
            if args.name.is_some() {
                table.row([node.name.as_str(), node.role.name(), &address, is, &console]);
            }
            nodes.push(json!({
                "node": node.name,
                "role": node.role.name(),
                "address": address,
                "state": is,
                "console": console,
            }));
        }
        let directory = place.path().display().to_string();
        if args.name.is_none() {
            let [all, running] = [plan.nodes.len(), running].map(|number| number.to_string());
            table.row([&name, &all, &running, &directory]);
        }
        items.push(json!({ "cluster": name, "directory": directory, "nodes": nodes }));
    }
    let text = match &args.output.output {
        Format::Table => table.render(),
        Format::Document(form) => form.list(items)?,
    };
    Ok(print(&text)?)
}
