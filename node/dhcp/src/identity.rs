//! DHCP identity of a node, stable across boots (RFC 8415, sections 11 and 12). It has a DUID for the machine and an
//! IAID for each of its links.

use std::fs;
use std::path::Path;

use corten_types::network_names::ClientIdentifier;
use data_encoding::HEXLOWER_PERMISSIVE;
use uuid::{Uuid, uuid};

/// DUID types (RFC 8415, section 11.4; RFC 6355, section 4).
const DUID_LINK_LAYER: u16 = 3;
const DUID_UUID: u16 = 4;
/// Hardware type of Ethernet (IANA, "Hardware Types").
const ETHERNET: u16 = 1;

/// Placeholder UUIDs of firmware vendors that board makers left in place: many machines share them.
const PLACEHOLDERS: [Uuid; 2] = [
    uuid!("03000200-0400-0500-0006-000700080009"),
    uuid!("00020003-0004-0005-0006-000700080009"),
];

/// UUID namespace of the IAIDs; a random constant.
const LINKS: Uuid = uuid!("6f2b9c0e-5d0b-4c3a-9f57-1c8f0f2f8d61");

/// UUID of the machine from its firmware (SMBIOS type 1), read under the file system `root`. `None` when the firmware
/// has none or a placeholder.
#[must_use]
pub fn machine(root: &Path) -> Option<Uuid> {
    let text = fs::read_to_string(root.join("sys/class/dmi/id/product_uuid")).ok()?;
    let uuid = Uuid::parse_str(text.trim()).ok()?;
    let is_own = !uuid.is_nil() && !uuid.is_max() && !PLACEHOLDERS.contains(&uuid);
    is_own.then_some(uuid)
}

/// DUID of the client on a link with this hardware address. It is the DUID of the config, or the hardware address where
/// the config says so, or else the machine's UUID if it has one.
#[must_use]
pub fn duid(said: &ClientIdentifier, machine: Option<Uuid>, mac: &[u8]) -> Vec<u8> {
    match (said.client_identifier, machine) {
        // The config has checked that it is hexadecimal.
        ("duid", _) => HEXLOWER_PERMISSIVE
            .decode(said.duid.as_bytes())
            .unwrap_or_default(),
        ("none", Some(uuid)) => [&DUID_UUID.to_be_bytes()[..], uuid.as_bytes()].concat(),
        _ => [
            &DUID_LINK_LAYER.to_be_bytes()[..],
            &ETHERNET.to_be_bytes(),
            mac,
        ]
        .concat(),
    }
}

/// IAID of a link, unique within its machine. `hardware` is the address of a network card, whose name may change
/// between boots. A link that the config makes is identified by its name, because it may share its address with another
/// link.
#[must_use]
pub fn iaid(name: &str, hardware: Option<&[u8]>) -> u32 {
    let uuid = Uuid::new_v5(&LINKS, hardware.unwrap_or(name.as_bytes()));
    // The first field consists of hash bits only (RFC 9562, section 5.5).
    uuid.as_fields().0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xff];

    #[test]
    fn placeholder_uuids_are_not_used_as_machine_identity() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(machine(root.path()), None);
        let directory = root.path().join("sys/class/dmi/id");
        fs::create_dir_all(&directory).unwrap();
        let own = "4c4c4544-0050-3510-8033-b4c04f4d3732";
        for (text, wanted) in [
            ("4C4C4544-0050-3510-8033-B4C04F4D3732\n", Some(own)),
            ("00000000-0000-0000-0000-000000000000\n", None),
            ("ffffffff-ffff-ffff-ffff-ffffffffffff\n", None),
            ("03000200-0400-0500-0006-000700080009\n", None),
            ("Not Settable\n", None),
        ] {
            fs::write(directory.join("product_uuid"), text).unwrap();
            let found = machine(root.path()).map(|uuid| uuid.to_string());
            assert_eq!(found.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn duid_comes_from_the_config_the_link_or_the_machine() {
        let machine = Some(uuid!("4c4c4544-0050-3510-8033-b4c04f4d3732"));
        let by_link = [0, 3, 0, 1, 2, 0, 0, 0, 0, 0xff];
        let said = |client_identifier, duid: &str| ClientIdentifier {
            client_identifier,
            duid: duid.to_owned(),
        };
        assert_eq!(
            duid(&said("duid", "000100FF"), machine, &MAC),
            [0, 1, 0, 255]
        );
        assert_eq!(duid(&said("mac", ""), machine, &MAC), by_link);
        assert_eq!(duid(&said("none", ""), None, &MAC), by_link);
        let by_machine = duid(&said("none", ""), machine, &MAC);
        assert_eq!(by_machine.len(), 18);
        assert_eq!(by_machine[..6], [0, 4, 0x4c, 0x4c, 0x45, 0x44]);
        assert_eq!(by_machine[17], 0x32);
    }

    #[test]
    fn iaid_of_a_link_is_stable() {
        let card = iaid("eth0", Some(&MAC));
        assert_eq!(card, iaid("eth1", Some(&MAC)));
        let other = [2, 0, 0, 0, 0, 1];
        let numbers = [
            card,
            iaid("eth0", Some(&other)),
            iaid("eth0.5", None),
            iaid("bond0", None),
        ];
        let mut distinct = numbers.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), numbers.len());
        // Changing these numbers would give existing nodes new addresses.
        let wanted = [0x1a56_326e, 0xdf1a_90cf, 0x4569_5979, 0x448e_6320];
        assert_eq!(numbers, wanted);
    }
}
