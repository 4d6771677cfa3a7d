//! Copy: streams a file tree as a compressed tar archive (GNU tar's format, gzip).

use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use corten_api::common::Data;
use corten_api::machine as api;
use corten_base::regular;
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};
use tonic::Status;

use super::walk::{Entry, Step, Walk};
use super::{BELIEVED, absolute, refused};
use crate::stream::{FRAME, Flow, Sink, Stop};

/// Limit of failures named in the final status; further ones are counted.
const NAMED: usize = 8;

/// Streams `root_path` and everything below it. Files that cannot be copied are skipped; the status after the complete
/// archive names them. `check` may refuse the tree before anything of it is read.
///
/// # Errors
/// That of `check`; those of the file system for the root (NOT_FOUND and others, the text begins with `root_path`);
/// DATA_LOSS for an archive that lacks files.
pub fn copy(
    request: &api::CopyRequest,
    check: impl FnOnce(&Path) -> Result<(), Status>,
    sink: &Sink<Data>,
) -> Flow {
    let root = absolute(&request.root_path);
    check(&root)?;
    let walk = Walk::new(&root, None).map_err(|error| refused("root_path", &root, &error))?;
    let mut failures = Failures::default();
    let frames = Frames {
        sink,
        frame: Vec::with_capacity(FRAME),
    };
    let mut archive = Builder::new(GzEncoder::new(frames, Compression::fast()));
    let written = write_all(walk, &mut archive, sink, &mut failures)
        .and_then(|()| archive.into_inner()?.finish()?.flush());
    match written {
        Err(_) if sink.is_gone() => Err(Stop::Gone),
        Err(error) => Err(refused("root_path", &root, &error).into()),
        Ok(()) => failures.told(),
    }
}

/// An archive with one file (mode 0600), in memory, compressed like that of [`copy`].
///
/// # Errors
/// None for a small file.
pub fn archive_of(name: &str, content: &[u8]) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut header = Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o600);
    archive.append_data(&mut header, name, content)?;
    archive.into_inner()?.finish()
}

type Archive<'a> = Builder<GzEncoder<Frames<'a>>>;

/// # Errors
/// Only those of the connection. Failures of files go to `failures`.
fn write_all(
    mut walk: Walk,
    archive: &mut Archive<'_>,
    sink: &Sink<Data>,
    failures: &mut Failures,
) -> io::Result<()> {
    while let Some(step) = walk.next() {
        if sink.is_gone() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        match step {
            // Clients create the directory themselves; an entry would create it again.
            Step::Entry(entry) if entry.depth == 0 && entry.metadata.is_dir() => {}
            Step::Entry(entry) => {
                let name = walk.relative(&entry.path, entry.metadata.is_dir());
                write(archive, &entry, &name, failures)?;
            }
            Step::Failed(path, error) => failures.add(&path, &error),
            Step::Left => {}
        }
    }
    Ok(())
}

fn write(
    archive: &mut Archive<'_>,
    entry: &Entry,
    name: &Path,
    failures: &mut Failures,
) -> io::Result<()> {
    let Entry {
        path,
        depth,
        metadata,
    } = entry;
    let kind = metadata.file_type();
    let mut header = header(metadata);
    if kind.is_file() {
        // The walk follows a link only at its root.
        return match Content::open(path, metadata, *depth == 0) {
            Ok(mut content) => {
                header.set_entry_type(EntryType::Regular);
                header.set_size(content.length());
                archive.append_data(&mut header, name, &mut content)?;
                if let Some(error) = content.failed {
                    failures.add(path, &error);
                }
                Ok(())
            }
            Err(error) => {
                failures.add(path, &error);
                Ok(())
            }
        };
    }
    if kind.is_symlink() {
        header.set_entry_type(EntryType::Symlink);
        return match fs::read_link(path) {
            Ok(target) => archive.append_link(&mut header, name, target),
            Err(error) => {
                failures.add(path, &error);
                Ok(())
            }
        };
    }
    let (major, minor) = (
        rustix::fs::major(metadata.rdev()),
        rustix::fs::minor(metadata.rdev()),
    );
    header.set_entry_type(if kind.is_dir() {
        EntryType::Directory
    } else if kind.is_fifo() {
        EntryType::Fifo
    } else if kind.is_char_device() {
        EntryType::Char
    } else if kind.is_block_device() {
        EntryType::Block
    } else {
        // A socket is useless without its server, and tar has no type for one.
        return Ok(());
    });
    if kind.is_char_device() || kind.is_block_device() {
        header.set_device_major(major)?;
        header.set_device_minor(minor)?;
    }
    // A directory's name ends in a slash.
    let name = if kind.is_dir() {
        name.join("")
    } else {
        name.to_owned()
    };
    archive.append_data(&mut header, name, io::empty())
}

fn header(metadata: &Metadata) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(metadata.mode() & 0o7777);
    header.set_uid(metadata.uid().into());
    header.set_gid(metadata.gid().into());
    header.set_mtime(u64::try_from(metadata.mtime()).unwrap_or_default());
    header.set_size(0);
    header
}

/// A file's bytes, exactly as many as the header announces, even if the file changes meanwhile.
///
/// Files of the kernel report a size of 0 or 4096 regardless of their content. So up to [`BELIEVED`] bytes are read
/// before the size is announced.
struct Content {
    start: io::Cursor<Vec<u8>>,
    rest: io::Take<Box<dyn Read>>,
    failed: Option<io::Error>,
}

impl Content {
    fn open(path: &Path, metadata: &Metadata, follow: bool) -> io::Result<Content> {
        let size = metadata.len();
        if metadata.blocks() == 0 && size > BELIEVED {
            return Err(io::Error::other("has a size but no data on disk"));
        }
        let mut start = Vec::new();
        let opened = regular::open(path, follow).and_then(|file| {
            (&file).take(BELIEVED + 1).read_to_end(&mut start)?;
            Ok(file)
        });
        let file: Box<dyn Read> = match opened {
            Ok(file) => Box::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
            // Many of the kernel's files are write-only. If the size is 0, they are archived as empty.
            Err(_) if size == 0 && start.is_empty() => Box::new(io::empty()),
            Err(error) => return Err(error),
        };
        let read = start.len() as u64;
        let rest = if read <= BELIEVED {
            0
        } else if size >= read {
            size - read
        } else {
            return Err(io::Error::other("is longer than its stated size"));
        };
        Ok(Content {
            start: io::Cursor::new(start),
            rest: file.take(rest),
            failed: None,
        })
    }

    fn length(&self) -> u64 {
        self.start.get_ref().len() as u64 + self.rest.limit()
    }
}

impl Read for Content {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.start.read(buffer)?;
        if length > 0 || self.rest.limit() == 0 {
            return Ok(length);
        }
        let length = match self.rest.read(buffer) {
            Ok(0) => Err(io::Error::other("became shorter while it was copied")),
            other => other,
        };
        length.or_else(|error| {
            // Pads with zeros: otherwise the rest of the archive would be unreadable.
            self.failed.get_or_insert(error);
            let missing = usize::try_from(self.rest.limit()).unwrap_or(usize::MAX);
            let length = missing.min(buffer.len());
            buffer.get_mut(..length).unwrap_or_default().fill(0);
            self.rest.set_limit(self.rest.limit() - length as u64);
            Ok(length)
        })
    }
}

/// Sends bytes to the connection in frames.
struct Frames<'a> {
    sink: &'a Sink<Data>,
    frame: Vec<u8>,
}

impl Write for Frames<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.frame.extend_from_slice(bytes);
        if self.frame.len() >= FRAME {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.frame.is_empty() {
            return Ok(());
        }
        let data = Data {
            metadata: None,
            bytes: std::mem::take(&mut self.frame),
        };
        let sent = self.sink.send(data);
        sent.map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Files that are missing or incomplete in the archive.
#[derive(Default)]
struct Failures {
    named: Vec<String>,
    more: u64,
}

impl Failures {
    fn add(&mut self, path: &Path, error: &io::Error) {
        // Files may be removed during a copy.
        if error.kind() == io::ErrorKind::NotFound {
            return;
        }
        if self.named.len() < NAMED {
            self.named.push(format!("{}: {error}", path.display()));
        } else {
            self.more += 1;
        }
    }

    fn told(self) -> Flow {
        if self.named.is_empty() {
            return Ok(());
        }
        let mut text = format!("not copied: {}", self.named.join("; "));
        if self.more > 0 {
            text.push_str(&format!("; and {} more", self.more));
        }
        Err(Status::data_loss(text).into())
    }
}
