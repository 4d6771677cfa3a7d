//! The JSON part of a header (specification, section 3). Unknown parts are preserved.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{LuksError, SLOTS, unsupported};

/// The whole document.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Metadata {
    /// Key slots by number. Slots of unknown kinds only occupy space.
    pub(crate) keyslots: BTreeMap<String, Value>,
    pub(crate) tokens: BTreeMap<String, Value>,
    pub(crate) segments: BTreeMap<String, Value>,
    pub(crate) digests: BTreeMap<String, Digest>,
    pub(crate) config: Config,
}

/// A key slot (section 3.2).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Keyslot {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Length of the key in bytes.
    pub(crate) key_size: usize,
    pub(crate) af: Af,
    pub(crate) area: Area,
    pub(crate) kdf: Kdf,
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// The anti-forensic split of the key (section 3.2.1).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Af {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) stripes: usize,
    pub(crate) hash: String,
}

/// Position and encryption of the slot (section 3.2.2).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Area {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    #[serde(with = "decimal")]
    pub(crate) offset: u64,
    #[serde(with = "decimal")]
    pub(crate) size: u64,
    pub(crate) encryption: String,
    pub(crate) key_size: usize,
}

/// Derivation of a key from a passphrase (section 3.2.3).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(crate) enum Kdf {
    Pbkdf2 {
        salt: String,
        hash: String,
        iterations: u32,
    },
    Argon2i {
        salt: String,
        time: u32,
        memory: u32,
        cpus: u32,
    },
    Argon2id {
        salt: String,
        time: u32,
        memory: u32,
        cpus: u32,
    },
}

impl Kdf {
    /// Memory cost in KiB of a memory-hard derivation.
    pub(crate) fn memory(&self) -> Option<u32> {
        match self {
            Kdf::Pbkdf2 { .. } => None,
            Kdf::Argon2i { memory, .. } | Kdf::Argon2id { memory, .. } => Some(*memory),
        }
    }
}

/// The digest that identifies the right key (section 3.5).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Digest {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) keyslots: Vec<String>,
    pub(crate) segments: Vec<String>,
    pub(crate) salt: String,
    pub(crate) digest: String,
    pub(crate) hash: String,
    pub(crate) iterations: u32,
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// Sizes of the header's areas (section 3.1).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Config {
    #[serde(with = "decimal")]
    pub(crate) json_size: u64,
    #[serde(with = "decimal")]
    pub(crate) keyslots_size: u64,
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

/// The encrypted data (section 3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Offset in bytes.
    pub offset: u64,
    /// Length in bytes; `None`: to the end of the device.
    pub size: Option<u64>,
    /// Initial sector number for the IV.
    pub iv_tweak: u64,
    /// The kernel's name of the cipher.
    pub encryption: String,
    /// Bytes per encryption sector.
    pub sector_size: u32,
}

#[derive(Deserialize)]
struct RawSegment {
    #[serde(rename = "type")]
    kind: String,
    #[serde(with = "decimal")]
    offset: u64,
    size: String,
    #[serde(with = "decimal")]
    iv_tweak: u64,
    encryption: String,
    sector_size: u32,
    integrity: Option<Value>,
}

impl Metadata {
    /// Parses the JSON of a header.
    pub(crate) fn parse(json: &str) -> Result<Metadata, LuksError> {
        let metadata: Metadata = serde_json::from_str(json)
            .map_err(|error| unsupported(format!("malformed JSON metadata ({error})")))?;
        let asks_for = |asked: &Value| match asked {
            Value::Object(kinds) => kinds.values().any(|kind| *kind != Value::Array(vec![])),
            _ => true,
        };
        match metadata.config.more.get("requirements") {
            Some(asked) if asks_for(asked) => Err(unsupported(format!("the requirements {asked}"))),
            _ => Ok(metadata),
        }
    }

    /// The encrypted data: a single segment that the kernel's device mapper decrypts.
    pub(crate) fn segment(&self) -> Result<Segment, LuksError> {
        let mut all = self.segments.values();
        let (Some(one), None) = (all.next(), all.next()) else {
            return Err(unsupported("more or fewer than one segment"));
        };
        let raw: RawSegment = serde_json::from_value(one.clone())
            .map_err(|error| unsupported(format!("a malformed segment ({error})")))?;
        if raw.kind != "crypt" || raw.integrity.is_some() {
            return Err(unsupported("a segment that is not only encrypted"));
        }
        // The text becomes one word of the kernel's table.
        let in_word = |c: char| c.is_ascii_alphanumeric() || "-:(),._".contains(c);
        if raw.encryption.is_empty() || !raw.encryption.chars().all(in_word) {
            return Err(unsupported("an invalid cipher name"));
        }
        if !matches!(raw.sector_size, 512 | 1024 | 2048 | 4096) {
            return Err(unsupported(format!("sectors of {} bytes", raw.sector_size)));
        }
        if !raw.offset.is_multiple_of(raw.sector_size.into()) {
            return Err(unsupported(
                "a segment that does not start at a sector boundary",
            ));
        }
        let size = match raw.size.as_str() {
            "dynamic" => None,
            size => Some(
                size.parse()
                    .map_err(|_| unsupported("an invalid segment size"))?,
            ),
        };
        Ok(Segment {
            offset: raw.offset,
            size,
            iv_tweak: raw.iv_tweak,
            encryption: raw.encryption,
            sector_size: raw.sector_size,
        })
    }

    /// The digests of the data's key. Digests of other keys belong to no segment.
    pub(crate) fn digests_of_data(&self) -> impl Iterator<Item = &Digest> {
        let data = self.segments.keys().next();
        let is_of_data =
            move |digest: &&Digest| data.is_some_and(|id| digest.segments.contains(id));
        self.digests.values().filter(is_of_data)
    }

    /// The slots that hold the data's key, in ascending order.
    pub(crate) fn slots(&self) -> Vec<u8> {
        let mut slots: Vec<u8> = (self.digests_of_data())
            .flat_map(|digest| &digest.keyslots)
            .filter(|slot| self.keyslots.contains_key(*slot))
            .filter_map(|slot| slot.parse().ok().filter(|slot| *slot < SLOTS))
            .collect();
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// A slot; `None` when it is empty.
    pub(crate) fn keyslot(&self, slot: u8) -> Result<Option<Keyslot>, LuksError> {
        let Some(found) = self.keyslots.get(&slot.to_string()) else {
            return Ok(None);
        };
        let keyslot: Keyslot = serde_json::from_value(found.clone())
            .map_err(|error| unsupported(format!("a malformed key slot {slot} ({error})")))?;
        Ok(Some(keyslot))
    }

    /// Start and length of the areas of all key slots.
    pub(crate) fn areas(&self) -> Vec<(u64, u64)> {
        let number = |area: &Value, name| area.get(name)?.as_str()?.parse().ok();
        (self.keyslots.values())
            .filter_map(|slot| slot.get("area"))
            .filter_map(|area| Some((number(area, "offset")?, number(area, "size")?)))
            .collect()
    }
}

/// JSON numbers lose precision above 53 bits, so large ones are strings.
mod decimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&number.to_string())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse()
            .map_err(|_| D::Error::custom("the number must be a string of decimal digits"))
    }
}
