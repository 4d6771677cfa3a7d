//! `cgroups`: what groups of processes use and may use, read from a copy of the
//! node's cgroup file system.

mod columns;
mod tree;

use std::collections::BTreeMap;

use corten_api::machine::CopyRequest;

use crate::answers::finish;
use crate::cli::{Cgroups, Preset};
use crate::clients::Machine;
use crate::connect::Route;
use crate::failure::Failure;
use crate::stream::{Node, Trouble, each, gather};
use crate::table::{Table, print};

use columns::{Processes, columns};
use tree::Tree;

/// Where the kernel shows them.
const ROOT: &str = "/sys/fs/cgroup";
/// The largest archive read, in bytes; a node with 100 pods has about 1 MB.
const MAX_SIZE: usize = 64 * 1024 * 1024;

pub(crate) async fn run(routes: Vec<Route>, args: &Cgroups) -> Result<(), Failure> {
    let columns = columns(args.preset);
    let header = ["NODE", "NAME"].into_iter();
    let header: Vec<&str> = header
        .chain(columns.iter().map(|(name, _)| *name))
        .collect();
    let mut table = Table::new(&header);
    let mut some = false;
    let failed = each(routes, async |node| {
        let (tree, missing) = tree(node).await?;
        let processes = match args.preset {
            Preset::Process => processes(node).await?,
            _ => Processes::new(),
        };
        some = true;
        for (name, group) in tree.rows() {
            let cells = columns
                .iter()
                .map(|(_, cell)| cell(group, &tree, &processes));
            table.row([node.name.clone(), name].into_iter().chain(cells));
        }
        missing
    })
    .await?;
    if some {
        print(&table.render())?;
    }
    finish(&failed)
}

/// The groups, and what the node could not copy of them, which it says after an
/// archive that is whole.
async fn tree(node: &Node) -> Result<(Tree, Result<(), Trouble>), Trouble> {
    let request = node.request(CopyRequest {
        root_path: ROOT.to_owned(),
    });
    let mut archive = Vec::new();
    let mut frames = node.client::<Machine>().copy(request).await?.into_inner();
    let too_large = "its cgroups are too many";
    let copied = gather(&mut frames, MAX_SIZE, too_large, &mut archive).await;
    match Tree::read(flate2::read::MultiGzDecoder::new(&*archive)) {
        Ok(tree) => Ok((tree, copied)),
        // Why it broke off says more than that it has no end.
        Err(error) => {
            copied?;
            Err(Trouble::Said(format!("its archive: {error:#}")))
        }
    }
}

/// Names of processes by number.
async fn processes(node: &Node) -> Result<Processes, Trouble> {
    let answer = node.client::<Machine>().processes(node.brief(())).await?;
    let messages = answer.into_inner().messages.into_iter();
    let all = messages.flat_map(|message| message.processes);
    Ok(all
        .map(|process| (process.pid.to_string(), process.command))
        .collect::<BTreeMap<_, _>>())
}
