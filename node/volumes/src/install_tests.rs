use std::io::Write as _;

use super::*;

#[test]
fn disk_with_content_is_refused_with_its_partitions_and_the_remedy() {
    const LENGTH: u64 = 64 << 20;
    let disk = || {
        let file = tempfile::tempfile().unwrap();
        file.set_len(LENGTH).unwrap();
        file
    };
    let all = [Over::Nothing, Over::Foreign, Over::Anything];
    for over in all {
        assert_eq!(check(&mut disk(), LENGTH, over), Ok(()));
    }
    let mut old = disk();
    let mut table = Table::new(&mut old, 512).unwrap();
    for name in ["META", "STATE", ""] {
        let kind = crate::TYPE_LINUX;
        table.append(name, kind, Some(2 << 20)).unwrap();
    }
    table.write(&mut old, |_| Ok(())).unwrap();
    let why = check(&mut old, LENGTH, Over::Nothing).unwrap_err();
    assert!(
        why.starts_with("it has the partitions META, STATE, number 3; "),
        "{why}"
    );
    assert!(why.contains("set wipe: true"), "{why}");
    let why = check(&mut old, LENGTH, Over::Foreign).unwrap_err();
    assert!(why.contains("which may have an owner"), "{why}");
    assert_eq!(check(&mut old, LENGTH, Over::Anything), Ok(()));
    let mut foreign = disk();
    foreign.seek(SeekFrom::Start(1080)).unwrap();
    foreign.write_all(b"\x53\xef").unwrap();
    let why = check(&mut foreign, LENGTH, Over::Nothing).unwrap_err();
    assert!(why.starts_with("it is not empty; "), "{why}");
    assert_eq!(check(&mut foreign, LENGTH, Over::Foreign), Ok(()));
}

#[test]
fn anonymous_installation_spares_user_volumes_and_disks_with_a_damaged_table() {
    const LENGTH: u64 = 64 << 20;
    let mut disk = tempfile::tempfile().unwrap();
    disk.set_len(LENGTH).unwrap();
    let mut table = Table::new(&mut disk, 512).unwrap();
    table.append("u-data", crate::TYPE_LINUX, None).unwrap();
    table.write(&mut disk, |_| Ok(())).unwrap();
    let why = check(&mut disk, LENGTH, Over::Foreign).unwrap_err();
    assert!(
        why.contains("u-data") && why.contains("may have an owner"),
        "{why}"
    );
    // The checksums of both headers.
    for header in [512, LENGTH - 512] {
        disk.seek(SeekFrom::Start(header + 16)).unwrap();
        disk.write_all(&[0; 4]).unwrap();
    }
    let why = check(&mut disk, LENGTH, Over::Foreign).unwrap_err();
    assert!(why.contains("partition table cannot be read"), "{why}");
    assert_eq!(check(&mut disk, LENGTH, Over::Anything), Ok(()));
}

#[test]
fn disk_without_room_for_any_installation_is_refused_before_an_image_is_fetched() {
    for sector in [512, 4096] {
        let why = fits(1 << 30, sector).unwrap_err();
        assert!(
            why.starts_with("it is too small: it has 1073741824 bytes"),
            "{why}"
        );
        assert_eq!(fits(4 << 30, sector), Ok(()));
    }
}

#[test]
fn meta_and_keys_are_checked_while_the_disk_still_has_its_content() {
    let tag = corten_meta::Tag::new(0x4d).unwrap();
    let values = |length: usize| Values::from([(tag, vec![1; length])]);
    assert_eq!(check_content(&values(9), None), Ok(()));
    let why = check_content(&values(1 << 20), None).unwrap_err();
    assert!(why.starts_with("META: the META values need"), "{why}");
    let key = |passphrase: Option<&str>| corten_config::kinds::EncryptionKey {
        fixed: passphrase.map(|text| corten_config::kinds::StaticKey {
            passphrase: corten_values::Secret::new(text),
        }),
        ..Default::default()
    };
    let with = |key| Encryption {
        keys: vec![key],
        ..Encryption::default()
    };
    assert_eq!(
        check_content(&values(9), Some(&with(key(Some("a"))))),
        Ok(())
    );
    let why = check_content(&values(9), Some(&with(key(None)))).unwrap_err();
    assert!(
        why.starts_with(
            "STATE cannot be encrypted: no key of its config can be used: the key of slot 0: "
        ),
        "{why}"
    );
}

#[test]
fn changed_or_vanished_disk_is_named_as_the_cause() {
    assert_eq!(check_length(5, 5), Ok(()));
    let why = check_length(5, 4).unwrap_err();
    assert!(
        why.starts_with("its size has changed from 5 to 4 bytes"),
        "{why}"
    );
    let gone = Disk::new("no-such-disk", 7);
    let why = told(&gone, "writing to", &io::Error::from_raw_os_error(5));
    assert!(
        why.starts_with("writing to no-such-disk: the disk has disappeared ("),
        "{why}"
    );
}
