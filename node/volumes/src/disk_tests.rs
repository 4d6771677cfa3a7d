use super::*;

fn partition(sysfs: &Path, disk: &str, number: u32, label: &str) {
    let dir = sysfs.join(format!("block/{disk}/{disk}{number}"));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("partition"), format!("{number}\n")).unwrap();
    let uevent = format!("MAJOR=254\nDEVTYPE=partition\nPARTN={number}\nPARTNAME={label}\n");
    fs::write(dir.join("uevent"), uevent).unwrap();
    fs::write(dir.join("start"), format!("{}\n", number * 2048)).unwrap();
    fs::write(dir.join("size"), "4096\n").unwrap();
}

#[test]
fn disk_that_is_replaced_or_unplugged_is_no_longer_there() {
    let sysfs = tempfile::tempdir().unwrap();
    let directory = sysfs.path().join("block/vdb");
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join("diskseq"), "9\n").unwrap();
    let disk = Disk::found(sysfs.path(), "vdb");
    assert!(disk.is_there());
    fs::write(directory.join("diskseq"), "10\n").unwrap();
    assert!(!disk.is_there());
    let unknown = Disk {
        sequence: 0,
        ..disk
    };
    assert!(unknown.is_there());
    fs::remove_dir_all(&directory).unwrap();
    assert!(!unknown.is_there());
}

#[test]
fn disk_with_a_meta_partition_is_the_system_disk() {
    let sysfs = tempfile::tempdir().unwrap();
    fs::create_dir_all(sysfs.path().join("block/sr0/queue")).unwrap();
    let nothing_known = |_: &Disk| false;
    let system_disk = |sysfs: &Path| choose(None, sysfs, nothing_known);
    assert_eq!(system_disk(sysfs.path()).unwrap(), None);
    partition(sysfs.path(), "sda", 1, "EFI");
    assert_eq!(system_disk(sysfs.path()).unwrap(), None);
    partition(sysfs.path(), "vda", 1, "EFI");
    partition(sysfs.path(), "vda", 3, "META");
    let disk = system_disk(sysfs.path()).unwrap().unwrap();
    assert_eq!(disk.device(), Path::new("/dev/vda"));
    assert_eq!(disk.sequence, 0);
    fs::write(sysfs.path().join("block/vda/diskseq"), "9\n").unwrap();
    let disk = system_disk(sysfs.path()).unwrap().unwrap();
    assert_eq!(disk.sequence, 9);
    assert_eq!(disk.partition(3).unwrap(), Path::new("/dev/vda3"));
    disk.partition(2).unwrap_err();
    let mut known = extents(sysfs.path(), "vda");
    known.sort_by_key(|extent| extent.number);
    let known: Vec<_> = known
        .iter()
        .map(|extent| (extent.number, extent.start, extent.length))
        .collect();
    assert_eq!(known, [(1, 1 << 20, 2 << 20), (3, 3 << 20, 2 << 20)]);
    assert!(!disk.is_read_only());
    fs::write(sysfs.path().join("block/vda/ro"), "1\n").unwrap();
    assert!(disk.is_read_only());
    partition(sysfs.path(), "sda", 2, "META");
    let error = system_disk(sysfs.path()).unwrap_err().to_string();
    assert!(error.contains("sda, vda"), "{error}");
    assert!(error.ends_with(DETACH), "{error}");
    let from = |name: &'static str| move |disk: &Disk| disk.name == name;
    let started = choose(None, sysfs.path(), from("sda")).unwrap();
    assert_eq!(started.unwrap().name, "sda");
    // Copies of one disk are indistinguishable.
    choose(None, sysfs.path(), |_| true).unwrap_err();
}

#[test]
fn meta_disk_plugged_in_later_is_not_the_system_disk() {
    let sysfs = tempfile::tempdir().unwrap();
    let sequence = |disk: &str, number: &str| {
        fs::write(sysfs.path().join(format!("block/{disk}/diskseq")), number).unwrap();
    };
    partition(sysfs.path(), "vda", 3, "META");
    sequence("vda", "3\n");
    let mut before = None;
    let mut chosen = |started_from: &str| {
        let found = choose(before.as_ref(), sysfs.path(), |disk| {
            disk.name == started_from
        });
        let found = found.map_err(|error| error.to_string())?;
        if found.is_some() {
            before.clone_from(&found);
        }
        Ok::<_, String>(found.map(|disk| (disk.name, disk.sequence)))
    };
    let own = || Ok(Some(("vda".to_owned(), 3)));
    assert_eq!(chosen(""), own());
    partition(sysfs.path(), "sdb", 1, "META");
    sequence("sdb", "7\n");
    assert_eq!(chosen(""), own());
    assert_eq!(chosen("sdb"), own());
    // Another disk has its name now.
    sequence("vda", "9\n");
    let why = chosen("").unwrap_err();
    assert!(why.contains("vda, which carries the node, is gone") && why.contains("sdb, vda"));
    fs::remove_dir_all(sysfs.path().join("block/sdb")).unwrap();
    chosen("").unwrap_err();
    // The firmware started the node from it, so it is the same disk.
    assert_eq!(chosen("vda"), Ok(Some(("vda".to_owned(), 9))));
    fs::remove_dir_all(sysfs.path().join("block/vda")).unwrap();
    assert_eq!(chosen("vda"), Ok(None));
}

#[test]
fn boot_loader_variables_identify_the_start_partition() {
    let sysfs = tempfile::tempdir().unwrap();
    let variables = sysfs.path().join("firmware/efi/efivars");
    assert_eq!(started_from(sysfs.path()), None);
    fs::create_dir_all(&variables).unwrap();
    let set = |name: &str, value: &str| {
        let mut bytes = vec![6, 0, 0, 0];
        bytes.extend(value.encode_utf16().flat_map(u16::to_le_bytes));
        let name = format!("{name}-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f");
        fs::write(variables.join(name), bytes).unwrap();
    };
    set(
        "StubDevicePartUUID",
        "00000000-0000-0000-0000-00000000000A\0",
    );
    assert_eq!(started_from(sysfs.path()), Some(Uuid::from_u128(10)));
    set(
        "LoaderDevicePartUUID",
        "00000000-0000-0000-0000-00000000000B\0",
    );
    assert_eq!(started_from(sysfs.path()), Some(Uuid::from_u128(11)));
    for nonsense in ["", "\0", "vda1\0", "\u{fffe}"] {
        set("LoaderDevicePartUUID", nonsense);
        assert_eq!(started_from(sysfs.path()), Some(Uuid::from_u128(10)));
    }
}

#[test]
fn device_with_another_sequence_number_is_not_opened() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = |number| open_on(number, file.path(), File::options().read(true));
    open(0).unwrap();
    // The file is not a disk.
    open(9).unwrap_err();
}

#[test]
fn content_is_detected_from_the_first_bytes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let is = |bytes: &[u8]| {
        fs::write(file.path(), bytes).unwrap();
        content(file.path())
    };
    let mut block = vec![0; 4096];
    assert_eq!(is(&block).unwrap(), Content::Nothing);
    block[4095] = 1;
    assert_eq!(is(&block).unwrap(), Content::Foreign);
    block[..4].copy_from_slice(b"XFSB");
    assert_eq!(is(&block).unwrap(), Content::Xfs);
    block[126] = 1;
    assert_eq!(is(&block).unwrap(), Content::Nothing);
    // The node makes no volumes of version 1, and must not overwrite them either.
    block[..8].copy_from_slice(b"LUKS\xba\xbe\0\x01");
    assert_eq!(is(&block).unwrap(), Content::Luks);
    is(&[0; 100]).unwrap_err();
}
