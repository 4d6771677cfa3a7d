//! Tail: the last lines of a log, and the lines that follow.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::thread;
use std::time::Duration;

use corten_api::common::Data;
use corten_base::regular;
use tonic::Status;

use crate::stream::{FRAME, Flow, Sink};

/// Polling interval of a followed log.
const LOOK: Duration = Duration::from_millis(500);

/// Streams the last `lines` lines of a log (negative: all), and with `follow` what is added later, until the caller
/// disconnects. A log that became shorter is read from its start.
///
/// # Errors
/// INTERNAL if `path` is not a regular file, or is unreadable; the text names it.
pub fn tail(path: &Path, lines: i32, follow: bool, sink: &Sink<Data>) -> Flow {
    let failed = |error: io::Error| Status::internal(format!("{}: {error}", path.display()));
    let mut file = regular::open(path, false).map_err(failed)?;
    let mut at = 0;
    if let Ok(lines) = usize::try_from(lines) {
        at = start_of_last(&mut file, lines).map_err(failed)?;
    }
    loop {
        let length = file.metadata().map_err(failed)?.len();
        // The log was rotated.
        if length < at {
            at = 0;
        }
        file.seek(SeekFrom::Start(at)).map_err(failed)?;
        loop {
            sink.check()?;
            let mut bytes = vec![0; FRAME];
            let read = file.read(&mut bytes).map_err(failed)?;
            if read == 0 {
                break;
            }
            bytes.truncate(read);
            at = at.saturating_add(read as u64);
            let metadata = None;
            sink.send(Data { metadata, bytes })?;
        }
        if !follow {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
}

/// Offset of the last `lines` lines, searched from the end.
fn start_of_last(file: &mut File, lines: usize) -> io::Result<u64> {
    let mut end = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(end);
    }
    // The final line feed ends the last line.
    let mut left = lines;
    let mut is_last = true;
    while end > 0 {
        let begin = end.saturating_sub(FRAME as u64);
        let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or(FRAME)];
        file.seek(SeekFrom::Start(begin))?;
        file.read_exact(&mut bytes)?;
        for (place, byte) in bytes.iter().enumerate().rev() {
            if *byte == b'\n' && !std::mem::take(&mut is_last) {
                left -= 1;
                if left == 0 {
                    return Ok(begin + place as u64 + 1);
                }
            }
            is_last = false;
        }
        end = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_last_lines_are_found_from_the_end() {
        let mut file = tempfile::tempfile().unwrap();
        let long = "x".repeat(FRAME);
        write!(file, "one\n{long}\nthree\nfour").unwrap();
        let mut tail = |lines| {
            let at = start_of_last(&mut file, lines).unwrap();
            let mut text = String::new();
            file.seek(SeekFrom::Start(at)).unwrap();
            file.read_to_string(&mut text).unwrap();
            text
        };
        assert_eq!(tail(0), "");
        assert_eq!(tail(1), "four");
        assert_eq!(tail(2), "three\nfour");
        assert_eq!(tail(3), format!("{long}\nthree\nfour"));
        assert!(tail(4).starts_with("one") && tail(9).starts_with("one"));
        let mut ended = tempfile::tempfile().unwrap();
        write!(ended, "a\nb\n").unwrap();
        assert_eq!(start_of_last(&mut ended, 1).unwrap(), 2);
    }
}
