//! The kubeconfig of a node.

use std::io::Read as _;

use anyhow::anyhow;

use crate::clients::Machine;
use crate::stream::{Node, Trouble, gather};

/// The largest kubeconfig read, in bytes; a node's is about 6 kB.
pub const MAX_SIZE: usize = 8 * 1024 * 1024;

/// The node's kubeconfig, unchanged.
///
/// # Errors
/// The node refuses the call, or its answer is no archive with a kubeconfig.
pub async fn fetch(node: &Node) -> Result<String, Trouble> {
    let mut archive = Vec::new();
    let mut client = node.client::<Machine>();
    let mut frames = client.kubeconfig(node.request(())).await?.into_inner();
    let too_large = "its kubeconfig exceeds the size limit";
    gather(&mut frames, MAX_SIZE, too_large, &mut archive).await?;
    file_of(&archive, "kubeconfig", MAX_SIZE as u64)
        .map_err(|error| Trouble::Said(format!("its archive cannot be read: {error}")))
}

/// The only file of a small archive, as text.
///
/// # Errors
/// The archive cannot be read, does not contain the file, or the file is no text of at most `limit`
/// bytes.
fn file_of(archive: &[u8], name: &str, limit: u64) -> anyhow::Result<String> {
    let mut archive = tar::Archive::new(flate2::read::MultiGzDecoder::new(archive));
    for entry in archive.entries()? {
        let entry = entry?;
        if entry.path()?.file_name() != Some(name.as_ref()) {
            continue;
        }
        let mut text = String::new();
        entry.take(limit + 1).read_to_string(&mut text)?;
        anyhow::ensure!(
            text.len() as u64 <= limit,
            "{name} is larger than {limit} bytes"
        );
        return Ok(text);
    }
    Err(anyhow!("there is no {name} in it"))
}
