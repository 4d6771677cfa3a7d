//! Tests the crate against a real QEMU: every boot method, with guests of a few bytes and without
//! an image. Each takes seconds, also under TCG.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use qemu::{Accel, Arch, Disk, DiskMode, Firmware, Machine, VmError};

/// OVMF alone needs over a minute on a busy host without KVM.
const DEADLINE: Duration = Duration::from_secs(240);
const WORD: &str = "sixteen bits are enough";

/// A disk whose boot sector writes [`WORD`] to the first serial port. Without interrupts: the
/// firmware's timer writes the rest of its own text to the same port.
fn boot_sector() -> Vec<u8> {
    let mut sector = vec![
        0xfa, // cli
        0x31, 0xc0, // xor ax, ax
        0x8e, 0xd8, // mov ds, ax
        0xba, 0xf8, 0x03, // mov dx, 0x3f8
        0xbe, 0x16, 0x7c, // mov si, word
        0xac, // next: lodsb
        0x84, 0xc0, // test al, al
        0x74, 0x03, // jz stop
        0xee, // out dx, al
        0xeb, 0xf8, // jmp next
        0xf4, // stop: hlt
        0xeb, 0xfd, // jmp stop
    ];
    assert_eq!(sector.len(), 0x16);
    sector.extend_from_slice(WORD.as_bytes());
    sector.resize(510, 0);
    sector.extend_from_slice(&[0x55, 0xaa]);
    sector.resize(1 << 20, 0);
    sector
}

struct Place {
    _dir: tempfile::TempDir,
    vm: PathBuf,
    image: PathBuf,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("a,disk.raw");
    std::fs::write(&image, boot_sector()).unwrap();
    Place {
        vm: dir.path().join("vm"),
        image,
        _dir: dir,
    }
}

fn machine(place: &Place) -> Machine {
    Machine::new("machine", &place.vm)
        .accel(Accel::Tcg)
        .memory_mib(64)
        .cpus(1)
}

fn alive(pid_file: &Path) -> bool {
    let line = std::fs::read_to_string(pid_file).unwrap_or_default();
    line.contains("qemu-system")
}

#[test]
fn disk_resets_and_ends_without_leftovers() {
    let place = place();
    let running = machine(&place)
        .disk(Disk::raw(&place.image))
        .start()
        .unwrap();
    running.wait_console(WORD, DEADLINE).unwrap();
    running.qmp().reset().unwrap();
    running
        .qmp()
        .wait_event("reset", 0, DEADLINE, |event| event.name == "RESET")
        .unwrap();
    running
        .wait_for("second boot", DEADLINE, || {
            let times = running.console().text().matches(WORD).count();
            if times == 2 {
                Ok(())
            } else {
                Err(format!("{times} boots"))
            }
        })
        .unwrap();
    let pid = running.pid();
    assert!(alive(Path::new(&format!("/proc/{pid}/cmdline"))));
    drop(running);
    assert!(!alive(Path::new(&format!("/proc/{pid}/cmdline"))));
}

#[test]
fn machine_boots_from_a_usb_stick() {
    let place = place();
    let running = machine(&place).usb(&place.image).start().unwrap();
    running.wait_console(WORD, DEADLINE).unwrap();
}

#[test]
fn qcow2_overlay_is_made_beside_the_image() {
    let place = place();
    let disk = Disk::raw(&place.image).mode(DiskMode::Overlay);
    let running = machine(&place).disk(disk).start().unwrap();
    running.wait_console(WORD, DEADLINE).unwrap();
    assert!(running.dir().join("overlay0.qcow2").exists());
    running.qmp().quit().unwrap();
    assert!(running.wait_exit(DEADLINE).unwrap().success());
}

#[test]
fn network_boot_runs_an_ipxe_script() {
    let place = place();
    let tftp = place.vm.parent().unwrap().join("tftp");
    std::fs::create_dir(&tftp).unwrap();
    std::fs::write(
        tftp.join("boot.ipxe"),
        "#!ipxe\necho by wire ${filename}\nsleep 600\n",
    )
    .unwrap();
    let running = machine(&place)
        .memory_mib(128)
        .netboot(&tftp, "boot.ipxe")
        .start()
        .unwrap();
    running.wait_console("by wire boot.ipxe", DEADLINE).unwrap();
}

#[test]
fn uefi_starts_with_its_own_variables() {
    uefi_starts(Arch::X86_64);
}

#[test]
fn uefi_starts_on_the_other_architecture() {
    uefi_starts(Arch::Arm64);
}

fn uefi_starts(arch: Arch) {
    let place = place();
    let running = machine(&place)
        .arch(arch)
        .memory_mib(256)
        .firmware(Firmware::Uefi)
        .start()
        .unwrap();
    running
        .wait_console("Start PXE over IPv4", DEADLINE)
        .unwrap();
    assert!(running.dir().join("uefi-vars.fd").exists());
}

#[test]
fn machine_that_cannot_start_reports_the_reason() {
    let place = place();
    let missing = machine(&place)
        .disk(Disk::raw("nowhere.raw"))
        .start()
        .unwrap_err();
    assert!(matches!(missing, VmError::MissingImage { .. }));
    assert!(missing.to_string().contains("make image"), "{missing}");

    let no_bios = machine(&place)
        .arch(Arch::Arm64)
        .firmware(Firmware::Bios)
        .start()
        .unwrap_err();
    assert!(no_bios.to_string().contains("choose UEFI"), "{no_bios}");

    let refused = machine(&place)
        .disk(Disk::qcow2(&place.image))
        .start()
        .unwrap_err();
    assert!(matches!(refused, VmError::Ended { .. }), "{refused}");
    assert!(
        refused.to_string().contains("not in qcow2 format"),
        "{refused}"
    );
}

#[test]
fn forwarded_port_without_a_listener_is_no_api() {
    let place = place();
    let running = machine(&place)
        .disk(Disk::raw(&place.image))
        .start()
        .unwrap();
    // QEMU itself accepts the connection, which must not count as an answer.
    let error = running.wait_tls(Duration::from_secs(5)).unwrap_err();
    assert!(matches!(error, VmError::Deadline { .. }), "{error}");
    assert!(
        running.replay().contains("mon:stdio"),
        "{}",
        running.replay()
    );
}
