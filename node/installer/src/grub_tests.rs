use std::collections::BTreeMap;

use super::*;
use crate::grub_model as model;

fn listed(name: &str, version: &str, linux: &str) -> Listed {
    Listed {
        installed: Installed {
            entry: Entry::parse(name).unwrap(),
            version: version.to_owned(),
        },
        start: Start::sample(linux),
    }
}

#[test]
fn newest_version_is_listed_first_and_names_with_scripts_are_left_out() {
    let text = config(vec![
        listed("corten-1.9.0.efi", "1.9.0", "8+1"),
        listed("corten-1.10.0+3.efi", "1.10.0", "8+2"),
        listed("corten-1.10.0.efi", "1.10.0", "8+2"),
        listed("corten-$(reboot).efi", "2", "8+3"),
        listed("corten-'.efi", "2", "8+3"),
    ]);
    let expected = [("corten-1.10.0", "8+2"), ("corten-1.9.0", "8+1")];
    let expected = expected.map(|(stem, list)| (stem.to_owned(), list.to_owned()));
    assert_eq!(model::listed(&text), expected);
    assert!(!text.contains("reboot)"), "{text}");
}

/// Names of the files that GRUB starts one after the other.
fn starts(names: &[&str], block: &mut [u8]) -> Vec<String> {
    let versions = [("corten-1.efi", "1", "8+1"), ("corten-2.efi", "2", "8+2")];
    let text = config(
        versions
            .map(|(name, version, list)| listed(name, version, list))
            .into(),
    );
    let files = names
        .iter()
        .map(|name| ((*name).to_owned(), name.as_bytes().to_vec()));
    let files: BTreeMap<_, _> = files.collect();
    let mut start = || model::start(&text, block, &files).unwrap().0;
    (0..4).map(|_| start()).collect()
}

#[test]
fn entry_on_trial_is_started_three_times() {
    let (old, new) = ("corten-1.efi", "corten-2+3.efi");
    let mut armed = block(&Entry::parse(new).unwrap());
    assert_eq!(starts(&[old, new], &mut armed), [new, new, new, old]);
    assert_eq!(
        starts(&[old, "corten-2.efi"], &mut armed),
        ["corten-2.efi"; 4]
    );
    for bad in ["corten-2+0-3.efi", "corten-2+0.efi"] {
        let mut armed = block(&Entry::parse(new).unwrap());
        assert_eq!(starts(&[old, bad], &mut armed), [old; 4]);
    }
    // If all are bad, the newest one starts.
    let bad = ["corten-1+0.efi", "corten-2+0.efi"];
    assert_eq!(starts(&bad, &mut armed), [bad[1]; 4]);
    let last = ["corten-1+0.efi", new];
    assert_eq!(starts(&last, &mut []), [new; 4]);
}

#[test]
fn hostile_block_never_keeps_grub_from_the_good_version() {
    let (old, new) = ("corten-1.efi", "corten-2+3.efi");
    let entry = Entry::parse(new).unwrap();
    let former = [
        Vec::new(),
        vec![0; SECTOR],
        vec![b'\n'; SECTOR],
        block(&Entry::parse(old).unwrap()),
        block(&Entry::new("2.0.0-a-long-one", 0)),
        String::from_utf8(block(&entry))
            .unwrap()
            .replace("left=3", "left=0")
            .into_bytes(),
    ];
    for mut before in former {
        before.resize(SECTOR, b'#');
        for at in 0..=SECTOR {
            let armed = block(&entry);
            let head = [&armed[..at], &before[at..]].concat();
            let tail = [&before[..at], &armed[at..]].concat();
            for mut torn in [head, tail] {
                let started = starts(&[old, new], &mut torn);
                assert_eq!(started[3], old, "{at}");
                // Once it has left the version, it does not return to it.
                assert!(started.is_sorted_by_key(|name| name == old), "{started:?}");
            }
        }
    }
    for text in [
        "trial=corten-2.efi\nleft=9\n",
        "trial=corten-2.efi\nleft=33\n",
        "left=3\n",
    ] {
        let mut block = format!("# GRUB Environment Block\n{text}").into_bytes();
        assert_eq!(starts(&[old, new], &mut block), [old; 4], "{text}");
    }
}

#[test]
fn code_is_placed_by_sector_and_round_trips_through_its_section() {
    let code = Code::new(vec![1; BOOT_CODE], vec![2; 3 * SECTOR]).unwrap();
    let section = code.section();
    assert_eq!(section.len(), 4 * SECTOR);
    assert_eq!(section[BOOT_CODE..SECTOR], [0; SECTOR - BOOT_CODE]);
    let (mbr, core) = code.placed(526_336);
    assert_eq!(
        mbr[KERNEL_SECTOR..KERNEL_SECTOR + 8],
        526_336_u64.to_le_bytes()
    );
    assert_eq!(core[BLOCK_LIST..BLOCK_LIST + 8], 526_337_u64.to_le_bytes());
    for (mbr, core) in [
        (439, SECTOR * 2),
        (440, SECTOR),
        (440, 1100),
        (440, (1 << 20) + SECTOR),
    ] {
        assert_eq!(Code::new(vec![0; mbr], vec![0; core]), None, "{mbr} {core}");
    }
}

#[test]
fn hostile_image_is_no_image_for_grub() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("image");
    for bytes in [&b""[..], b"MZ", &[0xff; 4096]] {
        std::fs::write(&path, bytes).unwrap();
        let why = Start::of(&path).unwrap_err().to_string();
        assert!(why.contains("it is not an EFI program"), "{why}");
        Code::of(&path).unwrap_err();
    }
    assert!(matches!(
        Start::of(&scratch.path().join("none")),
        Err(Unfit::Read(_))
    ));
}
