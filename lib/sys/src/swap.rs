//! Swap areas: their header (kernel: include/linux/swap.h, `union swap_header`), and enabling and disabling them.
#![expect(
    unsafe_code,
    reason = "swapon(2) and swapoff(2), that neither rustix nor nix has"
)]

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::libc;

/// The last bytes of the first page of an area.
pub const MAGIC: &[u8; 10] = b"SWAPSPACE2";
/// Offset of the header's fields: version, last page, number of bad pages (always 0), and uuid.
const FIELDS: usize = 1024;
const VERSION: u32 = 1;

/// Returns the first page of an area of `length` bytes. `page_size` is the kernel's page size.
///
/// # Errors
/// The area is shorter than ten pages, which the kernel refuses, or has more pages than the header can count.
pub fn header(length: u64, page_size: usize, uuid: [u8; 16]) -> io::Result<Vec<u8>> {
    let unusable = || io::Error::from(io::ErrorKind::InvalidInput);
    let pages = u64::try_from(page_size)
        .ok()
        .and_then(|size| length.checked_div(size))
        .filter(|pages| *pages >= 10)
        .ok_or_else(unusable)?;
    let last = u32::try_from(pages - 1).map_err(|_| unusable())?;
    let mut page = vec![0; FIELDS];
    page.extend(VERSION.to_ne_bytes());
    page.extend(last.to_ne_bytes());
    page.extend(0_u32.to_ne_bytes());
    page.extend(uuid);
    let end = page_size
        .checked_sub(MAGIC.len())
        .filter(|end| *end >= page.len())
        .ok_or_else(unusable)?;
    page.resize(end, 0);
    page.extend(MAGIC);
    Ok(page)
}

/// The uuid in a header, the first page of an area.
#[must_use]
pub fn uuid(page: &[u8]) -> Option<[u8; 16]> {
    let from = FIELDS + 3 * size_of::<u32>();
    let uuid = page.get(from..)?.first_chunk()?;
    page.ends_with(MAGIC).then_some(*uuid)
}

/// Enables swapping to a device that has a header.
///
/// # Errors
/// `EINVAL`: the device has no header; `EBUSY`: it is in use.
pub fn on(device: &Path) -> io::Result<()> {
    let device = CString::new(device.as_os_str().as_bytes())?;
    // SAFETY: the path is NUL-terminated and outlives the call, which only reads it.
    done(unsafe { libc::swapon(device.as_ptr(), 0) })
}

/// Disables swapping to a device, after its pages are read back into memory.
///
/// # Errors
/// `ENOMEM`: memory has no room for the pages; `EINVAL`: the device is not in use.
pub fn off(device: &Path) -> io::Result<()> {
    let device = CString::new(device.as_os_str().as_bytes())?;
    // SAFETY: the path is NUL-terminated and outlives the call, which only reads it.
    done(unsafe { libc::swapoff(device.as_ptr()) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_header_has_the_layout_of_the_kernel() {
        for size in [4096, 65536] {
            let length = u64::try_from(size).unwrap() * 25 + 7;
            let page = header(length, size, [9; 16]).unwrap();
            assert_eq!(page.len(), size);
            assert_eq!(page[1024..1028], 1_u32.to_ne_bytes());
            assert_eq!(page[1028..1032], 24_u32.to_ne_bytes());
            assert_eq!(page[1036..1052], [9; 16]);
            assert_eq!(uuid(&page), Some([9; 16]));
            assert_eq!(uuid(&page[..size - 1]), None);
            assert!(page.ends_with(MAGIC));
        }
        for (length, size) in [
            (4096 * 9, 4096),
            (u64::MAX, 4096),
            (1 << 20, 0),
            (1 << 20, 1024),
        ] {
            header(length, size, [0; 16]).unwrap_err();
        }
    }

    #[test]
    fn swap_calls_fail_on_a_file_without_a_swap_area() {
        let file = tempfile::NamedTempFile::new().unwrap();
        on(file.path()).unwrap_err();
        off(file.path()).unwrap_err();
        on(Path::new("/no\0where")).unwrap_err();
    }
}
