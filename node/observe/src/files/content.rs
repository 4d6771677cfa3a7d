//! Read: streams the content of a file.

use std::fs::File;
use std::io::{self, Read as _};

use corten_api::common::Data;
use corten_api::machine as api;
use corten_base::regular;
use tonic::Status;

use super::{absolute, refused};
use crate::stream::{FRAME, Flow, Sink, Stop};

/// Streams a regular file's current bytes. `check` may refuse the open file before anything of it is read.
///
/// # Errors
/// That of `check`; INVALID_ARGUMENT for anything but a regular file; those of the file system (NOT_FOUND and others).
/// The text begins with `path`.
pub fn read(
    request: &api::ReadRequest,
    check: impl FnOnce(&File) -> Result<(), Status>,
    sink: &Sink<Data>,
) -> Flow {
    let path = absolute(&request.path);
    let refused = |error: &io::Error| Stop::from(refused("path", &path, error));
    let mut file = regular::open(&path, true).map_err(|error| refused(&error))?;
    check(&file)?;
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
