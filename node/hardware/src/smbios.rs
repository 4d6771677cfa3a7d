//! The SMBIOS table of the firmware (DMTF DSP0134, System Management BIOS Reference Specification 3.7; section numbers
//! refer to it).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use corten_types::hardware::{MemoryModule, Processor};
use smbioslib::{
    SMBiosData, SMBiosMemoryDevice, SMBiosProcessorInformation, SMBiosString, SMBiosStruct as _,
    SMBiosSystemInformation, UndefinedStruct,
};

/// Maximum size in bytes; the largest tables of servers have some 100 KiB.
const LARGEST: u64 = 1 << 20;
/// Maximum number of structures of one type.
const MOST: usize = 1024;
/// Maximum length of a string in characters.
const LONGEST: usize = 256;
/// Bit of a processor's status: the socket is populated.
const POPULATED: u8 = 1 << 6;

/// The table; empty if there is none.
pub(super) struct Table(SMBiosData);

impl Table {
    pub(super) fn read(path: &Path) -> Table {
        let mut bytes = Vec::new();
        // The part read before an error is still useful.
        let _ = File::open(path).and_then(|file| file.take(LARGEST).read_to_end(&mut bytes));
        Table(SMBiosData::from_vec_and_version(bytes, None))
    }

    /// The event that powered the machine on (7.2.2).
    pub(super) fn wake_up_type(&self) -> &'static str {
        let system = self.0.first::<SMBiosSystemInformation<'_>>();
        match system.and_then(|system| system.parts().get_field_byte(0x18)) {
            Some(1) => "Other",
            Some(2) => "Unknown",
            Some(3) => "APM Timer",
            Some(4) => "Modem Ring",
            Some(5) => "LAN Remote",
            Some(6) => "Power Switch",
            Some(7) => "PCI PME#",
            Some(8) => "AC Power Restored",
            _ => "",
        }
    }

    /// Processor sockets, by id (7.5).
    pub(super) fn processors(&self) -> Vec<(String, Processor)> {
        let mut ids = Ids::default();
        let sockets = self
            .0
            .defined_struct_iter::<SMBiosProcessorInformation<'_>>();
        sockets
            .take(MOST)
            .map(|socket| {
                let name = text(&socket.socket_designation());
                (ids.unique(&name), processor(&socket))
            })
            .collect()
    }

    /// Memory sockets, by id (7.18).
    pub(super) fn memory_modules(&self) -> Vec<(String, MemoryModule)> {
        let mut ids = Ids::default();
        let sockets = self.0.defined_struct_iter::<SMBiosMemoryDevice<'_>>();
        sockets
            .take(MOST)
            .map(|socket| {
                // The bank often distinguishes sockets of the same name.
                let (device, bank) = (text(&socket.device_locator()), text(&socket.bank_locator()));
                let name = format!("{device} {bank}");
                (ids.unique(name.trim()), memory_module(&socket))
            })
            .collect()
    }
}

fn processor(socket: &SMBiosProcessorInformation<'_>) -> Processor {
    let parts = socket.parts();
    let status = parts.get_field_byte(0x18).unwrap_or_default();
    if status & POPULATED == 0 {
        return Processor::default();
    }
    let word = |offset| parts.get_field_word(offset).map(u32::from);
    // The original field has one byte; 0xff refers to a later field of two bytes.
    let count = |byte, wide| match parts.get_field_byte(byte).map(u32::from) {
        Some(0xff) => word(wide).unwrap_or(0xff),
        count => count.unwrap_or_default(),
    };
    Processor {
        socket: text(&socket.socket_designation()),
        manufacturer: text(&socket.processor_manufacturer()),
        product_name: text(&socket.processor_version()),
        max_speed_mhz: word(0x14).unwrap_or_default(),
        boot_speed_mhz: word(0x16).unwrap_or_default(),
        status: status.into(),
        serial_number: text(&socket.serial_number()),
        asset_tag: text(&socket.asset_tag()),
        part_number: text(&socket.part_number()),
        core_count: count(0x23, 0x2a),
        core_enabled: count(0x24, 0x2c),
        thread_count: count(0x25, 0x2e),
    }
}

fn memory_module(socket: &SMBiosMemoryDevice<'_>) -> MemoryModule {
    let parts = socket.parts();
    let Some(size_mib) = size_mib(parts) else {
        return MemoryModule::default();
    };
    MemoryModule {
        size_mib,
        device_locator: text(&socket.device_locator()),
        bank_locator: text(&socket.bank_locator()),
        speed: match parts.get_field_word(0x15) {
            Some(0xffff) => parts.get_field_dword(0x54).unwrap_or_default(),
            speed => speed.map_or(0, u32::from),
        },
        manufacturer: text(&socket.manufacturer()),
        serial_number: text(&socket.serial_number()),
        asset_tag: text(&socket.asset_tag()),
        product_name: text(&socket.part_number()),
    }
}

/// Size of a module; `None` for an empty socket, 0 if the firmware does not know it.
fn size_mib(parts: &UndefinedStruct) -> Option<u32> {
    match parts.get_field_word(0x0c)? {
        0 => None,
        0xffff => Some(0),
        // The highest bit is reserved.
        0x7fff => Some(parts.get_field_dword(0x1c).unwrap_or_default() & 0x7fff_ffff),
        kib if kib & 0x8000 != 0 => Some(u32::from(kib & 0x7fff) / 1024),
        mib => Some(mib.into()),
    }
}

/// Sanitizes a string: boards pad strings and may write any bytes.
fn text(string: &SMBiosString) -> String {
    let text = string.to_utf8_lossy().unwrap_or_default();
    let clean: String = text.chars().filter(|one| !one.is_control()).collect();
    clean.trim().chars().take(LONGEST).collect()
}

/// Turns names into unique ids.
#[derive(Default)]
struct Ids(BTreeSet<String>);

impl Ids {
    fn unique(&mut self, name: &str) -> String {
        let id = match name {
            "" => "UNKNOWN".to_owned(),
            _ => name.replace(' ', "-"),
        };
        let mut unique = id.clone();
        let mut count = 1_usize;
        while !self.0.insert(unique.clone()) {
            count = count.saturating_add(1);
            unique = format!("{id}-{count}");
        }
        unique
    }
}

#[cfg(test)]
mod tests {
    use corten_corpus::{hostile, samples};
    use proptest::prelude::{prop_assert, proptest};

    use super::*;

    fn table(bytes: Vec<u8>) -> Table {
        Table(SMBiosData::from_vec_and_version(bytes, None))
    }

    /// A structure: header, fields, strings (6.1).
    fn part(kind: u8, fields: &[u8], strings: &[&str]) -> Vec<u8> {
        let length = u8::try_from(fields.len() + 4).unwrap();
        let mut bytes = vec![kind, length, 0, kind];
        bytes.extend(fields);
        for string in strings {
            bytes.extend(string.as_bytes());
            bytes.push(0);
        }
        if strings.is_empty() {
            bytes.push(0);
        }
        bytes.push(0);
        bytes
    }

    /// The fields of a structure of this length, with some bytes set at offsets of the specification.
    fn fields(length: usize, set: &[(usize, u8)]) -> Vec<u8> {
        let mut bytes = vec![0; length - 4];
        for (offset, byte) in set {
            bytes[offset - 4] = *byte;
        }
        bytes
    }

    fn machine() -> Vec<u8> {
        let system = part(1, &fields(0x1b, &[(0x18, 6)]), &[]);
        let processor = fields(
            0x30,
            &[
                (0x04, 1),
                (0x07, 2),
                (0x10, 3),
                (0x15, 0x10),
                (0x16, 0xd0),
                (0x17, 0x07),
                (0x18, 0x41),
                (0x23, 0xff),
                (0x2b, 0x01),
                (0x24, 64),
                (0x25, 0xff),
                (0x2f, 0x02),
            ],
        );
        let processor = part(4, &processor, &["CPU 0", "Maker", "Model  \u{1b}[2J "]);
        let empty = part(4, &fields(0x23, &[(0x04, 1)]), &["CPU 0"]);
        let memory = |size: [u8; 2]| {
            let set = [
                (0x0c, size[0]),
                (0x0d, size[1]),
                (0x10, 1),
                (0x11, 2),
                (0x15, 0x80),
                (0x16, 0x0c),
                (0x17, 3),
                (0x1e, 0x02),
            ];
            part(17, &fields(0x22, &set), &["DIMM 0", "P0 CHANNEL A", "M"])
        };
        [
            system,
            processor,
            empty,
            memory([0x00, 0x40]),
            memory([0xff, 0x7f]),
            memory([0, 0]),
            memory([0x00, 0xa0]),
            part(127, &[], &[]),
            memory([0x00, 0x40]),
        ]
        .concat()
    }

    #[test]
    fn smbios_structures_are_read_by_the_specification() {
        let table = table(machine());
        assert_eq!(table.wake_up_type(), "Power Switch");
        let processors = table.processors();
        let [(first, processor), (second, empty)] = processors.as_slice() else {
            panic!("{processors:?}")
        };
        assert_eq!((&**first, &**second), ("CPU-0", "CPU-0-2"));
        assert_eq!(*empty, Processor::default());
        assert_eq!(
            (&*processor.manufacturer, &*processor.product_name),
            ("Maker", "Model  [2J")
        );
        let speeds = (processor.max_speed_mhz, processor.boot_speed_mhz);
        assert_eq!(speeds, (4096, 2000));
        let counts = (processor.core_count, processor.core_enabled);
        assert_eq!((counts, processor.thread_count), ((256, 64), 512));
        let modules = table.memory_modules();
        let ids: Vec<&str> = modules.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(
            ids,
            [
                "DIMM-0-P0-CHANNEL-A",
                "DIMM-0-P0-CHANNEL-A-2",
                "DIMM-0-P0-CHANNEL-A-3",
                "DIMM-0-P0-CHANNEL-A-4",
            ]
        );
        // A size in MiB, one in the extended field, an empty socket, a size in KiB.
        let sizes: Vec<u32> = modules.iter().map(|(_, module)| module.size_mib).collect();
        assert_eq!(sizes, [16384, 131_072, 0, 8]);
        let (_, first) = &modules[0];
        assert_eq!((first.speed, &*first.manufacturer), (3200, "M"));
        assert_eq!(modules[2].1, MemoryModule::default());
    }

    #[test]
    fn corpus_samples_are_read() {
        for sample in samples("smbios") {
            let table = table(sample.bytes);
            let expected = match &*sample.name {
                "server" => (2, 3),
                "old" => (1, 0),
                _ => (1, 1),
            };
            let found = (table.processors().len(), table.memory_modules().len());
            assert_eq!(found, expected, "{}", sample.name);
        }
    }

    proptest! {
        #[test]
        fn hostile_tables_never_panic(bytes in hostile("smbios")) {
            let table = table(bytes);
            let _ = table.wake_up_type();
            let ids = table.processors().into_iter().map(|(id, _)| id);
            let ids: Vec<String> = ids.chain(table.memory_modules().into_iter().map(|(id, _)| id)).collect();
            let is_clean = |id: &String| !id.is_empty() && !id.chars().any(char::is_control);
            prop_assert!(ids.iter().all(is_clean), "{ids:?}");
        }
    }

    #[test]
    fn damaged_smbios_tables_never_panic() {
        let whole = machine();
        let read = |bytes: Vec<u8>| {
            let table = table(bytes);
            let _ = table.wake_up_type();
            (table.processors().len(), table.memory_modules().len())
        };
        assert_eq!(read(Vec::new()), (0, 0));
        for length in 0..whole.len() {
            read(whole[..length].to_vec());
        }
        for place in 0..whole.len() {
            for byte in [0, 1, 3, 4, 0x7f, 0x80, 0xff] {
                let mut bytes = whole.clone();
                bytes[place] = byte;
                read(bytes);
            }
        }
        let short = part(17, &[], &[]);
        let many = short.repeat(MOST * 3);
        assert_eq!(read(many), (0, MOST));
    }

    #[test]
    fn a_name_is_bounded_and_has_no_control_characters() {
        let fields = fields(0x23, &[(0x04, 1), (0x18, 0x40)]);
        let long = "\u{7}x".repeat(5000);
        let table = table(part(4, &fields, &[&long]));
        let processors = table.processors();
        assert_eq!(processors[0].1.socket, "x".repeat(LONGEST));
    }
}
