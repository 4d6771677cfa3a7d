//! `cgroups`: usage and limits of groups of processes, read from a copy of the node's cgroup file
//! system.

mod columns;
mod tree;

use std::collections::BTreeMap;

use corten_api::machine::CopyRequest;
use corten_client::answers::Answers;
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::output::show;
use corten_client::stream::{Node, Trouble, each, gather};
use corten_client::table::Table;
use serde_json::{Map, Value, json};

use crate::cli::{Cgroups, Preset};

use columns::{Processes, columns};
use tree::Tree;

/// Mount point of the cgroup file system.
const ROOT: &str = "/sys/fs/cgroup";
/// The largest archive read, in bytes; a node with 100 pods has about 1 MB.
const MAX_SIZE: usize = 64 * 1024 * 1024;

pub(crate) async fn run(routes: Vec<Route>, args: &Cgroups) -> Result<(), Failure> {
    let mut good = Vec::new();
    let failed = each(routes, async |node| {
        let (tree, missing) = tree(node).await?;
        let processes = match args.preset {
            Preset::Process => processes(node).await?,
            _ => Processes::new(),
        };
        good.push((node.name.clone(), (tree, processes)));
        missing
    })
    .await?;
    let answers = Answers { good, failed };
    let table = |all: &[(String, Groups)]| table(all, args.preset);
    let item = |groups: &Groups| fields(groups, args.preset);
    show(answers, &args.output.output, table, item)
}

/// The groups of a node, and the names of its processes.
type Groups = (Tree, Processes);

fn table(nodes: &[(String, Groups)], preset: Preset) -> String {
    let columns = columns(preset);
    let header = ["NODE", "NAME"].into_iter();
    let header: Vec<&str> = header
        .chain(columns.iter().map(|(name, _)| *name))
        .collect();
    let mut table = Table::new(&header);
    for (node, (tree, processes)) in nodes {
        for (name, group) in tree.rows() {
            let cells = columns.iter().map(|(_, cell)| cell(group, tree, processes));
            table.row([node.clone(), name].into_iter().chain(cells));
        }
    }
    table.render()
}

/// The cells of each group by column name.
fn fields((tree, processes): &Groups, preset: Preset) -> Value {
    let columns = columns(preset);
    let groups = tree.groups().map(|(path, group)| {
        let mut item = Map::new();
        item.insert("name".to_owned(), Value::from(path));
        for (name, cell) in columns {
            item.insert((*name).to_owned(), json!(cell(group, tree, processes)));
        }
        Value::Object(item)
    });
    json!({ "groups": groups.collect::<Vec<_>>() })
}

/// The groups, and the error of an incomplete copy, which the node reports after a complete
/// archive.
async fn tree(node: &Node) -> Result<(Tree, Result<(), Trouble>), Trouble> {
    let request = node.request(CopyRequest {
        root_path: ROOT.to_owned(),
    });
    let mut archive = Vec::new();
    let mut frames = node.client::<Machine>().copy(request).await?.into_inner();
    let too_large = "its cgroups exceed the size limit";
    let copied = gather(&mut frames, MAX_SIZE, too_large, &mut archive).await;
    match Tree::read(flate2::read::MultiGzDecoder::new(&*archive)) {
        Ok(tree) => Ok((tree, copied)),
        // The reason of the interruption says more than the truncated archive.
        Err(error) => {
            copied?;
            Err(Trouble::Said(format!("its archive: {error:#}")))
        }
    }
}

/// Names of processes by pid.
async fn processes(node: &Node) -> Result<Processes, Trouble> {
    let answer = node.client::<Machine>().processes(node.brief(())).await?;
    let messages = answer.into_inner().messages.into_iter();
    let all = messages.flat_map(|message| message.processes);
    Ok(all
        .map(|process| (process.pid.to_string(), process.command))
        .collect::<BTreeMap<_, _>>())
}
