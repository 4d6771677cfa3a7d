//! Returns freed heap memory to the kernel.
//!
//! The C library keeps freed memory for reuse whenever a live allocation lies above it on the heap. Without this module
//! a daemon would keep its peak memory use for ever.
#![expect(
    unsafe_code,
    reason = "malloc_trim(3) and mallinfo(3), that neither rustix nor nix has"
)]

use std::io;
use std::thread;
use std::time::Duration;

use nix::libc;

/// Interval between two checks of the free memory.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Change of the free memory, in bytes, that makes a trim worthwhile.
const WORTH: usize = 1 << 20;
/// Stack of the thread, which only sleeps and checks.
const STACK: usize = 64 << 10;

/// Starts a thread that returns freed memory to the kernel, at the latest one [`INTERVAL`] after it was freed.
///
/// # Errors
/// The thread cannot be created.
pub fn keep_small() -> io::Result<()> {
    let looks = thread::Builder::new().name("memory".to_owned());
    let looks = looks.stack_size(STACK).spawn(|| {
        let mut last = 0;
        loop {
            thread::sleep(INTERVAL);
            let free = free();
            if free.abs_diff(last) >= WORTH {
                give_back();
                last = free;
            }
        }
    });
    looks.map(drop)
}

/// Freed bytes that the C library holds, returned to the kernel or not (mallinfo(3), `fordblks`).
fn free() -> usize {
    // SAFETY: mallinfo2 has no arguments and returns a struct of integers.
    unsafe { libc::mallinfo2() }.fordblks
}

/// Returns every page that holds only freed memory (malloc_trim(3)).
fn give_back() {
    // SAFETY: malloc_trim touches freed memory only, under the C library's own locks.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Resident memory of this process in bytes.
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    }

    #[test]
    fn freed_memory_below_a_live_allocation_is_returned_to_the_kernel() {
        let mut many: Vec<Box<[u8; 1000]>> = (0..32_000_u16)
            .map(|n| Box::new([n.to_ne_bytes()[0]; 1000]))
            .collect();
        let last = many.pop().unwrap();
        drop(many);
        let before = resident();
        assert!(free() > 16 << 20);
        give_back();
        assert!(resident() + (16 << 20) < before, "{before} {}", resident());
        assert_eq!(last[0], last[999]);
    }
}
