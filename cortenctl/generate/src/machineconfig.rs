//! `machineconfig patch`: applies patches to a config.

use std::path::Path;

use corten_client::configfile;
use corten_client::failure::Failure;
use corten_client::{files, table};

use crate::args::PatchConfig;

pub(crate) fn patch(args: &PatchConfig) -> Result<(), Failure> {
    let patched = configfile::patched(configfile::read(&args.file)?, &args.patch)?;
    let text = String::from_utf8_lossy(&patched);
    match args
        .output
        .as_deref()
        .filter(|path| *path != Path::new("-"))
    {
        Some(path) => files::write(path, &text, true)?,
        None => table::print(&text)?,
    }
    // The result is written anyway: it may be for a node of another version.
    if let Err(Failure::Call(problems)) = configfile::parse("warning", &patched) {
        eprintln!("a node of this version would refuse the result:\n{problems:#}");
    }
    Ok(())
}
