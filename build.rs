//! The only build script: compiles the `.proto` files of its package (`api`, `node/etcd`) without `protoc`.
//!
//! Never reads the environment, git or the clock: the same inputs give the same bytes.

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");

    let root = Path::new("proto");
    let mut files = Vec::new();
    collect(root, &mut files)?;
    // Directory order is the file system's; the output must not depend on it.
    files.sort();
    let internal = root.join("corten");
    let (internal, public): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|f| f.starts_with(&internal));
    // The public API is wide: a server implements what it can, the generated
    // rest answers UNIMPLEMENTED. Our own few methods are all implemented.
    // Resources that are long lists of numbers are shown as they are sent.
    let shown = "#[derive(serde::Serialize)] #[serde(rename_all = \"camelCase\")]";
    let dashed = "#[derive(serde::Serialize)] #[serde(rename_all = \"kebab-case\")]";
    let if_there = "#[serde(skip_serializing_if = \"Option::is_none\")]";
    let mut public_code = tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .generate_default_stubs(true)
        .message_attribute(".talos.resource.definitions.perf", shown)
        .message_attribute(".machine.CPUStat", shown);
    for ethernet in ["RingsStatus", "ChannelsStatus", "RingsSpec", "ChannelsSpec"] {
        let path = format!(".talos.resource.definitions.network.Ethernet{ethernet}");
        public_code = public_code
            .message_attribute(&path, dashed)
            .field_attribute(&path, if_there);
    }
    public_code
        .include_file("public.rs")
        .compile_fds(protox::compile(&public, [root])?)?;
    if internal.is_empty() {
        return Ok(());
    }
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .include_file("internal.rs")
        .compile_fds(protox::compile(&internal, [root])?)?;
    Ok(())
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|e| e == "proto") {
            files.push(path);
        }
    }
    Ok(())
}
