//! `usage`: disk usage of files.

use corten_api::machine::{DiskUsageInfo, DiskUsageRequest};
use corten_client::clients::Machine;
use corten_client::connect::{Route, count};
use corten_client::failure::Failure;
use corten_client::stream::stream;
use serde_json::json;

use crate::cli::Usage;
use crate::verbs::listing::{Listing, size};

const HEADER: [&str; 3] = ["NODE", "SIZE", "NAME"];

pub(crate) async fn run(routes: Vec<Route>, args: &Usage) -> Result<(), Failure> {
    let several = count(&routes) > 1;
    let body = DiskUsageRequest {
        // On the wire the path itself is the first level, and 0 means all levels.
        recursion_depth: args.depth.saturating_add(1),
        all: args.all,
        threshold: args.threshold,
        paths: args.paths.clone(),
    };
    // The node is shown only when there are several.
    let with_node = |cells: [&str; 3]| -> Vec<String> {
        let cells = cells.iter().skip(usize::from(!several));
        cells.map(|cell| (*cell).to_owned()).collect()
    };
    let mut listing = Listing::new(&args.output.output, with_node(HEADER));
    let call = |mut client: Machine, request| async move { client.disk_usage(request).await };
    let failed = stream(routes, body, call, |node, info: DiskUsageInfo| {
        let cells = || {
            let size = size(info.size, args.humanize);
            with_node([node, &size, &info.relative_name])
        };
        let item = || json!({ "path": info.name, "name": info.relative_name, "size": info.size });
        listing.file(node, &info.name, &info.error, cells, item)
    })
    .await?;
    listing.finish(&failed)
}
