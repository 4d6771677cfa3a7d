//! Tests of the whole crate; tests of one file are in that file.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io;

use crate::{Cost, DATA_OFFSET, Device, Luks, LuksError, VolumeKey, binary};

/// The cheapest accepted cost.
const CHEAP: Cost = Cost {
    memory: 32,
    time: 1,
    lanes: 1,
};

/// A device in memory that records every write.
#[derive(Default)]
struct Recorder {
    bytes: RefCell<Vec<u8>>,
    writes: RefCell<Vec<(usize, Vec<u8>)>>,
    /// Offset at which writes fail after some bytes.
    fails_at: Cell<Option<usize>>,
}

impl Recorder {
    fn of(bytes: Vec<u8>) -> Recorder {
        Recorder {
            bytes: RefCell::new(bytes),
            ..Recorder::default()
        }
    }

    fn empty() -> Recorder {
        Recorder::of(vec![0; usize::try_from(DATA_OFFSET).unwrap()])
    }

    /// A device with room for both headers and a few slots.
    fn short() -> Recorder {
        Recorder::of(vec![0; 1 << 20])
    }
}

impl Device for Recorder {
    fn load(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let all = self.bytes.borrow();
        let offset = usize::try_from(offset).unwrap();
        let found = all
            .get(offset..offset + bytes.len())
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn store(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        let fails = self.fails_at.get() == Some(offset);
        let bytes = &bytes[..if fails { 100 } else { bytes.len() }];
        self.bytes.borrow_mut()[offset..offset + bytes.len()].copy_from_slice(bytes);
        if fails {
            return Err(io::ErrorKind::Other.into());
        }
        self.writes.borrow_mut().push((offset, bytes.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Calls `check` with the device after each write was cut off at several points.
fn torn(before: &[u8], writes: &[(usize, Vec<u8>)], mut check: impl FnMut(Recorder)) {
    let mut bytes = before.to_vec();
    for (offset, written) in writes {
        let length = written.len();
        for cut in [0, 1, 8, 100, 512, 4096, length / 2, length - 1, length] {
            let cut = cut.min(length);
            bytes[*offset..offset + cut].copy_from_slice(&written[..cut]);
            check(Recorder::of(bytes.clone()));
        }
    }
}

/// Repairs a header without two valid copies, as the next boot does. A power cut during the repair must not lose a key
/// either.
fn mend(device: &Recorder, slot: u8, passphrase: &str, key: &VolumeKey) -> bool {
    let mut luks = read(device);
    if luks.is_whole() {
        return false;
    }
    let before = device.bytes.borrow().clone();
    luks.write(device).unwrap();
    assert!(read(device).is_whole());
    torn(&before, &device.writes.take(), |device| {
        assert_eq!(opens(&device, slot, passphrase).as_ref(), Some(key));
    });
    true
}

fn volume<D: Device>(device: &D, keys: &[(u8, &str)]) -> VolumeKey {
    let (mut luks, key) = Luks::new(32, 512).unwrap();
    for (slot, passphrase) in keys {
        luks.set_key(device, *slot, &key, passphrase.as_bytes(), CHEAP)
            .unwrap();
    }
    luks.write(device).unwrap();
    key
}

fn read<D: Device>(device: &D) -> Luks {
    Luks::read(device).unwrap().unwrap()
}

fn opens<D: Device>(device: &D, slot: u8, passphrase: &str) -> Option<VolumeKey> {
    read(device)
        .unlock(device, slot, passphrase.as_bytes())
        .unwrap()
}

#[test]
fn volume_is_opened_by_its_own_keys_only() {
    let device = Recorder::empty();
    let key = volume(&device, &[(0, "one"), (7, "two")]);
    let luks = read(&device);
    assert_eq!((luks.slots(), luks.is_whole()), (vec![0, 7], true));
    let segment = luks.segment().unwrap();
    assert_eq!((segment.offset, segment.sector_size), (DATA_OFFSET, 512));
    assert_eq!(opens(&device, 0, "one").as_ref(), Some(&key));
    assert_eq!(opens(&device, 7, "two").as_ref(), Some(&key));
    for (slot, passphrase) in [(0, "two"), (7, ""), (1, "one"), (40, "one")] {
        assert_eq!(opens(&device, slot, passphrase), None);
    }
    assert_eq!(format!("{key:?}"), "<secret>");
    assert!(Luks::new(48, 512).is_err() && Luks::new(64, 520).is_err());
}

#[test]
fn a_replaced_or_removed_key_is_wiped() {
    let device = Recorder::empty();
    let key = volume(&device, &[(0, "one"), (1, "two")]);
    let before = device.bytes.borrow().clone();
    let mut luks = read(&device);
    luks.set_key(&device, 0, &key, b"three", CHEAP).unwrap();
    luks.remove_key(1).unwrap();
    // The area is not wiped before the new header is written.
    assert_eq!(opens(&device, 0, "one").as_ref(), Some(&key));
    luks.write(&device).unwrap();
    assert_eq!(opens(&device, 0, "three").as_ref(), Some(&key));
    assert_eq!(opens(&device, 0, "one"), None);
    let after = device.bytes.borrow();
    let areas = 32 << 10..(32 << 10) + 2 * (128 << 10);
    assert!(before[areas.clone()].iter().any(|byte| *byte != 0));
    assert!(after[areas].iter().all(|byte| *byte == 0));
    let last = luks.remove_key(0).unwrap_err().to_string();
    assert!(last.contains("slot 0 is the last slot"), "{last}");
    luks.remove_key(9).unwrap();
    let (_, foreign) = Luks::new(32, 512).unwrap();
    let other = Recorder::empty();
    luks.set_key(&other, 2, &foreign, b"x", CHEAP).unwrap_err();
    luks.set_key(&other, 32, &key, b"x", CHEAP).unwrap_err();
}

#[test]
fn key_slots_are_allocated_until_the_header_is_full() {
    let device = Recorder::empty();
    let key = volume(&device, &[(0, "0")]);
    let mut luks = read(&device);
    for slot in 1..32 {
        luks.set_key(&device, slot, &key, b"x", CHEAP).unwrap();
    }
    luks.write(&device).unwrap();
    assert_eq!(read(&device).slots(), (0..32).collect::<Vec<u8>>());
    assert_eq!(opens(&device, 31, "x"), Some(key.clone()));
    // The area of a replaced slot is free only after the write.
    let full =
        |luks: &mut Luks| (0..200).find_map(|_| luks.set_key(&device, 5, &key, b"y", CHEAP).err());
    let why = full(&mut luks).unwrap().to_string();
    assert!(why.contains("slot 5 has no room on the device"), "{why}");
    luks.write(&device).unwrap();
    luks.set_key(&device, 5, &key, b"z", CHEAP).unwrap();
    luks.write(&device).unwrap();
    assert_eq!(opens(&device, 5, "z"), Some(key));
}

/// A power cut during creation leaves no volume or a complete one.
#[test]
fn torn_first_write_leaves_no_volume_or_a_whole_one() {
    let device = Recorder::short();
    let empty = device.bytes.borrow().clone();
    let key = volume(&device, &[(0, "one")]);
    let writes = device.writes.take();
    let (mut made, mut mended) = (0, 0);
    torn(&empty, &writes, |device| {
        if Luks::read(&device).unwrap().is_none() {
            assert!(device.bytes.borrow()[..4096].iter().all(|byte| *byte == 0));
            return;
        }
        made += 1;
        assert_eq!(opens(&device, 0, "one").as_ref(), Some(&key));
        mended += usize::from(mend(&device, 0, "one", &key));
    });
    assert!(made > mended && mended > 4, "{made} {mended}");
}

/// A power cut during a key change leaves the old or the new key.
#[test]
fn a_torn_change_leaves_the_old_or_the_new_key() {
    let device = Recorder::short();
    let key = volume(&device, &[(0, "old"), (1, "kept")]);
    let before = device.bytes.borrow().clone();
    device.writes.take();
    let mut luks = read(&device);
    luks.set_key(&device, 0, &key, b"new", CHEAP).unwrap();
    luks.write(&device).unwrap();
    let (mut old, mut new, mut mended) = (0, 0, 0);
    torn(&before, &device.writes.take(), |device| {
        assert_eq!(opens(&device, 1, "kept").as_ref(), Some(&key));
        if opens(&device, 0, "old").as_ref() == Some(&key) {
            old += 1;
        } else {
            new += 1;
            assert_eq!(opens(&device, 0, "new").as_ref(), Some(&key));
        }
        mended += usize::from(mend(&device, 1, "kept", &key));
    });
    assert!(old > 8 && new > 8 && mended > 8, "{old} {new} {mended}");
}

/// A retry must not begin with the only valid copy.
#[test]
fn failed_write_is_repaired_by_the_next_write() {
    let device = Recorder::short();
    let key = volume(&device, &[(0, "one")]);
    for (broken, other) in [(0, 16 << 10), (16 << 10, 0)] {
        let mut luks = read(&device);
        device.fails_at.set(Some(broken));
        luks.write(&device).unwrap_err();
        assert!(!luks.is_whole());
        assert_eq!(opens(&device, 0, "one").as_ref(), Some(&key));
        device.writes.take();
        // The disk works again, or its other half fails.
        device.fails_at.set(Some(other));
        luks.write(&device).unwrap_err();
        assert_eq!(opens(&device, 0, "one").as_ref(), Some(&key));
        device.fails_at.set(None);
        luks.write(&device).unwrap();
        assert!(read(&device).is_whole());
    }
}

#[test]
fn one_valid_header_copy_is_enough_and_the_loss_of_both_is_reported() {
    let device = Recorder::empty();
    let key = volume(&device, &[(0, "one")]);
    let whole = device.bytes.borrow().clone();
    for broken in [100, 5000, (16 << 10) + 100] {
        let mut bytes = whole.clone();
        bytes[broken] ^= 1;
        let device = Recorder::of(bytes);
        assert_eq!(opens(&device, 0, "one").as_ref(), Some(&key));
        assert!(!read(&device).is_whole());
    }
    let mut bytes = whole.clone();
    bytes[100] ^= 1;
    bytes[(16 << 10) + 100] ^= 1;
    let why = Luks::read(&Recorder::of(bytes)).unwrap_err().to_string();
    assert!(why.contains("both copies"), "{why}");
    let mut bytes = whole;
    bytes[7] = 1;
    bytes[16 << 10] ^= 1;
    assert!(matches!(
        Luks::read(&Recorder::of(bytes)),
        Err(LuksError::Version(1))
    ));
    // The start is lost and the rest is damaged. If the keys of the volume had changed before, this is not an
    // unfinished creation.
    for (changes, lost) in [(0, false), (1, true)] {
        let device = Recorder::short();
        volume(&device, &[(0, "one")]);
        for _ in 0..changes {
            read(&device).write(&device).unwrap();
        }
        let mut bytes = device.bytes.take();
        bytes[..4096].fill(0);
        bytes[(16 << 10) + 5000] ^= 1;
        let found = Luks::read(&Recorder::of(bytes));
        assert_eq!(matches!(found, Err(LuksError::Damaged(_))), lost);
        assert_eq!(matches!(found, Ok(None)), !lost);
    }
    for nothing in [vec![], vec![0; 100], vec![0; 8 << 20]] {
        assert!(Luks::read(&Recorder::of(nothing)).unwrap().is_none());
    }
}

/// A volume made by this crate when it was first checked against `cryptsetup`, up to the end of its only slot (0,
/// `correct horse`). Later versions must still open it.
#[test]
fn volume_of_an_earlier_version_is_opened() {
    let mut bytes = include_bytes!("golden.luks").to_vec();
    bytes.resize(usize::try_from(DATA_OFFSET).unwrap(), 0);
    let device = Recorder::of(bytes);
    let key = opens(&device, 0, "correct horse").unwrap();
    assert_eq!(opens(&device, 0, "correct house"), None);
    let digest = ring::digest::digest(&ring::digest::SHA256, key.bytes());
    assert_eq!(digest.as_ref()[..4], GOLDEN_KEY);
}

/// First bytes of the hash of its key.
const GOLDEN_KEY: [u8; 4] = [175, 231, 38, 5];

/// A volume with other JSON in the newer copy of its header, with a valid checksum.
fn edited(edit: impl FnOnce(String) -> String) -> Recorder {
    let device = Recorder::empty();
    volume(&device, &[(0, "one")]);
    let mut copy = binary::read(&device).unwrap().first.unwrap();
    copy.json = edit(copy.json);
    copy.sequence += 1;
    let first = binary::encode(&copy, binary::Place::First).unwrap();
    device.store(&first, 0).unwrap();
    device
}

/// A volume with one part of its JSON replaced; the part must exist.
fn replaced(from: &str, to: &str) -> Recorder {
    edited(|json| {
        assert!(json.contains(from), "{from}: {json}");
        json.replacen(from, to, 1)
    })
}

#[test]
fn forbidden_header_contents_are_refused_by_name() {
    for (from, to, why) in [
        (
            r#""type":"crypt""#,
            r#""type":"linear""#,
            "not only encrypted",
        ),
        (
            "aes-xts-plain64\",\"sector",
            "aes 0 /dev/sda\",\"sector",
            "invalid cipher name",
        ),
        (r#""sector_size":512"#, r#""sector_size":520"#, "520 bytes"),
        (
            r#""offset":"16777216""#,
            r#""offset":"16777217""#,
            "at a sector boundary",
        ),
        (
            r#""segments":{"#,
            r#""segments":{"1":{},"#,
            "fewer than one segment",
        ),
        (
            r#""json_size":"#,
            r#""requirements":{"mandatory":["x"]},"json_size":"#,
            "requirements",
        ),
        (
            r#""json_size":"#,
            r#""requirements":["x"],"json_size":"#,
            "requirements",
        ),
        ("{", "[", "malformed JSON"),
    ] {
        let error = Luks::read(&replaced(from, to)).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn key_slot_without_a_data_segment_opens_nothing() {
    let device = replaced(r#""segments":["0"]"#, r#""segments":[]"#);
    let luks = read(&device);
    assert!(luks.slots().is_empty());
    assert!(luks.unlock(&device, 0, b"one").unwrap().is_none());
    // An empty list of requirements is the same as none.
    let nothing = replaced(
        r#""json_size":"#,
        r#""requirements":{"mandatory":[]},"json_size":"#,
    );
    assert_eq!(read(&nothing).slots(), [0]);
}

#[test]
fn key_slots_with_excessive_costs_are_refused() {
    for (from, to, why) in [
        (r#""memory":32"#, r#""memory":4194304"#, "needs 4194304 KiB"),
        (
            r#""memory":32"#,
            r#""memory":131072"#,
            "131072 KiB of memory (at most 65536 KiB are allowed)",
        ),
        (r#""time":1"#, r#""time":1000000"#, "1000000 passes"),
        (r#""cpus":1"#, r#""cpus":0"#, "Argon2"),
        (
            r#""offset":"32768""#,
            r#""offset":"512""#,
            "outside of the key slot area",
        ),
        (
            r#""offset":"32768""#,
            r#""offset":"18446744073709551615""#,
            "outside of the key slot area",
        ),
        (r#""stripes":4000"#, r#""stripes":1"#, "unknown type"),
        (
            r#""key_size":32,"af""#,
            r#""key_size":32000000,"af""#,
            "32000000 bytes",
        ),
        (
            r#""hash":"sha256"},"area""#,
            r#""hash":"md4"},"area""#,
            "md4",
        ),
        (r#""iterations":1000"#, r#""iterations":0"#, "0 iterations"),
        (r#""type":"luks2""#, r#""type":"reencrypt""#, "unknown type"),
    ] {
        let device = replaced(from, to);
        let mut luks = read(&device);
        luks.limit_memory(0);
        let error = luks.unlock(&device, 0, b"one").unwrap_err();
        assert!(error.to_string().contains(why), "{from}: {error}");
    }
}

/// Data that another tool stores in a header is preserved.
#[test]
fn unknown_header_fields_are_kept() {
    let token = r#""type":"other","keyslots":["0","1"],"x":1"#;
    let device = edited(|json| {
        json.replacen(
            r#""tokens":{}"#,
            &format!(r#""tokens":{{"0":{{{token}}}}}"#),
            1,
        )
        .replacen(
            r#""json_size""#,
            r#""flags":["allow-discards"],"json_size""#,
            1,
        )
    });
    let mut luks = read(&device);
    let key = luks.unlock(&device, 0, b"one").unwrap().unwrap();
    luks.set_key(&device, 1, &key, b"two", CHEAP).unwrap();
    luks.remove_key(0).unwrap();
    luks.write(&device).unwrap();
    let json = binary::read(&device).unwrap().first.unwrap().json;
    assert!(json.contains(r#""flags":["allow-discards"]"#), "{json}");
    let token = r#""type":"other","keyslots":["1"],"x":1"#;
    assert!(json.contains(token), "{json}");
    assert_eq!(opens(&device, 1, "two"), Some(key));
}

#[test]
fn volume_in_a_regular_file_is_opened() {
    let file: File = tempfile::tempfile().unwrap();
    file.set_len(DATA_OFFSET).unwrap();
    let key = volume(&file, &[(3, "words")]);
    assert_eq!(opens(&file, 3, "words"), Some(key));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn hostile_bytes_never_panic(at in 0_usize..33_000, value: u8, json in ".{0,300}") {
        let device = Recorder::empty();
        volume(&device, &[(0, "one")]);
        device.bytes.borrow_mut()[at] = value;
        if let Ok(Some(luks)) = Luks::read(&device) {
            let _ = luks.unlock(&device, 0, b"one");
        }
        let _ = Luks::read(&edited(|_| json.replace('\0', " ")));
    }
}

#[test]
fn label_is_kept_and_bounded() {
    let device = Recorder::short();
    let (mut luks, _) = Luks::new(64, 512).unwrap();
    assert_eq!(luks.label(), "");
    let longest = "a".repeat(47);
    luks.set_label(&longest).unwrap();
    for wrong in ["a".repeat(48), "a\0b".to_owned()] {
        luks.set_label(&wrong).unwrap_err();
    }
    luks.write(&device).unwrap();
    let read = Luks::read(&device).unwrap().unwrap();
    assert!(read.label() == longest && read.is_whole());
}
