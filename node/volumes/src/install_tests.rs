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
