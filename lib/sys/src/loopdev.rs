//! Loop devices: a file as a block device (kernel: include/uapi/linux/loop.h).
#![expect(unsafe_code, reason = "two ioctls that rustix has no wrapper for")]

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};

const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;
const LO_FLAGS_READ_ONLY: u32 = 1;
/// The device detaches itself when its last user closes it.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// Another program may take the free device between the query and the configuration.
const ATTEMPTS: usize = 8;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `LOOP_CTL_GET_FREE`: the answer is the return value.
struct GetFree;

// SAFETY: the request takes no argument and writes no memory; its number is the kernel's.
unsafe impl Ioctl for GetFree {
    type Output = i32;
    const IS_MUTATING: bool = false;
    fn opcode(&self) -> Opcode {
        LOOP_CTL_GET_FREE
    }
    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }
    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

/// Attaches `image` read-only and returns the device. Hold the returned file until the device is mounted: it detaches
/// itself with its last user.
///
/// # Errors
/// The loop driver is missing, no device is free, or the image cannot be read.
pub fn attach_read_only(image: &Path) -> io::Result<(PathBuf, File)> {
    let backing = File::open(image)?;
    let control = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/loop-control")?;
    let mut last = io::Error::from(io::ErrorKind::ResourceBusy);
    for _ in 0..ATTEMPTS {
        // SAFETY: GetFree describes the request faithfully, and the descriptor is open.
        let number = unsafe { ioctl::ioctl(&control, GetFree) }?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        // Opened read-only: a hardened kernel refuses to mount a device that is open for writing.
        let device = File::open(&path)?;
        match configure(&device, &backing) {
            Ok(()) => return Ok((path, device)),
            Err(error) => last = error,
        }
        if last.raw_os_error() != Some(rustix::io::Errno::BUSY.raw_os_error()) {
            break;
        }
    }
    Err(last)
}

fn configure(device: &File, backing: &File) -> io::Result<()> {
    let config = LoopConfig {
        fd: u32::try_from(backing.as_raw_fd()).map_err(io::Error::other)?,
        block_size: 0,
        info: LoopInfo {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        },
        reserved: [0; 8],
    };
    // SAFETY: LOOP_CONFIGURE reads one struct loop_config, whose layout LoopConfig repeats.
    let request = unsafe { ioctl::Setter::<LOOP_CONFIGURE, LoopConfig>::new(config) };
    // SAFETY: the request is right for a loop device, and both descriptors are open.
    Ok(unsafe { ioctl::ioctl(device, request) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_have_the_kernels_sizes() {
        assert_eq!(size_of::<LoopInfo>(), 232);
        assert_eq!(size_of::<LoopConfig>(), 304);
    }

    #[test]
    fn a_missing_image_is_reported_as_such() {
        let error = attach_read_only(Path::new("/no/such/image")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
