//! GRUB, for firmware without EFI: its code on a disk, its configuration, and the counter of a trial.
//!
//! GRUB opens the unified kernel image as a disk, and reads kernel and initramfs out of it by sector. The names of the
//! files say whether an entry is good, bad or on trial, as for systemd-boot.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;

use object::read::pe::PeFile64;
use object::read::{ReadCache, ReadRef as _};

use crate::esp::{Content, FatFile};
use crate::loader::by_version;
use crate::{Entry, IMAGES, Installed, uki};

/// The directory of GRUB's files on the EFI partition.
pub const DIRECTORY: &str = "grub";
/// GRUB's configuration in that directory.
///
/// It lists the entries in the order of systemd-boot ([`crate::first`]), because GRUB cannot compare versions.
pub const CONFIG: &str = "grub.cfg";
/// The block with the counter in that directory.
///
/// GRUB cannot rename a file, so it counts the starts of a trial in this block of one sector, which it overwrites in
/// place. Without a valid block, an entry on trial counts as bad.
pub const BLOCK: &str = "grubenv";
/// Kernel parameter with the file name of the started entry.
pub const PARAMETER: &str = "corten.entry";
/// Section of the unified kernel image with GRUB's code.
pub const SECTION: &str = ".grub";

const SECTOR: usize = 512;
/// Length of the boot code in the first sector of a disk, in bytes.
pub const BOOT_CODE: usize = 440;
/// Offset of the core image's sector number in the boot code.
const KERNEL_SECTOR: usize = 0x5c;
/// Offset of the block list in the core image's first sector: the number of its second sector.
const BLOCK_LIST: usize = SECTOR - 12;
/// Largest core image, in bytes: the size of the partition.
const LARGEST_CORE: usize = 1 << 20;
/// Longest command line of an image, in bytes. The kernel takes 2047; GRUB adds two parameters.
const LONGEST_CMDLINE: usize = 1880;

/// The code that the firmware starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    /// Start of the disk's first sector, [`BOOT_CODE`] bytes.
    mbr: Vec<u8>,
    /// The core image, in whole sectors.
    core: Vec<u8>,
}

impl Code {
    /// Code with this boot code and core image; `None` if their lengths are wrong.
    #[must_use]
    pub fn new(mbr: Vec<u8>, core: Vec<u8>) -> Option<Code> {
        let is_core =
            core.len().is_multiple_of(SECTOR) && (2 * SECTOR..=LARGEST_CORE).contains(&core.len());
        (mbr.len() == BOOT_CODE && is_core).then_some(Code { mbr, core })
    }

    /// The code in a unified kernel image; `None` if the image has none.
    ///
    /// # Errors
    /// The file cannot be read, or is no such image.
    pub fn of(image: &Path) -> Result<Option<Code>, Unfit> {
        let cache = ReadCache::new(File::open(image)?);
        let file = parse(&cache)?;
        let Some((at, size)) = uki::place(&file, SECTION) else {
            return Ok(None);
        };
        let broken = || Unfit::Image("its GRUB is malformed".to_owned());
        if size > (LARGEST_CORE + SECTOR) as u64 {
            return Err(broken());
        }
        let bytes = cache.read_bytes_at(at, size).map_err(|()| broken())?;
        let (first, core) = bytes.split_at_checked(SECTOR).ok_or_else(broken)?;
        let mbr = first.get(..BOOT_CODE).unwrap_or_default();
        let code = Code::new(mbr.to_vec(), core.to_vec());
        code.map(Some).ok_or_else(broken)
    }

    /// The content of the image's section: the first sector, then the core image.
    #[must_use]
    pub fn section(&self) -> Vec<u8> {
        let mut bytes = self.mbr.clone();
        bytes.resize(SECTOR, 0);
        bytes.extend(&self.core);
        bytes
    }

    /// Boot code and core image for a disk whose BIOS partition starts at this sector of 512 bytes.
    #[must_use]
    pub fn placed(&self, sector: u64) -> (Vec<u8>, Vec<u8>) {
        let (mut mbr, mut core) = (self.mbr.clone(), self.core.clone());
        for (bytes, at, number) in [
            (&mut mbr, KERNEL_SECTOR, sector),
            (&mut core, BLOCK_LIST, sector.saturating_add(1)),
        ] {
            if let Some(field) = bytes.get_mut(at..at + 8) {
                field.copy_from_slice(&number.to_le_bytes());
            }
        }
        (mbr, core)
    }
}

/// Reason why GRUB cannot start an image.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The image is not made for GRUB.
    #[error("GRUB cannot start the image: {0}")]
    Image(String),
}

/// Facts about an image that GRUB needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The kernel command line.
    cmdline: String,
    /// `offset+length` of the kernel in sectors.
    linux: String,
    /// `offset+length` of the initramfs in sectors.
    initrd: String,
}

impl Start {
    /// Reads the section table and the command line of an image.
    ///
    /// # Errors
    /// The file cannot be read, or GRUB cannot start it.
    pub fn of(image: &Path) -> Result<Start, Unfit> {
        let cache = ReadCache::new(File::open(image)?);
        let file = parse(&cache)?;
        let place = |name: &str| {
            uki::place(&file, name).ok_or_else(|| Unfit::Image(format!("it has no section {name}")))
        };
        let (at, size) = place(".cmdline")?;
        if size > LONGEST_CMDLINE as u64 {
            return Err(Unfit::Image(format!(
                "its kernel command line has {size} bytes, more than {LONGEST_CMDLINE}; remove kernel arguments"
            )));
        }
        let text = cache.read_bytes_at(at, size).unwrap_or_default();
        let cmdline = String::from_utf8(text.to_vec()).map_err(|_| {
            Unfit::Image("its kernel command line is not UTF-8; change the kernel arguments".into())
        })?;
        let is_bad = |c: &char| "'\"\\".contains(*c) || c.is_control();
        if let Some(bad) = cmdline.chars().find(is_bad) {
            return Err(Unfit::Image(format!(
                "GRUB cannot pass {bad:?} in the kernel command line {cmdline:?}; remove quotes and backslashes from \
                 the kernel arguments"
            )));
        }
        let list = |name: &str| sectors(name, place(name)?);
        let (linux, initrd) = (list(".linux")?, list(".initrd")?);
        Ok(Start {
            cmdline,
            linux,
            initrd,
        })
    }

    #[cfg(test)]
    pub(crate) fn sample(linux: &str) -> Start {
        Start {
            cmdline: "quiet".to_owned(),
            linux: linux.to_owned(),
            initrd: "1+1".to_owned(),
        }
    }

    /// Script that starts the image in the file `$1`. `more` is a further kernel parameter.
    fn script(&self, more: &str) -> String {
        let arguments = self.cmdline.split_whitespace();
        let arguments: String = arguments.map(|argument| format!(" '{argument}'")).collect();
        let Start { linux, initrd, .. } = self;
        format!(
            "  loopback uki \"$1\"\n  if linux (uki){linux}{arguments}{more}; then\n    \
             if initrd (uki){initrd}; then\n      boot\n    fi\n  fi\n  loopback -d uki\n"
        )
    }
}

fn parse(cache: &ReadCache<File>) -> Result<PeFile64<'_, &ReadCache<File>>, Unfit> {
    PeFile64::parse(cache).map_err(|_| Unfit::Image("it is not an EFI program".to_owned()))
}

/// A section as a block list. It starts at a sector, and zeros fill its last one.
fn sectors(name: &str, (at, size): (u64, u64)) -> Result<String, Unfit> {
    let sector = SECTOR as u64;
    if !at.is_multiple_of(sector) {
        return Err(Unfit::Image(format!(
            "{name} does not start on a sector; build it with mkimage"
        )));
    }
    Ok(format!("{}+{}", at / sector, size.div_ceil(sector)))
}

/// A version in the configuration.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The version, and its entry.
    pub installed: Installed,
    /// Facts about its image that GRUB needs.
    pub start: Start,
}

const HEAD: &str = "\
# The image builder writes this file, and the node with each new version. Kernel and initramfs are
# read out of the unified kernel image, by sector.
set gfxpayload=text
if serial --unit=0 --speed=115200; then
  terminal_input console serial
  terminal_output console serial
fi
";

/// A menu makes no sense: a node has no operator at the screen.
const FOOT: &str = "\
echo \"No image could be started from $root; trying again in 10 seconds.\"
sleep 10
reboot
";

/// Sets `taken` if the entry `$1` has a start left, and takes it. A start that cannot be counted is none.
const COUNT: &str = "\
function count {
  set taken=
  set trial=
  set left=
  set rest=
  load_env --file ($root)/grub/grubenv trial left
  if [ \"$trial\" = \"$1\" ]; then
    if [ \"$left\" = 3 ]; then set rest=2; fi
    if [ \"$left\" = 2 ]; then set rest=1; fi
    if [ \"$left\" = 1 ]; then set rest=0; fi
  fi
  if [ -n \"$rest\" ]; then
    set left=$rest
    if save_env --file ($root)/grub/grubenv left; then
      set left=
      load_env --file ($root)/grub/grubenv left
      if [ \"$left\" = \"$rest\" ]; then set taken=1; fi
    fi
  fi
}
";

/// Configuration for a disk with these versions. GRUB starts one as systemd-boot would: the newest one that is not bad;
/// if all are bad, the newest one.
#[must_use]
pub fn config(mut versions: Vec<Listed>) -> String {
    versions.sort_by(|a, b| by_version(&a.installed, &b.installed));
    // After a power cut, an entry may have two names.
    versions.dedup_by_key(|one| one.installed.entry.id());
    versions.retain(|one| one.installed.entry.is_plain());
    let mut text = format!("{HEAD}{COUNT}");
    let more = format!(" \"{PARAMETER}=$name\"");
    let (mut not_bad, mut any) = (String::new(), String::new());
    for (number, one) in (1_u32..).zip(&versions) {
        let id = one.installed.entry.id();
        let stem = format!("($root)/{IMAGES}/{}", one.installed.entry.stem());
        let script = one.start.script(&more);
        let _ = write!(
            text,
            "function start{number} {{\n  regexp --set=1:name '([^/]*)$' \"$1\"\n{script}}}\n"
        );
        let _ = write!(
            not_bad,
            "if [ -s {stem}.efi ]; then start{number} {stem}.efi; fi\n\
             for file in {stem}+*.efi; do\n  if [ -s \"$file\" ]; then\n    \
             if regexp '[+]0*[1-9][0-9]*(-[0-9]+)?[.]efi$' \"$file\"; then\n      count {id}\n      \
             if [ -n \"$taken\" ]; then start{number} \"$file\"; fi\n    fi\n  fi\ndone\n"
        );
        let _ = write!(
            any,
            "for file in {stem}.efi {stem}+*.efi; do\n  \
             if [ -s \"$file\" ]; then start{number} \"$file\"; fi\ndone\n"
        );
    }
    text + &not_bad + &any + FOOT
}

/// Configuration for a medium with one image at `path`. `before` is a line that makes the image visible.
#[must_use]
pub fn medium_config(before: &str, path: &str, start: &Start) -> String {
    let script = start.script("");
    format!("{HEAD}function start {{\n{script}}}\n{before}\nstart {path}\n{FOOT}")
}

/// GRUB's files for a disk with this version alone, which is on trial.
#[must_use]
pub fn files(entry: &Entry, version: &str, start: Start) -> [FatFile; 2] {
    let installed = Installed {
        entry: entry.clone(),
        version: version.to_owned(),
    };
    let config = config(vec![Listed { installed, start }]);
    let file = |name: &str, bytes| (format!("{DIRECTORY}/{name}"), Content::Bytes(bytes));
    [file(CONFIG, config.into_bytes()), file(BLOCK, block(entry))]
}

/// The block of an entry that begins its trial, with all tries.
#[must_use]
pub fn block(entry: &Entry) -> Vec<u8> {
    // GRUB overwrites the digit in place, so that a torn write leaves the old or the new number.
    let (id, tries) = (entry.id(), crate::TRIES);
    let mut block = format!("# GRUB Environment Block\ntrial={id}\nleft={tries}\n").into_bytes();
    block.resize(SECTOR, b'#');
    block
}

/// Starts that GRUB has counted in this block for the entry with this ID; `None` if the block is not that of its trial.
#[must_use]
pub fn starts(block: &[u8], id: &str) -> Option<u32> {
    let text = String::from_utf8_lossy(block);
    let value = |name: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    };
    let left = value("left")?.parse::<u32>().ok()?;
    (value("trial") == Some(id)).then(|| crate::TRIES.checked_sub(left))?
}

#[cfg(test)]
#[path = "grub_tests.rs"]
mod tests;
