//! The benchmarks of `cargo bench`: single programs and libraries. Each prints its sections.

use std::process::{Command, Stdio};

use ::tests::workspace;
use anyhow::{Context as _, bail};

use crate::document::{Section, sections};

/// Compiles and runs the benchmarks, one after the other.
pub fn measure() -> anyhow::Result<Vec<Section>> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The benchmarks are named because `cargo bench` also runs the test programs of a crate.
    let output = Command::new(program)
        .args(["bench", "--locked", "--workspace"])
        .args(["--bench", "store", "--bench", "calls"])
        .current_dir(workspace::root())
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("cargo bench failed ({}):\n{text}", output.status);
    }
    let found = sections(&text);
    if found.is_empty() {
        bail!("cargo bench printed no section:\n{text}");
    }
    Ok(found)
}
