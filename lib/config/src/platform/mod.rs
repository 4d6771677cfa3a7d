//! What a platform says of a machine's network: cloud-init's `network-config` and `meta-data`, as a NoCloud
//! seed has them ([`network`], [`identity`]), and the network that META 0x0a holds ([`PlatformNetwork`]).
//!
//! Both are read like a config: every problem is found at once, with its place, and what the node would not do
//! is refused. Which links are meant is for who knows the links.

mod cloud;
mod meta;
mod model;
mod v1;
mod v2;

pub use cloud::{SeedIdentity, identity, network};
pub use meta::*;
pub use model::{SeedDhcp, SeedLink, SeedMatch, SeedNetwork, SeedRoute, SeedShape};

use crate::problem::{Mark, Notes, Problems};
use crate::stream;
use crate::tree::Node;

/// The largest text read here, in bytes; real ones have a few thousand.
pub const LARGEST: usize = 256 * 1024;
/// Links, addresses and routes, of each: a slip of a generator shall not make a node busy for hours.
const MOST: usize = 256;

/// The only document of a text; none of one that is empty.
fn only(bytes: &[u8], notes: &mut Notes) -> Result<Option<Node>, Problems> {
    if bytes.len() > LARGEST {
        let message = format!("larger than {} KiB", LARGEST / 1024);
        return Err(Problems::one(Mark::default(), message));
    }
    // Generators leave files with nothing but a comment.
    let says = |line: &[u8]| !matches!(line.trim_ascii_start().first(), None | Some(b'#'));
    if !bytes.split(|byte| *byte == b'\n').any(says) {
        return Ok(None);
    }
    let (_, trees) = stream::read(bytes, notes)?;
    if let [_, second, ..] = trees.as_slice() {
        notes.add(second.mark, "", "a second document: there can be one only");
    }
    Ok(trees.into_iter().next())
}
