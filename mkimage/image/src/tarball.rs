//! Tar files without any trace of the build machine.

use std::io::{Read, Write};

use corten_rootfs::tree::{Kind, Node};
use corten_steps::error::Result;
use tar::{Builder, EntryType, Header};

use super::output;

/// A tar being written: owner 0:0, one date, modes as given.
pub(crate) struct Tarball<W: Write> {
    tar: Builder<W>,
    epoch: u64,
}

impl<W: Write> Tarball<W> {
    pub(crate) fn new(out: W, epoch: u64) -> Self {
        Self {
            tar: Builder::new(out),
            epoch,
        }
    }

    fn header(&self, kind: EntryType, mode: u32, size: u64) -> Header {
        // GNU's old format: every cloud's importer reads it, and it allows sizes above 8 GiB.
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(self.epoch);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    /// Adds a directory; `path` ends in a slash.
    pub(crate) fn directory(&mut self, path: &str) -> Result<()> {
        let mut header = self.header(EntryType::Directory, 0o755, 0);
        Ok(self.tar.append_data(&mut header, path, std::io::empty())?)
    }

    /// Adds a file of exactly `size` bytes.
    pub(crate) fn file(&mut self, path: &str, size: u64, content: impl Read) -> Result<()> {
        let mut header = self.header(EntryType::Regular, 0o644, size);
        Ok(self
            .tar
            .append_data(&mut header, path, content.take(size))?)
    }

    /// Adds a node of a tree at `path`, with its mode and owner.
    pub(crate) fn node(&mut self, path: &str, node: &Node) -> Result<()> {
        let (kind, size) = match &node.kind {
            Kind::Directory => (EntryType::Directory, 0),
            Kind::Link(_) => (EntryType::Symlink, 0),
            Kind::File(source) => (EntryType::Regular, output::size_of(source)?),
        };
        let mut header = self.header(kind, node.mode, size);
        header.set_uid(u64::from(node.uid));
        header.set_gid(u64::from(node.gid));
        let tar = &mut self.tar;
        match &node.kind {
            Kind::Directory => {
                tar.append_data(&mut header, format!("{path}/"), std::io::empty())?;
            }
            Kind::Link(target) => tar.append_link(&mut header, path, target)?,
            Kind::File(source) => {
                let content = output::open(source)?.take(size);
                tar.append_data(&mut header, path, content)?;
            }
        }
        Ok(())
    }

    /// Adds a file from memory.
    pub(crate) fn bytes(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.file(path, super::bytes::size(content.len()), content)
    }

    /// Ends the archive and returns the writer.
    pub(crate) fn finish(self) -> Result<W> {
        Ok(self.tar.into_inner()?)
    }
}
