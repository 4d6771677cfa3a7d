use std::time::Duration;

use corten_config::kinds::{EncryptionKey, NodeIdKey, StaticKey};
use corten_values::Secret;
use sha2::Digest as _;

use super::*;

const MACHINE_UUID: &str = "4C4C4544-0050-3510-8033-B4C04F4D3732\n";
/// The cheapest key derivation.
const CHEAP: Cost = Cost {
    memory: 32,
    time: 1,
    lanes: 1,
};

fn fixed(slot: u8, text: &str) -> EncryptionKey {
    EncryptionKey {
        slot,
        fixed: Some(StaticKey {
            passphrase: Secret::new(text),
        }),
        ..EncryptionKey::default()
    }
}

fn of_machine(slot: u8) -> EncryptionKey {
    EncryptionKey {
        slot,
        node_id: Some(NodeIdKey {}),
        ..EncryptionKey::default()
    }
}

fn wanted(keys: Vec<EncryptionKey>) -> Encryption {
    Encryption {
        keys,
        ..Encryption::default()
    }
}

/// A partition with a volume that these keys open.
fn volume(keys: &Keys) -> (File, Luks, VolumeKey) {
    let file = tempfile::tempfile().unwrap();
    file.set_len(32 << 20).unwrap();
    let (mut luks, key) = new_header("STATE", &wanted(Vec::new())).unwrap();
    for Key {
        slot, passphrase, ..
    } in &keys.usable
    {
        luks.set_key(&file, *slot, &key, passphrase, CHEAP).unwrap();
    }
    luks.write(&file).unwrap();
    (file, luks, key)
}

fn keys(keys: Vec<EncryptionKey>) -> Keys {
    Keys::of("STATE", &wanted(keys), MACHINE_UUID)
}

#[test]
fn node_id_key_is_the_machine_uuid_and_the_volume_name() {
    let keys = keys(vec![fixed(3, "words"), of_machine(0)]);
    let found: Vec<_> = keys
        .usable
        .iter()
        .map(|key| (key.slot, key.kind, key.passphrase.as_slice()))
        .collect();
    let uuid: &[u8] = b"4c4c4544-0050-3510-8033-b4c04f4d3732STATE";
    assert_eq!(found, [(0, "nodeID", uuid), (3, "static", b"words")]);
    for machine in [
        "",
        "To be filled by O.E.M.",
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffff0000",
    ] {
        let keys = Keys::of("STATE", &wanted(vec![of_machine(1)]), machine);
        assert!(keys.usable.is_empty(), "{machine}");
        assert_eq!(keys.left, [1]);
        assert!(keys.complaints[0].contains("slot 1: nodeID needs"));
    }
}

/// Whole disks are found by the header's label; the file system inside has another.
#[test]
fn luks_header_has_the_label_of_its_volume() {
    let longest = format!("u-{}", "a".repeat(34));
    for volume in ["STATE", "u-data", &longest] {
        let (luks, _) = new_header(volume, &wanted(Vec::new())).unwrap();
        assert_eq!(luks.label(), format!("luks2-{volume}"));
        let device = mapped(volume);
        assert_eq!(device.file_name().unwrap(), luks.label());
    }
}

#[test]
fn wrong_key_error_names_the_slots_and_kinds_tried() {
    let right = keys(vec![fixed(0, "right"), of_machine(1)]);
    let (file, luks, key) = volume(&right);
    let (found, opener) = right.find(&luks, &file).unwrap();
    assert!(found == key && opener == 0);
    let wrong = Keys::of(
        "EPHEMERAL",
        &wanted(vec![fixed(0, "wrong"), of_machine(1), fixed(2, "more")]),
        MACHINE_UUID,
    );
    let why = wrong.find(&luks, &file).unwrap_err();
    assert_eq!(
        why,
        "is encrypted, and no key of its config opens it: static is not the key of slot 0, \
         nodeID is not the key of slot 1, slot 2 (static) is empty; add a key that opens it"
    );
    assert!(!why.contains("wrong") && !why.contains("more"));
}

#[test]
fn key_slots_follow_the_config_and_underivable_keys_are_kept() {
    let (file, _, key) = volume(&keys(vec![
        fixed(0, "zero"),
        fixed(1, "one"),
        fixed(2, "two"),
        fixed(4, "four"),
    ]));
    let read = || Luks::read(&file).unwrap().unwrap();
    // Slot 0 is kept, 1 replaced, 2 removed, 3 added; the key of slot 4 cannot be derived on this machine.
    let next = Keys::of(
        "STATE",
        &wanted(vec![
            fixed(0, "zero"),
            fixed(1, "uno"),
            fixed(3, "three"),
            of_machine(4),
        ]),
        "",
    );
    let mut luks = read();
    let (found, opener) = next.find(&luks, &file).unwrap();
    next.sync(&mut luks, &file, &found, opener, CHEAP).unwrap();
    let luks = read();
    assert!(luks.is_whole());
    assert_eq!(luks.slots(), [0, 1, 3, 4]);
    let opens =
        |slot, text: &str| luks.unlock(&file, slot, text.as_bytes()).unwrap() == Some(key.clone());
    assert!(opens(0, "zero") && opens(1, "uno") && opens(3, "three") && opens(4, "four"));
    assert!(!opens(1, "one") && !opens(2, "two"));
    // Without changes, nothing is written.
    let before = format!("{luks:?}");
    let mut luks = read();
    next.sync(&mut luks, &file, &key, 0, CHEAP).unwrap();
    assert_eq!(format!("{:?}", read()), before);
}

/// An error in the keys must not prevent the repair of the header.
#[test]
fn luks_header_is_repaired_before_its_keys_change() {
    use std::os::unix::fs::FileExt as _;

    let (file, _, key) = volume(&keys(vec![fixed(0, "zero")]));
    for copy in [100, (16 << 10) + 100] {
        file.write_all_at(b"torn", copy).unwrap();
        let mut luks = Luks::read(&file).unwrap().unwrap();
        assert!(!luks.is_whole());
        // There is no slot 40.
        let next = keys(vec![fixed(0, "zero"), fixed(40, "more")]);
        next.sync(&mut luks, &file, &key, 0, CHEAP).unwrap_err();
        let luks = Luks::read(&file).unwrap().unwrap();
        assert!(luks.is_whole() && luks.slots() == [0]);
    }
}

/// The next config must keep a key that is in its slot; a key that was only wished for does not count.
#[test]
fn key_that_opened_a_volume_is_recorded_with_its_slot() {
    let all = wanted(vec![fixed(0, "zero"), of_machine(1), fixed(2, "two")]);
    let (file, _, key) = volume(&keys(vec![fixed(0, "zero")]));
    let known = |keys: &Keys| {
        let mut luks = Luks::read(&file).unwrap().unwrap();
        let slots = keys.settle("STATE", &mut luks, &file, &key, 0, CHEAP);
        with_slots(&all, &slots)
    };
    // Without its UUID, the machine has no key.
    let by = known(&Keys::of("STATE", &all, ""));
    assert!(!wanted(vec![of_machine(1)]).keeps_a_key_of(&by));
    assert!(wanted(vec![fixed(2, "two")]).keeps_a_key_of(&by));
    let by = known(&Keys::of("STATE", &all, MACHINE_UUID));
    assert!(wanted(vec![of_machine(1)]).keeps_a_key_of(&by));
    // If the slots could not be set, nothing is known of the other keys.
    let mut more = all.keys.clone();
    more.push(fixed(40, "more"));
    let by = known(&keys(more));
    assert_eq!(by, wanted(vec![fixed(0, "zero")]));
}

/// Only the config decides how data is encrypted; on a mismatch no key is tried.
#[test]
fn a_header_with_another_cipher_than_the_configs_is_refused() {
    use std::os::unix::fs::FileExt as _;

    let all = wanted(vec![fixed(0, "zero")]);
    let (file, ..) = volume(&Keys::of("STATE", &all, MACHINE_UUID));
    let keys = Keys::of("STATE", &all, MACHINE_UUID);
    let unlocked = || {
        let done = unlock(&keys, Path::new("/dev/vda4"), &file, &all);
        done.map(|(_, _, slot)| slot)
    };
    assert_eq!(unlocked(), Ok(0));
    // Both copies of the header get another data cipher and are otherwise unchanged.
    for copy in [0, 16 << 10] {
        let mut header = vec![0; 16 << 10];
        file.read_exact_at(&mut header, copy).unwrap();
        let segments = header
            .windows(10)
            .position(|word| word == b"\"segments\"")
            .unwrap();
        let cipher = header[segments..]
            .windows(15)
            .position(|word| word == b"aes-xts-plain64")
            .unwrap();
        let cipher = segments + cipher;
        header[cipher..cipher + 15].copy_from_slice(b"cipher_null-ecb");
        // The checksum covers the header with its own field zeroed (specification, section 2.1).
        header[448..512].fill(0);
        let checksum = sha2::Sha256::digest(&header);
        header[448..480].copy_from_slice(&checksum);
        file.write_all_at(&header, copy).unwrap();
    }
    let read = Luks::read(&file).unwrap().unwrap();
    assert_eq!(read.segment().unwrap().encryption, "cipher_null-ecb");
    let why = unlocked().unwrap_err();
    let says = "its LUKS header has the cipher cipher_null-ecb, and the config has aes-xts-plain64";
    assert!(why.contains(says), "{why}");
}

#[test]
fn device_link_is_replaced_whatever_exists_at_its_path() {
    let mapper = tempfile::tempdir().unwrap();
    let path = mapper.path().join("luks2-STATE");
    // A link to another device, and a temporary file of an interrupted attempt.
    symlink("../dm-7", &path).unwrap();
    fs::write(mapper.path().join(".luks2-STATE"), "").unwrap();
    for number in ["dm-0", "dm-0", "dm-1"] {
        link(&path, &Path::new("/dev").join(number)).unwrap();
        let target = fs::read_link(&path).unwrap();
        assert_eq!(target, Path::new("..").join(number));
        assert_eq!(fs::read_dir(mapper.path()).unwrap().count(), 1);
    }
}

#[test]
fn busy_device_is_closed_with_retries_and_a_closed_device_is_no_error() {
    let removed = |answers: &[Option<Errno>]| {
        let mut answers = answers.iter();
        let once = || match answers.next().unwrap() {
            Some(error) => Err(io::Error::from(*error)),
            None => Ok(()),
        };
        gone(while_busy(Duration::ZERO, once)).map(|()| answers.len())
    };
    let busy = Some(Errno::BUSY);
    for done in [None, Some(Errno::NXIO), Some(Errno::NOENT)] {
        assert_eq!(removed(&[done, busy]).unwrap(), 1);
        assert_eq!(removed(&[busy, busy, done, busy]).unwrap(), 1);
    }
    let error = removed(&[busy, Some(Errno::IO), busy]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    let error = removed(&[busy; 60]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceBusy);
}

#[test]
fn device_mapper_table_has_the_crypt_target() {
    let device = Path::new("/dev/vda4");
    let (luks, key) = new_header("STATE", &wanted(Vec::new())).unwrap();
    let hex = data_encoding::HEXLOWER.encode(key.bytes());
    assert_eq!(hex.len(), 128);
    let (sectors, words) =
        table(device, (20 << 20) + 700, &luks, &key, &wanted(Vec::new())).unwrap();
    assert_eq!(sectors, (4 << 20) / 512 + 1);
    assert_eq!(*words, format!("aes-xts-plain64 {hex} 0 /dev/vda4 32768"));

    let more = Encryption {
        key_size: Some(256),
        block_size: Some(4096),
        options: vec!["no_read_workqueue".to_owned()],
        allow_discards: true,
        ..Encryption::default()
    };
    let (luks, key) = new_header("STATE", &more).unwrap();
    let hex = data_encoding::HEXLOWER.encode(key.bytes());
    assert_eq!(hex.len(), 64);
    let (sectors, words) = table(device, (20 << 20) + 700, &luks, &key, &more).unwrap();
    assert_eq!(sectors, (4 << 20) / 512);
    let options = "3 no_read_workqueue allow_discards sector_size:4096";
    assert_eq!(
        *words,
        format!("aes-xts-plain64 {hex} 0 /dev/vda4 32768 {options}")
    );
    for length in [0, 16 << 20, (16 << 20) + 4095] {
        let why = table(device, length, &luks, &key, &more).unwrap_err();
        assert!(why.contains("/dev/vda4 is shorter"), "{why}");
    }
}
