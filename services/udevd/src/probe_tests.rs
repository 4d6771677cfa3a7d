use super::{Content, HEAD, content};
use crate::partitions::{partition, table};
use proptest::prelude::{any, proptest};

/// A device whose first bytes are zero except for `parts`.
fn head(parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut head = vec![0; HEAD];
    for (offset, bytes) in parts {
        head[*offset..*offset + bytes.len()].copy_from_slice(bytes);
    }
    head
}

const ID: [u8; 16] = [
    0x5e, 0x3b, 0x0c, 0x5a, 0x8f, 0x0d, 0x4d, 0x0c, 0x9d, 0x0b, 0x6a, 0x2c, 0x3f, 0x31, 0x7e, 0x10,
];
const UUID: &str = "5e3b0c5a-8f0d-4d0c-9d0b-6a2c3f317e10";

#[track_caller]
fn is(head: &[u8], kind: &str, uuid: Option<&str>, label: Option<&str>) -> Content {
    let found = content(head).unwrap();
    assert_eq!(
        (found.kind, found.uuid.as_deref(), found.label.as_deref()),
        (kind, uuid, label),
        "{found:?}"
    );
    found
}

#[test]
fn linux_file_systems_are_identified() {
    is(
        &head(&[(0, b"XFSB"), (32, &ID), (108, b"data")]),
        "xfs",
        Some(UUID),
        Some("data"),
    );
    let ext = |incompatible: u8, compatible: u8| {
        head(&[
            (1080, &[0x53, 0xef]),
            (1116, &[compatible]),
            (1120, &[incompatible]),
            (1128, &ID),
            (1144, b"root\0junk"),
        ])
    };
    is(&ext(0x42, 0x4), "ext4", Some(UUID), Some("root"));
    is(&ext(0x6, 0x4), "ext3", Some(UUID), Some("root"));
    is(&ext(0x2, 0x0), "ext2", Some(UUID), Some("root"));
    assert_eq!(
        content(&ext(0x8, 0x4)),
        None,
        "an external journal is no file system"
    );
    let btrfs = [(65568, &ID[..]), (65600, b"_BHRfS_M"), (65835, b"pool")];
    is(&head(&btrfs), "btrfs", Some(UUID), Some("pool"));
    is(
        &head(&[(0, b"hsqs"), (28, &[4, 0])]),
        "squashfs",
        None,
        None,
    );
    let erofs = [(1024, &[0xe2, 0xe1, 0xf5, 0xe0][..]), (1072, &ID)];
    is(&head(&erofs), "erofs", Some(UUID), None);
}

#[test]
fn containers_and_swap_are_identified() {
    let luks = head(&[
        (0, b"LUKS\xba\xbe\0\x02"),
        (24, b"state"),
        (168, UUID.as_bytes()),
        // Remains of an earlier file system do not count.
        (1080, &[0x53, 0xef]),
    ]);
    assert_eq!(
        is(&luks, "crypto_LUKS", Some(UUID), Some("state")).version,
        Some("2")
    );
    let lvm = head(&[
        (512, b"LABELONE"),
        (532, &[32, 0, 0, 0]),
        (536, b"LVM2 001"),
        (544, b"abcdefghijklmnopqrstuvwxyz012345"),
    ]);
    is(
        &lvm,
        "LVM2_member",
        Some("abcdef-ghij-klmn-opqr-stuv-wxyz-012345"),
        None,
    );
    let raid = [
        (4096, &[0xfc, 0x4e, 0x2b, 0xa9, 1][..]),
        (4112, &ID),
        (4128, b"host:0"),
    ];
    is(
        &head(&raid),
        "linux_raid_member",
        Some(UUID),
        Some("host:0"),
    );
    is(
        &head(&[(0, b"verity\0\0"), (16, &ID)]),
        "DM_verity_hash",
        Some(UUID),
        None,
    );
    let swap = [
        (1024, &[1][..]),
        (1036, &ID),
        (1052, b"swap0"),
        (4086, b"SWAPSPACE2"),
    ];
    is(&head(&swap), "swap", Some(UUID), Some("swap0"));
}

#[test]
fn foreign_file_systems_are_identified() {
    let iso = [
        (32768, &b"\x01CD001"[..]),
        (32808, b"CORTEN                          "),
        (33581, b"2025010203040506"),
        (33598, b"0000000000000000"),
    ];
    is(
        &head(&iso),
        "iso9660",
        Some("2025-01-02-03-04-05-06"),
        Some("CORTEN"),
    );
    let mut fat32 = head(&[
        (0, &[0xeb, 0x58, 0x90]),
        (11, &[0, 2, 1, 32, 0, 2]),
        (21, &[0xf8]),
        (66, &[0x29, 0xef, 0xbe, 0xad, 0xde]),
        (71, b"EFI        FAT32   "),
        (510, &[0x55, 0xaa]),
    ]);
    assert_eq!(
        is(&fat32, "vfat", Some("DEAD-BEEF"), Some("EFI")).version,
        Some("FAT32")
    );
    assert_eq!(table(&fat32), None);
    fat32[13] = 3;
    assert_eq!(
        content(&fat32),
        None,
        "three sectors in a cluster is no FAT"
    );
}

proptest! {
    #[test]
    fn hostile_devices_never_panic(noise: Vec<u8>, cut in 0usize..=HEAD, at in any::<usize>()) {
        const MAGICS: [(usize, &[u8]); 8] = [
            (0, b"LUKS\xba\xbe\0\x02"),
            (512, b"LABELONE\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xffLVM2 001"),
            (4096, &[0xfc, 0x4e, 0x2b, 0xa9, 1]),
            (1080, &[0x53, 0xef]),
            (65600, b"_BHRfS_M"),
            (32768, b"\x01CD001"),
            (512, b"EFI PART"),
            (510, &[0x55, 0xaa]),
        ];
        let mut bytes = head(&[MAGICS[at % MAGICS.len()]]);
        let start = (at / 8) % HEAD;
        for (place, byte) in bytes[start..].iter_mut().zip(noise) {
            *place = byte;
        }
        bytes.truncate(cut);
        let _ = content(&bytes);
        let _ = table(&bytes);
        let _ = partition(&bytes, u32::try_from(at % 1000).unwrap());
    }
}
