//! The device mapper: block devices that a table maps to another device (kernel: include/uapi/linux/dm-ioctl.h).
#![expect(unsafe_code, reason = "ioctls that rustix has no wrapper for")]

use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::PathBuf;

use rustix::ioctl::{self, Ioctl, IoctlOutput, Opcode};
use zeroize::Zeroizing;

const CONTROL: &str = "/dev/mapper/control";

/// `struct dm_ioctl`: its size, and the offsets of the fields in use.
const HEADER: usize = 312;
const DATA_SIZE: usize = 12;
const DATA_START: usize = 16;
const TARGET_COUNT: usize = 20;
const FLAGS: usize = 28;
const DEVICE: usize = 40;
const NAME: usize = 48;
const NAME_LENGTH: usize = 128;
const UUID: usize = 176;
const UUID_LENGTH: usize = 129;

/// `struct dm_target_spec`; the parameters and a NUL follow it.
const TARGET: usize = 40;
const TARGET_TYPE_LENGTH: usize = 16;
/// Alignment of a target's length.
const TARGET_ALIGNMENT: usize = 8;

/// Version of the interface; the kernel requires the same major number.
const VERSION: [u32; 3] = [4, 0, 0];
/// Makes the kernel wipe its copies of the message.
const SECURE_DATA: u32 = 1 << 15;

/// Size of the sectors in tables in bytes, independent of the device's sector size.
pub const SECTOR: u64 = 512;

/// Commands of the device mapper, with the numbers of `DM_DEV_CREATE` and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Command {
    Create = 3,
    Remove = 4,
    /// Without the suspend flag this command resumes.
    Suspend = 6,
    Load = 9,
}

impl Command {
    /// `_IOWR(0xfd, command, struct dm_ioctl)`.
    const fn opcode(self) -> Opcode {
        ioctl::opcode::from_components(ioctl::Direction::ReadWrite, 0xfd, self as u8, HEADER)
    }
}

/// The one target that covers a whole mapped device.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// Length in sectors.
    pub sectors: u64,
    /// The kernel's name of the target: `crypt`.
    pub kind: &'a str,
    /// Parameters of the target, which may hold a secret.
    pub parameters: &'a str,
}

/// Creates a mapped device and returns its node in /dev, which exists by then. A failed creation leaves no device.
///
/// # Errors
/// `EBUSY`: the name or uuid is taken. `EINVAL`: the kernel does not know the target, or refuses its parameters.
/// `InvalidInput`: the name or uuid is too long.
pub fn create(name: &str, uuid: &str, target: Target<'_>) -> io::Result<PathBuf> {
    let control = control()?;
    let made = request(&control, Command::Create, name, uuid, &[])?;
    let started = target_bytes(target)
        .and_then(|table| request(&control, Command::Load, name, "", &table))
        .and_then(|_| request(&control, Command::Suspend, name, "", &[]));
    if let Err(error) = started {
        let _ = request(&control, Command::Remove, name, "", &[]);
        return Err(error);
    }
    Ok(PathBuf::from(format!("/dev/dm-{}", minor(made))))
}

/// Removes a mapped device.
///
/// # Errors
/// `ENXIO`: the name does not exist. `EBUSY`: the device is in use.
pub fn remove(name: &str) -> io::Result<()> {
    request(&control()?, Command::Remove, name, "", &[]).map(drop)
}

fn control() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(CONTROL)
}

/// Sends a command and returns the device number in the kernel's packed form.
fn request(
    control: &File,
    command: Command,
    name: &str,
    uuid: &str,
    table: &[u8],
) -> io::Result<u64> {
    let mut message = message(name, uuid, table)?;
    let request = Request {
        opcode: command.opcode(),
        message: &mut message,
    };
    // SAFETY: command and descriptor are those of the device mapper, and the message states its own length.
    unsafe { ioctl::ioctl(control, request) }?;
    let device = message.get(DEVICE..).and_then(|rest| rest.first_chunk());
    Ok(device.copied().map_or(0, u64::from_ne_bytes))
}

/// `struct dm_ioctl`, followed by the table.
fn message(name: &str, uuid: &str, table: &[u8]) -> io::Result<Zeroizing<Vec<u8>>> {
    // One byte stays 0 as the terminator.
    if name.is_empty() || name.len() >= NAME_LENGTH || uuid.len() >= UUID_LENGTH {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let length = u32::try_from(HEADER + table.len()).map_err(too_large)?;
    let mut bytes = Zeroizing::new(vec![0; HEADER + table.len()]);
    for (place, number) in VERSION.into_iter().enumerate() {
        put(&mut bytes, 4 * place, &number.to_ne_bytes());
    }
    put(&mut bytes, DATA_SIZE, &length.to_ne_bytes());
    put(&mut bytes, DATA_START, &312_u32.to_ne_bytes());
    put(
        &mut bytes,
        TARGET_COUNT,
        &u32::from(!table.is_empty()).to_ne_bytes(),
    );
    put(&mut bytes, FLAGS, &SECURE_DATA.to_ne_bytes());
    put(&mut bytes, NAME, name.as_bytes());
    put(&mut bytes, UUID, uuid.as_bytes());
    put(&mut bytes, HEADER, table);
    Ok(bytes)
}

/// A table of one target, which starts at sector 0.
fn target_bytes(target: Target<'_>) -> io::Result<Zeroizing<Vec<u8>>> {
    let Target {
        sectors,
        kind,
        parameters,
    } = target;
    if kind.len() >= TARGET_TYPE_LENGTH || parameters.contains('\0') {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let length = (TARGET + parameters.len() + 1).next_multiple_of(TARGET_ALIGNMENT);
    let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let next = u32::try_from(length).map_err(too_large)?;
    let mut bytes = Zeroizing::new(vec![0; length]);
    put(&mut bytes, 8, &sectors.to_ne_bytes());
    put(&mut bytes, 20, &next.to_ne_bytes());
    put(&mut bytes, 24, kind.as_bytes());
    put(&mut bytes, TARGET, parameters.as_bytes());
    Ok(bytes)
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(field) {
        *to = *from;
    }
}

/// The minor number of a packed device number (`huge_encode_dev`).
fn minor(device: u64) -> u64 {
    (device & 0xff) | ((device >> 12) & 0x000f_ff00)
}

/// A command and its message, which the kernel reads and writes.
struct Request<'a> {
    opcode: Opcode,
    message: &'a mut [u8],
}

// SAFETY: the opcode is a device mapper command. Such a command reads and writes `data_size` bytes, which is the length
// of the slice.
unsafe impl Ioctl for Request<'_> {
    type Output = ();
    const IS_MUTATING: bool = true;
    fn opcode(&self) -> Opcode {
        self.opcode
    }
    fn as_ptr(&mut self) -> *mut c_void {
        self.message.as_mut_ptr().cast()
    }
    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_the_kernels_numbers() {
        assert_eq!(Command::Create.opcode(), 0xc138_fd03);
        assert_eq!(Command::Remove.opcode(), 0xc138_fd04);
        assert_eq!(Command::Suspend.opcode(), 0xc138_fd06);
        assert_eq!(Command::Load.opcode(), 0xc138_fd09);
    }

    #[test]
    fn message_has_the_layout_of_the_kernel() {
        let target = Target {
            sectors: 8,
            kind: "crypt",
            parameters: "a b",
        };
        let table = target_bytes(target).unwrap();
        assert_eq!(table.len(), 48);
        assert_eq!(table[8..16], 8_u64.to_ne_bytes());
        assert_eq!(table[20..24], 48_u32.to_ne_bytes());
        assert_eq!(&table[24..30], b"crypt\0");
        assert_eq!(&table[40..], b"a b\0\0\0\0\0");
        let bytes = message("luks2-STATE", "CRYPT-x", &table).unwrap();
        assert_eq!(bytes.len(), 360);
        assert_eq!(bytes[0..4], 4_u32.to_ne_bytes());
        assert_eq!(bytes[12..16], 360_u32.to_ne_bytes());
        assert_eq!(bytes[16..20], 312_u32.to_ne_bytes());
        assert_eq!(bytes[20..24], 1_u32.to_ne_bytes());
        assert_eq!(bytes[28..32], 0x8000_u32.to_ne_bytes());
        assert_eq!(&bytes[48..60], b"luks2-STATE\0");
        assert_eq!(&bytes[176..184], b"CRYPT-x\0");
        assert_eq!(bytes[312..], **table);
    }

    #[test]
    fn strings_too_long_for_the_kernel_are_refused() {
        message(&"n".repeat(127), &"u".repeat(128), &[]).unwrap();
        message(&"n".repeat(128), "", &[]).unwrap_err();
        message("n", &"u".repeat(129), &[]).unwrap_err();
        message("", "", &[]).unwrap_err();
        let with = |kind, parameters| {
            let sectors = 1;
            target_bytes(Target {
                sectors,
                kind,
                parameters,
            })
        };
        with("a-target-too-long", "").unwrap_err();
        with("crypt", "a\0b").unwrap_err();
    }

    #[test]
    fn a_minor_number_is_unpacked() {
        assert_eq!(minor(0xfd00), 0);
        assert_eq!(minor(0xfd07), 7);
        // The packed form has minor bits above the low 8 beyond the major number.
        assert_eq!(minor((1 << 20) | 0xfd01), 0x101);
    }
}
