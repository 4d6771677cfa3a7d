//! Read: streams the content of a file.

use std::io::{self, Read as _};

use corten_api::common::Data;
use corten_api::machine as api;
use corten_base::regular;

use super::super::forwarded;
use super::{absolute, refused};
use crate::stream::{FRAME, Flow, Sink, Stop};

/// Streams a file's current bytes. With `withheld`, the file must hold no secrets.
pub(crate) fn read(request: &api::ReadRequest, withheld: bool, sink: &Sink<Data>) -> Flow {
    let path = absolute(&request.path);
    let refused = |error: &io::Error| Stop::from(refused("path", &path, error));
    let mut file = regular::open(&path, true).map_err(|error| refused(&error))?;
    if withheld {
        forwarded::check_file(&file)?;
    }
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
