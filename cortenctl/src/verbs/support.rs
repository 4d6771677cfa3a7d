//! `support`: collects the diagnostic data of nodes in one zip file.
//!
//! Secrets are left out: resources for administrators only are omitted, the machine config has its secrets hidden, and
//! keys and passwords in logs are replaced.

mod archive;
mod collect;
mod kubernetes;
mod redact;

use std::io::Write as _;

use anyhow::Context as _;
use corten_client::connect::routes;
use corten_client::failure::{Failure, finish};
use corten_client::files;
use corten_client::flags::Global;
use corten_client::stream::each;
use corten_client::table::{Table, printable};

use crate::cli::Support;

use archive::Archive;

const HEADER: &[&str] = &["SOURCE", "ERROR"];

/// Sources that could not be read, each with its error.
type Missing = Vec<(String, String)>;

pub(crate) async fn run(global: &Global, args: &Support) -> Result<(), Failure> {
    let routes = routes(global).await?;
    let path = &args.output;
    if path.exists() && !args.force {
        return Err(Failure::call(format!(
            "{} exists; choose another with -O, or overwrite it with --force",
            path.display()
        )));
    }
    let mut archive = Archive::new(files::beside(path)?);
    let mut missing = Missing::new();
    let failed = each(routes, async |node| {
        eprintln!("{}: collecting", printable(&node.name));
        collect::node(node, &mut archive, &mut missing, args.verbose).await
    })
    .await?;
    // A node without a config has no cluster.
    if !global.insecure {
        kubernetes::cluster(global, &mut archive, &mut missing).await?;
    }
    for (node, why) in &failed {
        missing.push((node.clone(), why.clone()));
    }
    let table = errors(&missing);
    archive.add("errors.txt", table.as_bytes())?;
    let file = archive.finish()?;
    let kept = file.persist(path).map_err(|error| error.error);
    kept.with_context(|| path.display().to_string())?;
    eprintln!("wrote {}", path.display());
    if !missing.is_empty() {
        std::io::stderr().lock().write_all(table.as_bytes())?;
    }
    finish(&failed)
}

fn errors(missing: &Missing) -> String {
    let mut table = Table::new(HEADER);
    for (source, why) in missing {
        table.row([source, why]);
    }
    table.render()
}
