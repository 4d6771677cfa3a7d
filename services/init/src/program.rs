//! The check of the program that runs next.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use corten_sys::mount;

use crate::failure::{Failure, REWRITE};

/// Checks that the next program is readable, so that damage is reported here instead of crashing process 1. The data
/// stays in the page cache, so the program does not start slower. Two threads share the work, because decompression takes
/// the time.
pub fn check(program: &Path) -> Result<(), Failure> {
    read(program).map_err(|error| {
        let text = format!("cannot read {}: {error}", program.display());
        Failure::new(text, REWRITE)
    })
}

fn read(program: &Path) -> io::Result<()> {
    let file = File::open(program)?;
    let size = file.metadata()?.len();
    if size == 0 {
        return Err(io::Error::other("it is empty"));
    }
    let block = mount::block_size(&file)?;
    let next = AtomicU64::new(0);
    let (first, second) = thread::scope(|scope| {
        let second = scope.spawn(|| read_blocks(&file, size, block, &next));
        (read_blocks(&file, size, block, &next), second.join())
    });
    first.and(second.unwrap_or_else(|_panic| Err(io::Error::other("the reader ended early"))))
}

/// Takes one block of the file after the other from `next`, and reads its first byte: squashfs then decompresses all of
/// the block, into the page cache.
fn read_blocks(file: &File, size: u64, block: u64, next: &AtomicU64) -> io::Result<()> {
    loop {
        let start = next.fetch_add(block, Ordering::Relaxed);
        if start >= size {
            return Ok(());
        }
        file.read_exact_at(&mut [0], start)?;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn program(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn every_block_of_the_program_is_read() {
        let program = program(&[0; 10]);
        let read = |size, block| read_blocks(program.as_file(), size, block, &AtomicU64::new(0));
        read(10, 4).unwrap();
        read(10, 1 << 20).unwrap();
        // The fourth block is behind the end of the file.
        let error = read(13, 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        check(program.path()).unwrap();
    }

    #[test]
    fn empty_program_is_refused() {
        let failure = check(program(&[]).path()).unwrap_err().to_string();
        assert!(failure.contains("it is empty"), "{failure}");
    }
}
