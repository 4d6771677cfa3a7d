//! Returns memory that a daemon no longer uses to the kernel.
//!
//! The C library keeps freed memory whenever a live allocation lies above it on the heap. The kernel keeps code mapped
//! that only the start needs. Without this module a daemon would keep its peak memory use for ever.
#![expect(
    unsafe_code,
    reason = "mallopt(3), malloc_trim(3), mallinfo(3), dl_iterate_phdr(3) and process_madvise(2), that neither rustix nor \
              nix has"
)]

use std::ffi::{c_int, c_void};
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::thread;
use std::time::Duration;

use nix::libc;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Interval between two checks of the free memory.
pub const INTERVAL: Duration = Duration::from_secs(10);
/// Change of the free memory, in bytes, that makes a trim worthwhile.
const WORTH: usize = 1 << 20;
/// Stack of the thread, which only sleeps and checks.
const STACK: usize = 64 << 10;

/// Processor time after which a process may have used code that it no longer needs.
const WORK: Duration = Duration::from_millis(20);
/// A process has become quiet when its last interval has at most this part of its work since code was unmapped. A steady
/// process unmaps its code every hundred seconds.
const QUIET: u32 = 10;

/// Makes all threads of this process allocate from one heap, and starts a thread that returns unused memory to the
/// kernel. Freed memory returns at the latest one [`INTERVAL`] later. Unused code returns when the process has become
/// quiet.
///
/// # Errors
/// The thread cannot be created.
pub fn keep_small() -> io::Result<()> {
    use_one_heap();
    let looks = thread::Builder::new().name("memory".to_owned());
    let looks = looks.stack_size(STACK).spawn(|| {
        let mut last_free = 0;
        let (mut last_work, mut unmapped_at) = (Duration::ZERO, Duration::ZERO);
        loop {
            thread::sleep(INTERVAL);
            let (free, work) = (free(), processor_time());
            let is_freed = free.abs_diff(last_free) >= WORTH;
            let is_quiet = is_quiet(
                work.saturating_sub(last_work),
                work.saturating_sub(unmapped_at),
            );
            if is_freed {
                give_back();
                last_free = free;
            }
            if is_freed || is_quiet {
                unmap_code();
                unmapped_at = work;
            }
            last_work = work;
        }
    });
    looks.map(drop)
}

/// Whether to unmap code after these processor times: of the last interval, and since code was last unmapped. A slow
/// machine takes longer for the same work, so only their ratio counts.
fn is_quiet(last: Duration, since: Duration) -> bool {
    since >= WORK && last.saturating_mul(QUIET) <= since
}

/// Processor time of all threads of this process.
fn processor_time() -> Duration {
    crate::clock::shown(nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// Makes every thread allocate from the first heap (mallopt(3), `M_ARENA_MAX`). The C library gives each thread a heap of
/// its own otherwise, and what is freed on one is not reused on another.
fn use_one_heap() {
    // A refusal costs memory alone.
    // SAFETY: mallopt changes a parameter of the C library under its own lock.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
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

/// Unmaps the code and constants of the program and its libraries. Those in use return by page faults, from the page
/// cache; the kernel may reclaim the others.
fn unmap_code() {
    advise_code(libc::MADV_DONTNEED);
}

/// Returns the pages at these addresses of a process to the kernel (process_madvise(2), `MADV_PAGEOUT`), written to their
/// file or to swap before. Pages that a further process has mapped stay.
///
/// # Errors
/// The kernel's error; `ESRCH` if the process has ended.
pub fn page_out(process: i32, addresses: &Range<u64>) -> io::Result<()> {
    let process = Pid::from_raw(process).ok_or(Errno::SRCH)?;
    let process = pidfd_open(process, PidfdFlags::empty())?;
    let length = addresses.end.saturating_sub(addresses.start);
    let (Ok(begin), Ok(length)) = (usize::try_from(addresses.start), usize::try_from(length))
    else {
        return Err(Errno::INVAL.into());
    };
    let vector = libc::iovec {
        iov_base: std::ptr::without_provenance_mut(begin),
        iov_len: length,
    };
    // SAFETY: the kernel reads one vector; this advice changes no content of memory.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_raw_fd(),
            &raw const vector,
            1_usize,
            libc::MADV_PAGEOUT,
            0_u32,
        )
    };
    match done {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Advises the kernel (madvise(2)) on each read-only segment of the program and its libraries. An error leaves the
/// segment as it is.
fn advise_code(mut advice: c_int) {
    // SAFETY: `advise_object` is called before this returns, with a pointer to `advice`.
    unsafe { libc::dl_iterate_phdr(Some(advise_object), (&raw mut advice).cast()) };
}

/// Advises the kernel on one object. `advice` points to the advice.
extern "C" fn advise_object(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    advice: *mut c_void,
) -> c_int {
    // SAFETY: the C library calls this with a valid description.
    let object = unsafe { &*object };
    // SAFETY: this is the pointer that `advise_code` gave.
    let advice = unsafe { *advice.cast::<c_int>() };
    // SAFETY: the program headers of a loaded object stay mapped and unchanged.
    let segments =
        unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let page = rustix::param::page_size() as u64;
    for segment in segments {
        if segment.p_type != libc::PT_LOAD || segment.p_flags & libc::PF_W != 0 {
            continue;
        }
        let begin = object.dlpi_addr.wrapping_add(segment.p_vaddr);
        let offset = begin % page;
        let (Ok(begin), Ok(length)) = (
            usize::try_from(begin - offset),
            usize::try_from(segment.p_memsz.saturating_add(offset)),
        ) else {
            continue;
        };
        // SAFETY: no advice that this module gives changes the contents of a mapping of a file that is never written.
        unsafe { libc::madvise(std::ptr::without_provenance_mut(begin), length, advice) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One of the numbers of pages in `/proc/self/statm` (proc_pid_statm(5)), in bytes.
    fn statm(column: usize) -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split(' ').nth(column).unwrap().parse().unwrap();
        pages * 4096
    }

    /// Resident memory of this process in bytes.
    fn resident() -> usize {
        statm(1)
    }

    /// Resident memory of this process in bytes, of files.
    fn of_files() -> usize {
        statm(2)
    }

    #[test]
    fn code_is_unmapped_when_the_process_has_become_quiet() {
        let ms = Duration::from_millis;
        // A start, its end, and a steady process.
        assert!(!is_quiet(ms(9000), ms(9000)));
        assert!(is_quiet(ms(200), ms(9200)));
        assert!(!is_quiet(ms(200), ms(1800)));
        assert!(is_quiet(ms(200), ms(2000)));
        assert!(!is_quiet(ms(0), ms(5)));
    }

    #[test]
    fn code_that_nothing_uses_is_unmapped() {
        advise_code(libc::MADV_POPULATE_READ);
        let before = of_files();
        unmap_code();
        let after = of_files();
        assert!(after < before / 2, "{before} {after}");
    }

    #[test]
    fn pages_of_a_file_leave_memory() {
        const LENGTH: usize = 1 << 20;
        // The end of this program has names for a debugger, which no process maps.
        let program = std::fs::File::open("/proc/self/exe").unwrap();
        // The linker has just written it.
        program.sync_data().unwrap();
        let size = usize::try_from(program.metadata().unwrap().len()).unwrap();
        let offset = i64::try_from((size - LENGTH) & !4095).unwrap();
        // SAFETY: a new mapping, which only this test uses.
        let map = unsafe {
            let (read, private) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_POPULATE);
            let fd = program.as_raw_fd();
            libc::mmap(std::ptr::null_mut(), LENGTH, read, private, fd, offset)
        };
        assert_ne!(map, libc::MAP_FAILED);
        let pages = || {
            let mut pages = [0_u8; LENGTH / 4096];
            // SAFETY: one byte for each page of the mapping.
            assert_eq!(unsafe { libc::mincore(map, LENGTH, pages.as_mut_ptr()) }, 0);
            pages.iter().filter(|page| **page & 1 == 1).count()
        };
        let before = pages();
        let begin = u64::try_from(map.addr()).unwrap();
        let process = i32::try_from(std::process::id()).unwrap();
        page_out(process, &(begin..begin + LENGTH as u64)).unwrap();
        let after = pages();
        assert!(after < before / 2, "{before} {after}");
        // SAFETY: the mapping of above.
        unsafe { libc::munmap(map, LENGTH) };
        page_out(i32::MAX, &(0..0)).unwrap_err();
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
