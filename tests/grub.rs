//! Promise: on a machine with BIOS, a version on trial is started three times. No content of the disk keeps GRUB from
//! starting the version before. The kernel here prints its parameters and resets the machine. The starts are those of
//! GRUB itself, which `node/installer/src/grub_model.rs` models.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a failing step is a failing test"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use corten_image::{Release, raw, uki};
use corten_installer::grub::{self, Listed, Start};
use corten_installer::{Entry, Installed};
use corten_steps::arch::Arch;
use qemu::{Disk, DiskMode, Firmware, Machine};
use tests::workspace;

/// Files of Debian's grub-pc-bin.
const GRUB: &str = "/usr/lib/grub/i386-pc";
const OLD: &str = "corten-1.0.0.efi";
const NEW: &str = "corten-2.0.0+3.efi";
const BAD: &str = "corten-2.0.0+0-3.efi";
/// Starts that a test looks at, each a second or two.
const STARTS: usize = 5;
const LIMIT: Duration = Duration::from_secs(120);

/// The 32-bit code of the kernel. `esi` has the boot parameters, with the address of the command line at 0x228.
///
/// ```text
/// start: mov 0x228(%esi), %ebx
/// 1:     mov (%ebx), %al;  test %al, %al;  jz 4f
/// 2:     mov %al, %ah
/// 3:     mov $0x3fd, %dx;  in %dx, %al;  test $0x20, %al;  jz 3b
///        mov %ah, %al;  mov $0x3f8, %dx;  out %al, %dx
///        inc %ebx;  cmp $10, %ah;  jne 1b
/// 5:     mov $0x64, %dx;  mov $0xfe, %al;  out %al, %dx;  jmp 5b
/// 4:     mov $10, %al;  mov $newline - start + 0x100000, %ebx;  jmp 2b
/// newline: .byte 10
/// ```
const CODE: [u8; 55] = [
    0x8b, 0x9e, 0x28, 0x02, 0x00, 0x00, 0x8a, 0x03, 0x84, 0xc0, 0x74, 0x21, 0x88, 0xc4, 0x66, 0xba,
    0xfd, 0x03, 0xec, 0xa8, 0x20, 0x74, 0xf7, 0x88, 0xe0, 0x66, 0xba, 0xf8, 0x03, 0xee, 0x43, 0x80,
    0xfc, 0x0a, 0x75, 0xe2, 0x66, 0xba, 0x64, 0x00, 0xb0, 0xfe, 0xee, 0xeb, 0xf7, 0xb0, 0x0a, 0xbb,
    0x36, 0x00, 0x10, 0x00, 0xeb, 0xd6, 0x0a,
];

/// A kernel for the 32-bit boot protocol (Documentation/arch/x86/boot.rst) with [`CODE`].
fn kernel() -> Vec<u8> {
    let mut image = vec![0; 1024];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x1f1, &[1]);
    put(0x1fe, &[0x55, 0xaa, 0xeb, 0x66]);
    put(0x202, b"HdrS");
    put(0x206, &0x20c_u16.to_le_bytes());
    put(0x211, &[1]);
    put(0x214, &0x10_0000_u32.to_le_bytes());
    put(0x22c, &0x37ff_ffff_u32.to_le_bytes());
    put(0x230, &0x1000_u32.to_le_bytes());
    put(0x238, &2047_u32.to_le_bytes());
    put(0x258, &0x10_0000_u64.to_le_bytes());
    put(0x260, &0x1_0000_u32.to_le_bytes());
    image.extend(CODE);
    image
}

/// An EFI program without sections.
fn stub() -> Vec<u8> {
    let mut program = vec![0; 0x400];
    let mut put = |at: usize, bytes: &[u8]| program[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3c, &[0x40]);
    put(0x40, b"PE\0\0");
    put(0x44, &0x8664_u16.to_le_bytes());
    put(0x54, &240_u16.to_le_bytes());
    put(0x56, &0x2022_u16.to_le_bytes());
    put(0x58, &0x20b_u16.to_le_bytes());
    put(0x58 + 32, &0x1000_u32.to_le_bytes());
    put(0x58 + 36, &0x200_u32.to_le_bytes());
    put(0x58 + 56, &0x1000_u32.to_le_bytes());
    put(0x58 + 60, &0x400_u32.to_le_bytes());
    put(0x58 + 108, &16_u32.to_le_bytes());
    program
}

fn release(version: &str) -> Release {
    Release {
        version: version.to_owned(),
        arch: Arch::X86_64,
        epoch: 1_700_000_000,
    }
}

/// Unified kernel images and disks in a directory.
struct Bench(&'static str, tempfile::TempDir);

impl Bench {
    /// An empty directory, and the name of the machines.
    fn new(name: &'static str) -> Self {
        let target = workspace::target();
        Self(name, tempfile::tempdir_in(target).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.1.path().join(name)
    }

    /// A unified kernel image. `more` moves its kernel.
    fn uki(&self, name: &str, more: usize) -> PathBuf {
        let code = corten_image::grub::code(Path::new(GRUB)).unwrap();
        let sections = [
            (grub::SECTION, code.section()),
            (".cmdline", b"quiet".to_vec()),
            (".other", vec![1; more]),
            (".initrd", b"initramfs".to_vec()),
            (".linux", kernel()),
        ];
        let image = uki::append(stub(), &release("1.0.0"), &sections);
        let path = self.path(name);
        std::fs::write(&path, image.unwrap()).unwrap();
        path
    }

    /// A disk as the builder makes it: one version, on trial.
    fn disk(&self, uki: &Path) -> PathBuf {
        let meta = Default::default();
        let disk = raw::Disk {
            uki,
            sd_boot: uki,
            enrol: self.1.path(),
            bios: true,
            meta: &meta,
            board: &raw::Board::default(),
            images: None,
            size: None,
        };
        let path = self.path("disk.raw");
        raw::build(&path, &release("1.0.0"), &disk).unwrap();
        path
    }

    /// A disk with the versions 1.0.0 and 2.0.0 in files of these names, and with this counter.
    fn versions(&self, old: &str, new: &str, block: Option<&[u8]>) -> PathBuf {
        let (first, second) = (self.uki("first", 0), self.uki("second", 9000));
        let disk = self.disk(&first);
        let listed = [(OLD, "1.0.0", &first), (NEW, "2.0.0", &second)];
        let listed = listed.map(|(name, version, image)| Listed {
            installed: Installed {
                entry: Entry::parse(name).unwrap(),
                version: version.to_owned(),
            },
            start: Start::of(image).unwrap(),
        });
        let config = self.path("grub.cfg");
        std::fs::write(&config, grub::config(listed.into())).unwrap();
        let tool = |program: &str, arguments: &[&str]| {
            let place = format!("{}@@1M", disk.display());
            let mut command = Command::new(program);
            let done = command.args(["-i", &place]).args(arguments).status();
            assert!(done.expect("mtools").success(), "{program} {arguments:?}");
        };
        let copy = |from: &Path, to: &str| {
            tool("mcopy", &["-o", from.to_str().unwrap(), to]);
        };
        tool("mdel", &["::EFI/Linux/corten-1.0.0+3.efi"]);
        copy(&first, &format!("::EFI/Linux/{old}"));
        copy(&second, &format!("::EFI/Linux/{new}"));
        copy(&config, "::grub/grub.cfg");
        tool("mdel", &["::grub/grubenv"]);
        if let Some(bytes) = block {
            let file = self.path("grubenv");
            std::fs::write(&file, bytes).unwrap();
            copy(&file, "::grub/grubenv");
        }
        disk
    }

    /// The entries that GRUB starts from the disk, one after the other.
    fn starts(&self, disk: &Path) -> Vec<String> {
        let machine = Machine::new(self.0, workspace::target().join("vm"))
            .firmware(Firmware::Bios)
            .disk(Disk::raw(disk).mode(DiskMode::Snapshot))
            .memory_mib(128)
            .start()
            .unwrap_or_else(|error| panic!("{error}"));
        let found = machine.wait_for("the starts", LIMIT, || {
            let text = machine.console().text();
            let names = text.split("corten.entry=").skip(1);
            let names = names.filter_map(|rest| Some(rest.split_once(['\r', '\n'])?.0.to_owned()));
            let names: Vec<String> = names.take(STARTS).collect();
            (names.len() == STARTS).then_some(names).ok_or(text)
        });
        found.unwrap_or_else(|error| panic!("{error}"))
    }
}

#[test]
#[ignore = "make test-vm"]
fn version_on_trial_is_started_three_times_by_bios() {
    let bench = Bench::new("grub-tries");
    let armed = grub::block(&Entry::parse(NEW).unwrap());
    let disk = bench.versions(OLD, NEW, Some(&armed));
    assert_eq!(bench.starts(&disk), [NEW, NEW, NEW, OLD, OLD]);
    // The only version of a disk is started although it never works.
    let disk = bench.disk(&bench.uki("first", 0));
    assert_eq!(bench.starts(&disk), ["corten-1.0.0+3.efi"; STARTS]);
}

#[test]
#[ignore = "make test-vm"]
fn names_of_files_decide_over_good_and_bad_versions_by_bios() {
    let bench = Bench::new("grub-names");
    let armed = grub::block(&Entry::parse(NEW).unwrap());
    let good = "corten-2.0.0.efi";
    assert_eq!(
        bench.starts(&bench.versions(OLD, good, None)),
        [good; STARTS]
    );
    assert_eq!(
        bench.starts(&bench.versions(OLD, BAD, Some(&armed))),
        [OLD; STARTS]
    );
    let all_bad = bench.versions("corten-1.0.0+0.efi", BAD, None);
    assert_eq!(bench.starts(&all_bad), [BAD; STARTS]);
}

#[test]
#[ignore = "make test-vm"]
fn damaged_counter_starts_the_version_before_by_bios() {
    let bench = Bench::new("grub-counter");
    let armed = grub::block(&Entry::parse(NEW).unwrap());
    let torn = [&armed[..40], &vec![0; armed.len() - 40]].concat();
    let other = grub::block(&Entry::parse(OLD).unwrap());
    for block in [None, Some(&b""[..]), Some(&torn), Some(&other)] {
        assert_eq!(
            bench.starts(&bench.versions(OLD, NEW, block)),
            [OLD; STARTS]
        );
    }
}
