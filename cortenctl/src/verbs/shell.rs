//! `completion` and `man`: generated from the description of the command line.

use std::fs;

use anyhow::Context as _;
use clap::CommandFactory as _;
use corten_client::failure::Failure;
use corten_client::table;

use crate::cli::{Cli, Completion, Man};

pub(crate) fn completion(args: &Completion) -> Result<(), Failure> {
    let mut script = Vec::new();
    let mut command = Cli::command();
    clap_complete::generate(args.shell, &mut command, "cortenctl", &mut script);
    Ok(table::print(&String::from_utf8_lossy(&script))?)
}

pub(crate) fn man(args: &Man) -> Result<(), Failure> {
    let write = || -> std::io::Result<()> {
        fs::create_dir_all(&args.directory)?;
        clap_mangen::generate_to(Cli::command(), &args.directory)
    };
    write().with_context(|| format!("directory {}", args.directory.display()))?;
    eprintln!("wrote man pages to {}", args.directory.display());
    Ok(())
}
