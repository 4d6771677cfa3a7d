//! The header of a volume: creates, reads, changes and writes it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::binary::Broken::{Damaged, NoMagic, Unfinished, Version};
use crate::binary::{self, HeaderCopy, Place};
use crate::keyslot::{self, Cost};
use crate::metadata::{Config, Metadata, Segment};
use crate::{CIPHER, DATA_OFFSET, Device, LuksError, SLOTS, VolumeKey, random, unsupported};

/// Size of one copy of a new header in bytes.
const SIZE: usize = 16 << 10;
const JSON: usize = 12 << 10;

/// The header of a volume.
///
/// Format: "LUKS2 On-Disk Format Specification", version 1.1.1. A volume starts with two copies of the header: a binary
/// part with a sequence number and a checksum, then JSON. Key slots follow; each holds the volume's key, split and
/// encrypted under a passphrase. The newer valid copy counts. `cryptsetup` reads these volumes, and this crate those
/// of `cryptsetup`.
#[derive(Debug, Clone)]
pub struct Luks {
    copy: HeaderCopy,
    metadata: Metadata,
    /// Position of the copy that this header was read from or last written to.
    source: Place,
    /// Whether both copies on the device are valid and equal to this header.
    whole: bool,
    /// Upper bound on the memory for trying a passphrase, in KiB.
    memory: u32,
    /// Areas of removed keys that the next write must wipe: start and length.
    stale: Vec<(u64, u64)>,
}

impl Luks {
    /// Creates a volume with a new key of `key_size` bytes (32 or 64), encrypted in sectors of `sector_size` bytes.
    /// Nothing is written, and no slot holds the key yet.
    ///
    /// # Errors
    /// A size is not supported, or the machine gives no random numbers.
    pub fn new(key_size: usize, sector_size: u32) -> Result<(Luks, VolumeKey), LuksError> {
        if !matches!(key_size, 32 | 64) {
            return Err(unsupported(format!(
                "a key of {key_size} bytes for {CIPHER}"
            )));
        }
        let mut key = Zeroizing::new(vec![0; key_size]);
        random(&mut key)?;
        let key = VolumeKey(key);
        let segment = json!({
            "type": "crypt",
            "offset": DATA_OFFSET.to_string(),
            "size": "dynamic",
            "iv_tweak": "0",
            "encryption": CIPHER,
            "sector_size": sector_size,
        });
        let metadata = Metadata {
            keyslots: BTreeMap::new(),
            tokens: BTreeMap::new(),
            segments: BTreeMap::from([("0".to_owned(), segment)]),
            digests: BTreeMap::from([("0".to_owned(), keyslot::digest(&key)?)]),
            config: Config {
                json_size: JSON as u64,
                keyslots_size: DATA_OFFSET - 2 * SIZE as u64,
                more: serde_json::Map::new(),
            },
        };
        // Checks the sector size.
        metadata.segment()?;
        let luks = Luks {
            copy: HeaderCopy {
                size: SIZE,
                sequence: 0,
                label: String::new(),
                uuid: Uuid::new_v4().to_string(),
                subsystem: String::new(),
                json: String::new(),
            },
            metadata,
            source: Place::First,
            whole: false,
            memory: keyslot::MOST_MEMORY,
            stale: Vec::new(),
        };
        Ok((luks, key))
    }

    /// Reads the newer valid copy of a header. `None` when the device is not a LUKS volume, or its creation was never
    /// finished.
    ///
    /// # Errors
    /// The device has a header that cannot be used.
    pub fn read<D: Device>(device: &D) -> Result<Option<Luks>, LuksError> {
        let copies = binary::read(device)?;
        let whole = match (&copies.first, &copies.second) {
            (Ok(first), Ok(second)) => first == second,
            _ => false,
        };
        let (copy, source) = match (copies.first, copies.second) {
            (Ok(first), Ok(second)) if second.sequence > first.sequence => (second, Place::Second),
            (Ok(copy), _) => (copy, Place::First),
            (Err(_), Ok(copy)) => (copy, Place::Second),
            (Err(NoMagic | Unfinished), Err(NoMagic | Unfinished)) => return Ok(None),
            // The volume has lost its first copy as well.
            (Err(NoMagic | Unfinished), Err(broken)) | (Err(broken), Err(_)) => {
                return Err(match broken {
                    Version(version) => LuksError::Version(version),
                    Damaged(why) => LuksError::Damaged(why.to_owned()),
                    NoMagic | Unfinished => LuksError::Damaged("no valid copy".to_owned()),
                });
            }
        };
        let metadata = Metadata::parse(&copy.json)?;
        metadata.segment()?;
        Ok(Some(Luks {
            copy,
            metadata,
            source,
            whole,
            memory: keyslot::MOST_MEMORY,
            stale: Vec::new(),
        }))
    }

    /// Writes both copies and flushes each before the next. Then wipes removed keys.
    ///
    /// The copy that this header came from is written last, because it may be the only valid one. So a power cut at any
    /// time leaves the old header or the new one.
    ///
    /// # Errors
    /// The device's error, or the JSON does not fit.
    pub fn write<D: Device>(&mut self, device: &D) -> Result<(), LuksError> {
        let mut copy = self.copy.clone();
        copy.sequence = copy.sequence.saturating_add(1);
        copy.json = serde_json::to_string(&self.metadata).map_err(|error| {
            unsupported(format!("JSON metadata that cannot be encoded: {error}"))
        })?;
        let order = [self.source.other(), self.source];
        let [one, two] =
            order.map(|place| binary::encode(&copy, place).map(|bytes| (place, bytes)));
        self.whole = false;
        for (place, bytes) in [one?, two?] {
            device.store(&bytes, place.offset(copy.size))?;
            device.sync()?;
            // The copy just written is now the valid one; a retry must write it last.
            self.source = place;
            self.copy = copy.clone();
        }
        self.whole = true;
        for (offset, size) in self.stale.drain(..) {
            let size = usize::try_from(size).unwrap_or_default();
            device.store(&vec![0; size], offset)?;
        }
        Ok(device.sync()?)
    }

    /// Whether both copies on the device are valid and equal. If not, [`Luks::write`] repairs them.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// The volume's UUID.
    #[must_use]
    pub fn uuid(&self) -> &str {
        &self.copy.uuid
    }

    /// The volume's label; empty: none.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.copy.label
    }

    /// Sets the label, with effect from the next [`Luks::write`].
    ///
    /// # Errors
    /// It has more than 47 bytes, or contains a NUL (specification, section 2.1).
    pub fn set_label(&mut self, label: &str) -> Result<(), LuksError> {
        if label.len() > binary::LONGEST_LABEL || label.contains('\0') {
            return Err(unsupported(format!("a label of {} bytes", label.len())));
        }
        label.clone_into(&mut self.copy.label);
        Ok(())
    }

    /// The encrypted data.
    ///
    /// # Errors
    /// None, for a header that was read or created.
    pub fn segment(&self) -> Result<Segment, LuksError> {
        self.metadata.segment()
    }

    /// The slots that hold a key, in ascending order.
    #[must_use]
    pub fn slots(&self) -> Vec<u8> {
        self.metadata.slots()
    }

    /// Limits the memory for trying a passphrase, in KiB: slots that cost more are refused. The cost of slots made by
    /// this crate ([`Cost::DEFAULT`]) is always allowed.
    pub fn limit_memory(&mut self, most: u64) {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        self.memory = most.clamp(Cost::DEFAULT.memory, keyslot::MOST_MEMORY);
    }

    /// The volume's key, if the slot opens with this passphrase. The duration depends on the slot's cost.
    ///
    /// # Errors
    /// The slot cannot be read.
    pub fn unlock<D: Device>(
        &self,
        device: &D,
        slot: u8,
        passphrase: &[u8],
    ) -> Result<Option<VolumeKey>, LuksError> {
        let Some(keyslot) = self.metadata.keyslot(slot)? else {
            return Ok(None);
        };
        let name = slot.to_string();
        let mut digests = self.metadata.digests_of_data();
        let Some(digest) = digests.find(|digest| digest.keyslots.contains(&name)) else {
            return Ok(None);
        };
        let key = keyslot::read(device, &keyslot, passphrase, self.room(), self.memory)?;
        Ok(keyslot::is_right(&key, digest)?.then_some(key))
    }

    /// Stores the volume's key in this slot under a passphrase and replaces the slot's content, with effect from the
    /// next [`Luks::write`].
    ///
    /// # Errors
    /// The slot does not exist, the area has no room, or the device fails.
    pub fn set_key<D: Device>(
        &mut self,
        device: &D,
        slot: u8,
        key: &VolumeKey,
        passphrase: &[u8],
        cost: Cost,
    ) -> Result<(), LuksError> {
        let refused = |why| LuksError::Slot { slot, why };
        if slot >= SLOTS {
            return Err(refused("does not exist; slots are numbered from 0 to 31"));
        }
        let digests = &self.metadata.digests;
        let mut right = None;
        for (name, digest) in digests {
            if keyslot::is_right(key, digest)? {
                right = Some(name.clone());
            }
        }
        let right = right.ok_or_else(|| refused("accepts only the key of this volume"))?;
        let offset = self
            .free(keyslot::area_size(key.bytes().len()))
            .ok_or_else(|| refused("has no room on the device; remove another key slot"))?;
        let keyslot = keyslot::write(device, offset, key, passphrase, cost)?;
        let keyslot = serde_json::to_value(keyslot).map_err(|error| {
            unsupported(format!("JSON metadata that cannot be encoded: {error}"))
        })?;
        self.forget(slot);
        let name = slot.to_string();
        self.metadata.keyslots.insert(name.clone(), keyslot);
        if let Some(digest) = self.metadata.digests.get_mut(&right) {
            digest.keyslots.push(name);
        }
        Ok(())
    }

    /// Empties a slot, with effect from the next [`Luks::write`], which also wipes it.
    ///
    /// # Errors
    /// It is the last slot; without it the volume could never be opened.
    pub fn remove_key(&mut self, slot: u8) -> Result<(), LuksError> {
        if self.slots() == [slot] {
            let why = "is the last slot that opens this volume";
            return Err(LuksError::Slot { slot, why });
        }
        self.forget(slot);
        Ok(())
    }

    fn forget(&mut self, slot: u8) {
        let name = slot.to_string();
        let before = self.metadata.areas();
        if self.metadata.keyslots.remove(&name).is_none() {
            return;
        }
        let after = self.metadata.areas();
        let room = self.room();
        let inside = |(offset, size): &(u64, u64)| {
            *offset >= room.start && offset.checked_add(*size).is_some_and(|end| end <= room.end)
        };
        // An area that another slot also claims must not be wiped.
        let apart = |(offset, size): &(u64, u64)| {
            let overlaps = |(other, length): &(u64, u64)| {
                *offset < other.saturating_add(*length) && *other < offset.saturating_add(*size)
            };
            !after.iter().any(overlaps)
        };
        self.stale.extend(
            before
                .into_iter()
                .filter(|area| inside(area) && apart(area)),
        );
        for digest in self.metadata.digests.values_mut() {
            digest.keyslots.retain(|other| *other != name);
        }
        // A token supplies a slot's passphrase, so it must forget a removed slot.
        for token in self.metadata.tokens.values_mut() {
            if let Some(Value::Array(slots)) = token.get_mut("keyslots") {
                slots.retain(|other| other.as_str() != Some(&name));
            }
        }
    }

    /// The byte range where key slots may lie.
    fn room(&self) -> std::ops::Range<u64> {
        let start = 2 * self.copy.size as u64;
        let end = start.saturating_add(self.metadata.config.keyslots_size);
        let data = self.segment().map_or(0, |segment| segment.offset);
        start..end.min(data)
    }

    /// The first free area of `size` bytes. Areas freed since the last write still count as taken.
    fn free(&self, size: u64) -> Option<u64> {
        let room = self.room();
        let mut taken = self.metadata.areas();
        taken.extend(&self.stale);
        taken.sort_unstable();
        let mut at = room.start;
        for (offset, length) in taken {
            if at.checked_add(size)? <= offset {
                break;
            }
            at = at.max(offset.checked_add(length)?);
        }
        (at.checked_add(size)? <= room.end).then_some(at)
    }
}
