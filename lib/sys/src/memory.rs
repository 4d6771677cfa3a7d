//! Memory that was freed, given back to the kernel.
//!
//! The C library keeps what a program frees for the program's next need, wherever something that is still in use
//! lies above it: after an hour of many calls a daemon would go on having what it needed in the busiest moment.
#![expect(
    unsafe_code,
    reason = "malloc_trim(3) and mallinfo(3), that neither rustix nor nix has"
)]

use std::io;
use std::thread;
use std::time::Duration;

use nix::libc;

/// Between looks at what is free.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// So much more or less than at the last time is worth the work, in bytes.
const WORTH: usize = 1 << 20;
/// A thread that only sleeps and looks.
const STACK: usize = 64 << 10;

/// From now on gives back what the program freed, within [`INTERVAL`] and a moment, in a thread of its own.
///
/// # Errors
/// There can be no other thread.
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

/// Bytes the program freed that the C library keeps, given back or not (mallinfo(3), `fordblks`).
fn free() -> usize {
    // SAFETY: it takes nothing, and answers with numbers.
    unsafe { libc::mallinfo2() }.fordblks
}

/// Gives back every page that holds nothing but freed memory (malloc_trim(3)).
fn give_back() {
    // SAFETY: it touches freed memory only, under the C library's own locks.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of this process in memory.
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
