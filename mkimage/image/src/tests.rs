//! Whole images from stand-ins. The host's tools find them valid, and `inspect` finds their
//! content. No byte depends on the place, time or user of the build.

use std::path::{Path, PathBuf};

use corten_steps::arch::Arch;

use super::testing::{Scratch, development, host, noise, release, signer, stub, text};
use super::{fat, gcp, initramfs, inspect, installer, iso, ova, pxe, qcow2, raw, uki, vhd, vmdk};

const GRUB: &str = "/usr/lib/grub/i386-pc";
const CMDLINE: &str = "console=ttyS0 corten.platform=metal";

/// Builds every format into `dir`.
fn everything(scratch: &Scratch, dir: &str) -> Vec<PathBuf> {
    let release = release();
    let at = |name: &str| {
        let path = scratch.path(dir).join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    };
    let init = scratch.file(&format!("{dir}/in/init"), b"#!init");
    let rootfs = scratch.file(&format!("{dir}/in/rootfs"), &noise(200_000));
    let kernel = scratch.file(
        &format!("{dir}/in/vmlinuz"),
        &[stub(), noise(300_000)].concat(),
    );
    let stub = scratch.file(&format!("{dir}/in/stub"), &stub());
    let archive = at("initramfs");
    let parts = initramfs::Initramfs {
        init: &init,
        rootfs: &rootfs,
        extensions: &[],
        signers: "",
    };
    initramfs::build(&archive, &release, &parts).unwrap();
    let image = at("corten.efi");
    let grub = Some(Path::new(GRUB));
    let parts = uki::Uki {
        stub: &stub,
        vmlinuz: &kernel,
        initramfs: &archive,
        cmdline: CMDLINE,
        os_release: "PRETTY_NAME=\"Corten 1.2.3\"\nVERSION_ID=1.2.3\n",
        uname: "6.12.1",
        grub,
        signer: &signer(),
    };
    uki::build(&image, &release, &parts).unwrap();
    let meta = corten_meta::Values::from([(10.try_into().unwrap(), b"hello".to_vec())]);
    let disk = at("corten.raw");
    let parts = raw::Disk {
        uki: &image,
        sd_boot: &stub,
        enrol: &development(),
        bios: true,
        meta: &meta,
        board: &raw::Board::default(),
        images: None,
        size: None,
    };
    raw::build(&disk, &release, &parts).unwrap();
    let work = at("work/x").parent().unwrap().to_owned();
    let cd = at("corten.iso");
    let xorriso = Path::new("xorriso");
    let parts = iso::Iso {
        uki: &image,
        sd_boot: &stub,
        enrol: &development(),
        grub,
        xorriso,
        work: &work,
    };
    iso::build(&cd, &release, &parts).unwrap();
    let net = at("pxe");
    let parts = pxe::Pxe {
        vmlinuz: &kernel,
        initramfs: &archive,
        cmdline: CMDLINE,
    };
    pxe::build(&net, &release, &parts).unwrap();
    let [q, h, m, o] = ["qcow2", "vhd", "vmdk", "ova"].map(|kind| at(&format!("corten.{kind}")));
    qcow2::build(&q, &disk).unwrap();
    vhd::build(&h, &release, &disk).unwrap();
    vmdk::build(&m, &release, &disk).unwrap();
    ova::build(&o, &release, &disk, &m).unwrap();
    let tar = at("installer.tar");
    let parts = installer::Installer {
        uki: &image,
        sd_boot: &stub,
    };
    installer::build(&tar, &release, &parts).unwrap();
    let mut all = vec![archive, image, disk, cd, q, h, m, o, tar];
    all.extend(["vmlinuz", "initramfs", "boot.ipxe"].map(|name| net.join(name)));
    all
}

#[test]
fn every_format_is_valid_and_reproducible_in_another_directory() {
    let scratch = Scratch::new();
    let one = everything(&scratch, "one");
    std::thread::sleep(std::time::Duration::from_millis(2100)); // FAT has a resolution of 2 seconds
    let two = everything(&scratch, "another/place");
    for (a, b) in one.iter().zip(&two) {
        let same = std::fs::read(a).unwrap() == std::fs::read(b).unwrap();
        assert!(same, "{} differs", a.display());
    }
    sound(&scratch, &one);
    inspected(&scratch, &one);
    a_bundle_is_inspected(&one);
    grub_is_told_where_kernel_and_initramfs_begin(&one);
    a_disk_too_small_or_crooked_is_refused(&scratch, &one);
}

fn sound(scratch: &Scratch, all: &[PathBuf]) {
    let find = |end: &str| all.iter().find(|path| path.ends_with(end)).unwrap();

    let disk = find("corten.raw");
    assert!(host("sfdisk", &["--verify", text(disk)]).contains("No errors detected"));
    let dump = host("sfdisk", &["--dump", text(disk)]);
    for part in [
        "name=\"EFI\"",
        "name=\"BIOS\", attrs=\"LegacyBIOSBootable\"",
        "name=\"META\"",
    ] {
        assert!(dump.contains(part), "{dump}");
    }
    let esp = scratch.path("esp");
    let (from, to) = (format!("if={}", text(disk)), format!("of={}", text(&esp)));
    host(
        "dd",
        &[&from, &to, "bs=1M", "skip=1", "count=256", "conv=sparse"],
    );
    host("fsck.fat", &["-n", text(&esp)]);

    let cd = find("corten.iso");
    assert!(host("sfdisk", &["--verify", text(cd)]).contains("No errors detected"));
    let listing = host("xorriso", &["-indev", text(cd), "-find", "/", "-type", "f"]);
    let files = [
        "'/boot/grub/eltorito.img'",
        "'/boot/grub/grub.cfg'",
        "'/efi.img'",
    ];
    assert!(files.iter().all(|file| listing.contains(file)), "{listing}");
    host(
        "qemu-img",
        &["check", "-f", "qcow2", text(find("corten.qcow2"))],
    );
}

fn inspected(scratch: &Scratch, all: &[PathBuf]) {
    let find = |end: &str| all.iter().find(|path| path.ends_with(end)).unwrap();
    // An archive as for Google Cloud, but without padding to a GiB.
    let (directory, link) = (scratch.path(""), scratch.path("disk.raw"));
    std::os::unix::fs::symlink(find("corten.raw"), &link).unwrap();
    let archive = scratch.path("corten.gcp");
    let pack = ["-C", text(&directory), "-chzf", text(&archive), "disk.raw"];
    host("tar", &pack);
    let look = |end: &str| {
        let path = if end == "corten.gcp" {
            &archive
        } else {
            find(end)
        };
        inspect::inspect(path).unwrap()
    };
    for (file, format) in [
        ("corten.efi", "uki"),
        ("corten.raw", "raw"),
        ("corten.vhd", "vhd"),
        ("corten.iso", "iso"),
        ("corten.qcow2", "qcow2"),
        ("corten.vmdk", "vmdk"),
        ("corten.ova", "ova"),
        ("corten.gcp", "gcp"),
        ("installer.tar", "installer"),
    ] {
        let found = look(file);
        assert_eq!(found.format, format);
        assert_eq!(found.arch(), Some(Arch::X86_64), "{file}");
        let [image] = found.images.as_slice() else {
            panic!("{file}: {found}")
        };
        assert_eq!(
            (image.version.as_str(), image.kernel.as_str()),
            ("1.2.3", "6.12.1")
        );
        assert_eq!(
            (image.name.as_str(), image.cmdline.as_str()),
            ("Corten 1.2.3", CMDLINE)
        );
        assert_eq!(image.initramfs[2].path, "/rootfs.squashfs");
        assert_eq!(image.initramfs[2].size, 200_000);
        assert!(found.to_string().contains("  section   .linux"), "{found}");
    }
    let found = look("corten.raw");
    for kind in ["vhd", "qcow2", "vmdk", "ova", "gcp"] {
        let other = look(&format!("corten.{kind}"));
        assert_eq!(other.partitions, found.partitions, "{kind}");
        assert_eq!(other.meta, found.meta, "{kind}");
    }
    let labels: Vec<_> = found
        .partitions
        .iter()
        .map(|part| part.label.as_str())
        .collect();
    assert_eq!(labels, ["EFI", "BIOS", "META"]);
    assert_eq!(found.meta["0x0a"], "hello");
    let paths: Vec<_> = found.files.iter().map(|file| file.path.as_str()).collect();
    let uki = "EFI/Linux/corten-1.2.3+3.efi";
    assert_eq!(
        paths,
        [
            "EFI/BOOT/BOOTX64.EFI",
            uki,
            "grub/grub.cfg",
            "grub/grubenv",
            "loader/keys/auto/KEK.auth",
            "loader/keys/auto/PK.auth",
            "loader/keys/auto/db.auth",
            "loader/loader.conf"
        ]
    );
    assert_eq!(
        look("corten.iso").volume.as_deref(),
        Some("CORTEN_1_2_3_X86_64")
    );
    let json = serde_json::to_value(look("corten.efi")).unwrap();
    assert_eq!(json["images"][0]["cmdline"], CMDLINE);
    let error = inspect::inspect(&scratch.file("text", b"hello")).unwrap_err();
    assert!(format!("{error:#}").contains("mkimage does not make its format"));
}

fn a_bundle_is_inspected(all: &[PathBuf]) {
    let kernel = all.iter().find(|path| path.ends_with("pxe/vmlinuz"));
    let bundle = inspect::inspect(kernel.unwrap().parent().unwrap()).unwrap();
    assert_eq!(bundle.format, "pxe");
    assert_eq!(bundle.arch(), Some(Arch::X86_64));
    assert_eq!(bundle.images[0].cmdline, CMDLINE);
    assert_eq!(bundle.images[0].initramfs[2].size, 200_000);
    assert_eq!(bundle.files.len(), 3);
    let said = bundle.to_string();
    assert!(
        said.contains("  arch      x86_64\n") && !said.contains("  version"),
        "{said}"
    );
}

fn grub_is_told_where_kernel_and_initramfs_begin(all: &[PathBuf]) {
    let image = std::fs::read(&all[1]).unwrap();
    let disk = format!("{}@@1M", text(&all[2]));
    let config = host("mtype", &["-i", &disk, "::grub/grub.cfg"]);
    for (command, section) in [("linux", ".linux"), ("initrd", ".initrd")] {
        let start = format!("if {command} (uki)");
        let line = config
            .lines()
            .find_map(|line| line.trim().strip_prefix(&start))
            .unwrap();
        let list: Vec<usize> = line
            .split(|c: char| !c.is_ascii_digit())
            .take(2)
            .map(|number| number.parse().unwrap())
            .collect();
        let sections = uki::sections(&image).unwrap();
        let wanted = uki::content(&image, uki::section(&sections, section).unwrap()).unwrap();
        let loaded = &image[list[0] * 512..(list[0] + list[1]) * 512];
        assert!(loaded.starts_with(wanted), "{line}");
        assert!(loaded.len() - wanted.len() < 512);
    }
}

fn a_disk_too_small_or_crooked_is_refused(scratch: &Scratch, all: &[PathBuf]) {
    let sd_boot = scratch.file("sd", b"sd");
    let meta = corten_meta::Values::new();
    for size in [100 << 20, (300 << 20) + 512] {
        let size = Some(size);
        let disk = raw::Disk {
            uki: &all[1],
            sd_boot: &sd_boot,
            enrol: &development(),
            bios: false,
            meta: &meta,
            board: &raw::Board::default(),
            images: None,
            size,
        };
        let error = raw::build(&scratch.path("small"), &release(), &disk).unwrap_err();
        let failure = error
            .downcast_ref::<corten_steps::error::Failure>()
            .unwrap();
        assert_eq!(failure.remedy(), "give a whole number of MiB, 260 or more");
    }
}

#[test]
fn arm64_images_boot_on_uefi_only() {
    let scratch = Scratch::new();
    let release = super::Release {
        arch: Arch::Arm64,
        ..release()
    };
    let mut program = stub();
    program[0x44..0x46].copy_from_slice(&release.arch.names().pe_machine.to_le_bytes());
    let program = scratch.file("stub", &program);
    let data = scratch.file("initramfs", &noise(1000));
    let [image, disk, cd] = ["a.efi", "a.raw", "a.iso"].map(|name| scratch.path(name));
    let parts = uki::Uki {
        stub: &program,
        vmlinuz: &program,
        initramfs: &data,
        cmdline: CMDLINE,
        os_release: "VERSION_ID=1.2.3\n",
        uname: "6.12.1",
        grub: None,
        signer: &signer(),
    };
    uki::build(&image, &release, &parts).unwrap();
    let parts = raw::Disk {
        uki: &image,
        sd_boot: &program,
        enrol: &development(),
        bios: false,
        meta: &corten_meta::Values::new(),
        board: &raw::Board::default(),
        images: None,
        size: None,
    };
    raw::build(&disk, &release, &parts).unwrap();
    let boot_code = &std::fs::read(&disk).unwrap()[..440];
    assert!(boot_code.iter().all(|byte| *byte == 0));
    let esp = format!("{}@@1M", text(&disk));
    let loader = host("mdir", &["-b", "-i", &esp, "::EFI/BOOT"]);
    assert_eq!(loader.trim(), "::/EFI/BOOT/BOOTAA64.EFI");
    let work = scratch.path("work");
    std::fs::create_dir(&work).unwrap();
    let parts = iso::Iso {
        uki: &image,
        sd_boot: &program,
        enrol: &development(),
        grub: None,
        xorriso: Path::new("xorriso"),
        work: &work,
    };
    iso::build(&cd, &release, &parts).unwrap();
    let boot = host(
        "xorriso",
        &["-indev", text(&cd), "-report_el_torito", "plain"],
    );
    assert!(boot.contains("UEFI") && !boot.contains("BIOS"), "{boot}");
    let error = ova::build(&scratch.path("a.ova"), &release, &disk, &disk).unwrap_err();
    assert_eq!(error.to_string(), "there is no OVA for arm64");
}

#[test]
fn boot_firmware_is_at_the_offset_that_the_board_reads() {
    let scratch = Scratch::new();
    let file = scratch.file("any", b"any");
    let loader = scratch.file("loader", &noise(5000));
    let write = |raw: &[u64]| {
        let board = raw::Board {
            esp: vec![("overlays/x.dtbo".into(), fat::Content::File(loader.clone()))],
            raw: raw.iter().map(|at| (*at, loader.clone())).collect(),
            start: Some(16 << 20),
        };
        let parts = raw::Disk {
            uki: &file,
            sd_boot: &file,
            enrol: &development(),
            bios: false,
            meta: &corten_meta::Values::new(),
            board: &board,
            images: None,
            size: None,
        };
        raw::build(&scratch.path("board.raw"), &release(), &parts)
    };
    write(&[32 << 10, 8 << 20]).unwrap();
    let disk = std::fs::read(scratch.path("board.raw")).unwrap();
    for at in [32 << 10, 8 << 20] {
        assert_eq!(disk[at..at + 5000], noise(5000));
    }
    let esp = format!("{}@@16M", text(&scratch.path("board.raw")));
    let copied = host("mdir", &["-b", "-i", &esp, "::overlays"]);
    assert_eq!(copied.trim(), "::/overlays/x.dtbo");
    // Offsets in the partition table, in another file, in the first partition.
    for places in [&[512][..], &[32 << 10, 33 << 10], &[(16 << 20) - 4096]] {
        let error = write(places).unwrap_err();
        assert!(error.to_string().contains("does not fit"), "{error}");
    }
}

#[test]
fn a_missing_input_is_named() {
    let scratch = Scratch::new();
    let missing = scratch.path("no such disk");
    let error = gcp::build(&scratch.path("out"), &release(), &missing).unwrap_err();
    assert!(format!("{error:#}").contains("no such disk"));
}
