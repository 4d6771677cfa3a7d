use std::path::{Path, PathBuf};

use corten_installer::grub::Code;

use crate::testing::{Scratch, development, host, noise, release, signer, stub, text};
use crate::{raw, uki};

#[test]
fn image_cache_partition_is_last_and_moves_no_other_partition() {
    let scratch = Scratch::new();
    let file = scratch.file("any", b"any");
    let cache = scratch.file("cache", &noise((1 << 20) + 1));
    let meta = corten_meta::Values::new();
    let write = |images: Option<&Path>| {
        let disk = raw::Disk {
            uki: &file,
            sd_boot: &file,
            enrol: &development(),
            bios: false,
            meta: &meta,
            board: &raw::Board::default(),
            images,
            size: None,
        };
        let out = scratch.path("disk");
        raw::build(&out, &release(), &disk).unwrap();
        let mut image = std::fs::File::open(&out).unwrap();
        let table = gptman::GPT::find_from(&mut image).unwrap();
        let parts: Vec<_> = table
            .iter()
            .filter(|(_, part)| part.is_used())
            .map(|(_, part)| {
                let name = part.partition_name.as_str().to_owned();
                (name, part.starting_lba * 512, part.ending_lba * 512 + 512)
            })
            .collect();
        (parts, std::fs::read(&out).unwrap())
    };
    let (without, _) = write(None);
    let (with, image) = write(Some(&cache));
    let (last, before) = with.split_last().unwrap();
    assert_eq!(before, without);
    assert_eq!(
        (last.0.as_str(), last.1, last.2 - last.1),
        ("IMAGECACHE", without[2].2, 2 << 20)
    );
    let content = &image[usize::try_from(last.1).unwrap()..];
    assert!(content.starts_with(&std::fs::read(&cache).unwrap()));
}

/// A unified kernel image with this command line and GRUB's code.
fn image(scratch: &Scratch, cmdline: &str) -> PathBuf {
    let (program, out) = (scratch.file("stub", &stub()), scratch.path("uki"));
    let parts = uki::Uki {
        stub: &program,
        vmlinuz: &program,
        initramfs: &program,
        cmdline,
        os_release: "",
        uname: "",
        grub: Some(Path::new("/usr/lib/grub/i386-pc")),
        signer: &signer(),
    };
    uki::build(&out, &release(), &parts).unwrap();
    out
}

#[test]
fn command_line_that_grub_cannot_pass_is_refused_for_bios() {
    let scratch = Scratch::new();
    let (meta, board) = (corten_meta::Values::new(), raw::Board::default());
    let enrol = development();
    let long = "a".repeat(2000);
    for (cmdline, why) in [
        ("a=\"b c\"", "GRUB cannot pass '\"'"),
        (&long, "2000 bytes"),
    ] {
        let uki = image(&scratch, cmdline);
        let disk = |bios| raw::Disk {
            uki: &uki,
            sd_boot: &uki,
            enrol: &enrol,
            bios,
            meta: &meta,
            board: &board,
            images: None,
            size: None,
        };
        let error = raw::build(&scratch.path("disk"), &release(), &disk(true)).unwrap_err();
        assert!(format!("{error:#}").contains(why), "{error:#}");
        raw::build(&scratch.path("disk"), &release(), &disk(false)).unwrap();
    }
}

#[test]
fn disk_carries_the_boot_code_of_its_image() {
    let scratch = Scratch::new();
    let uki = image(&scratch, "quiet");
    let meta = corten_meta::Values::new();
    let disk = raw::Disk {
        uki: &uki,
        sd_boot: &uki,
        enrol: &development(),
        bios: true,
        meta: &meta,
        board: &raw::Board::default(),
        images: None,
        size: None,
    };
    let out = scratch.path("disk");
    raw::build(&out, &release(), &disk).unwrap();
    let disk = std::fs::read(&out).unwrap();
    let bios = 257 << 20;
    let code = Code::of(&uki).unwrap().unwrap();
    let (mbr, core) = code.placed(u64::try_from(bios / 512).unwrap());
    assert!(disk.starts_with(&mbr));
    assert!(disk[bios..].starts_with(&core));
    let esp = format!("{}@@1M", text(&out));
    let read = |path: &str| host("mtype", &["-i", &esp, path]);
    assert!(read("::grub/grubenv").contains("\ntrial=corten-1.2.3.efi\nleft=3\n"));
    assert!(read("::grub/grub.cfg").contains("\"corten.entry=$name\""));
}
