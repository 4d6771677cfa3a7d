//! `usage`: what files take on the disk.

use corten_api::machine::{DiskUsageInfo, DiskUsageRequest};

use crate::answers::finish;
use crate::cli::Usage;
use crate::clients::Machine;
use crate::connect::{Route, count};
use crate::failure::Failure;
use crate::stream::stream;
use crate::table::{Rows, print, printable};
use crate::units;

const HEADER: [&str; 3] = ["NODE", "SIZE", "NAME"];

pub(crate) async fn run(routes: Vec<Route>, args: &Usage) -> Result<(), Failure> {
    let several = count(&routes) > 1;
    let body = DiskUsageRequest {
        recursion_depth: args.depth,
        all: args.all,
        threshold: args.threshold,
        paths: args.paths.clone(),
    };
    // The node is told where it is not clear.
    let with_node = |cells: [&str; 3]| -> Vec<String> {
        let cells = cells.iter().skip(usize::from(!several));
        cells.map(|cell| (*cell).to_owned()).collect()
    };
    let mut rows = Rows::new(with_node(HEADER));
    let mut broken = false;
    let call = |mut client: Machine, request| async move { client.disk_usage(request).await };
    let failed = stream(routes, body, call, |node, info: DiskUsageInfo| {
        if !info.error.is_empty() {
            broken = true;
            let (node, name) = (printable(node), printable(&info.name));
            eprintln!("error: {node}: {name}: {}", printable(&info.error));
            return Ok(());
        }
        let size = match u64::try_from(info.size) {
            Ok(size) if args.humanize => units::size(size),
            _ => info.size.to_string(),
        };
        rows.row(with_node([node, &size, &info.relative_name]));
        Ok(print(&rows.render_many())?)
    })
    .await?;
    if rows.used() || failed.is_empty() {
        print(&rows.render())?;
    }
    finish(&failed)?;
    if broken { Err(Failure::Told) } else { Ok(()) }
}
