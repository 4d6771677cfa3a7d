//! Read: what is in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use corten_api::common::Data;
use corten_api::machine as api;
use rustix::fs::{FileType, Mode, OFlags};

use super::{absolute, refused};
use crate::server::stream::{FRAME, Flow, Sink, Stop};

/// Streams a file's bytes as they are now, to its end.
pub(in crate::server) fn read(request: &api::ReadRequest, sink: &Sink<Data>) -> Flow {
    let path = absolute(&request.path);
    let refused = |error: &io::Error| Stop::from(refused("path", &path, error));
    let mut file = open(&path, true).map_err(|error| refused(&error))?;
    let mut buffer = vec![0; FRAME];
    loop {
        let length = match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(refused(&error)),
        };
        sink.send(Data {
            metadata: None,
            bytes: buffer.get(..length).unwrap_or_default().to_vec(),
        })?;
    }
}

/// Opens a regular file, and nothing else: opening a pipe would wait, and opening a device does things (a
/// watchdog starts). Reading it does not wait either: some of the kernel's own files would, for ever.
pub(super) fn open(path: &Path, follow: bool) -> io::Result<File> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, !follow);
    // A name only, with no effect on what it names.
    let name = rustix::fs::open(path, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&name)?.st_mode);
    if kind != FileType::RegularFile {
        let text = "must be a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or_default())
        .open(format!("/proc/self/fd/{}", name.as_raw_fd()))
}
