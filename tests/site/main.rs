//! `make docs`: the documentation as one site.
//!
//! Owns: the output directory.
//! Never: writes a site with a broken link.

use std::path::PathBuf;
use std::process::ExitCode;

use ::tests::docs;
use clap::Parser;

/// Writes the documentation as one site.
#[derive(Debug, Parser)]
struct Cli {
    /// The directory to write to
    out: PathBuf,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let pages = docs::pages();
    let broken = docs::broken(&pages);
    if !broken.is_empty() {
        eprintln!("site: correct these links:\n{}", broken.join("\n"));
        return ExitCode::FAILURE;
    }
    match docs::write(&pages, &cli.out) {
        Ok(count) => {
            println!("{count} pages: {}", cli.out.join("index.html").display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!(
                "site: cannot write to {}: {error}; choose another directory",
                cli.out.display()
            );
            ExitCode::FAILURE
        }
    }
}
