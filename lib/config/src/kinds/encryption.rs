//! Encryption of volumes.

use corten_values::{Secret, Url};
use corten_yaml::problem::{Notes, Problems};
use corten_yaml::read::{self, Reader, Word as _};
use corten_yaml::stream;
use corten_yaml::table::Support;
use corten_yaml::tree::Node;
use corten_yaml::{choices, section};
use serde_json::{Value as Json, json};

/// Optional features of the device mapper; the kernel's names.
const OPTIONS: &[&str] = &[
    "no_read_workqueue",
    "no_write_workqueue",
    "same_cpu_crypt",
    "submit_from_crypt_cpus",
];

choices! {
    /// Encryption provider.
    pub enum EncryptionProvider { Luks2 = "luks2", }
}
choices! {
    /// Cipher and mode.
    pub enum Cipher { AesXts = "aes-xts-plain64", Adiantum12 = "xchacha12,aes-adiantum-plain64", Adiantum20 = "xchacha20,aes-adiantum-plain64", }
}

choices! {
    /// Handling of a volume that is not encrypted yet.
    pub enum Migration { None = "none", Wipe = "wipe", }
}

section! {
    /// Encryption of a volume.
    pub struct Encryption [check_encryption] {
        Acted "provider" provider: EncryptionProvider = "Encryption provider", required;
        Acted "keys" keys: Vec<EncryptionKey> = "Keys, each of which opens the volume", required, by(&["slot"]);
        Acted "cipher" cipher: Cipher = "Cipher of the blocks; only `aes-xts-plain64` is supported";
        Acted "keySize" key_size: Option<u32> = "Size of the key in bits";
        Acted "blockSize" block_size: Option<u64> = "Size of an encryption sector in bytes";
        Acted "options" options: Vec<String> = "Options of the device mapper, such as `no_read_workqueue`";
        Acted "allowDiscards" allow_discards: bool = "Whether unused blocks are discarded on the disk";
        Acted "migration" migration: Migration = "Handling of an unencrypted volume: it is refused, or wiped and created again encrypted";
    }
}

fn check_encryption(encryption: &Encryption, node: &Node, reader: &mut Reader<'_>) {
    let mut slots = std::collections::HashSet::new();
    if encryption.keys.iter().any(|key| !slots.insert(key.slot)) {
        reader.wrong_in(node, "keys", "has one slot twice");
    }
    let sector = |size: &u64| !matches!(size, 512 | 1024 | 2048 | 4096);
    if encryption.block_size.as_ref().is_some_and(sector) {
        reader.wrong_in(node, "blockSize", "must be 512, 1024, 2048 or 4096");
    }
    let unknown = |option: &String| !OPTIONS.contains(&option.as_str());
    if encryption.options.iter().any(unknown) {
        let what = format!("must be some of {}", OPTIONS.join(", "));
        reader.wrong_in(node, "options", &what);
    }
    if encryption.cipher == Cipher::AesXts {
        let size = encryption.key_size.unwrap_or(512);
        if !matches!(size, 256 | 512) {
            reader.wrong_in(node, "keySize", "must be 256 or 512 for aes-xts-plain64");
        }
    } else if !reader.reads(Support::Later) {
        reader.wrong_in(node, "cipher", "is not supported yet; use aes-xts-plain64");
    }
}

impl Encryption {
    /// Encodes the settings for META, as JSON with the config's names. The next boot must open STATE before it can read
    /// a config.
    #[must_use]
    pub fn to_meta(&self) -> String {
        let key = |key: &EncryptionKey| match &key.fixed {
            Some(fixed) => {
                json!({"slot": key.slot, "static": {"passphrase": fixed.passphrase.expose()}})
            }
            None => json!({"slot": key.slot, "nodeID": {}}),
        };
        // A null value is ignored.
        let mut fields = json!({
            "provider": self.provider.word(),
            "keys": self.keys.iter().map(key).collect::<Json>(),
            "cipher": self.cipher.word(),
            "keySize": self.key_size,
            "blockSize": self.block_size,
            "options": self.options,
            "allowDiscards": self.allow_discards,
        });
        // Older versions refuse this unknown field, so it is only written when needed.
        if let (Migration::Wipe, Json::Object(fields)) = (self.migration, &mut fields) {
            fields.insert("migration".to_owned(), self.migration.word().into());
        }
        fields.to_string()
    }

    /// Whether an unencrypted volume is wiped and created again.
    #[must_use]
    pub fn migrates(&self) -> bool {
        self.migration == Migration::Wipe
    }

    /// Parses the value in META.
    ///
    /// # Errors
    /// All problems of the value.
    pub fn from_meta(bytes: &[u8]) -> Result<Encryption, Problems> {
        let mut notes = Notes::default();
        let (_, trees) = stream::read_some(bytes, &mut notes)?;
        let mut encryption = Encryption::default();
        if let Some(node) = trees.first() {
            let mut reader = Reader::new(&mut notes, false);
            encryption = read::read_section(node, &[], &mut reader).unwrap_or_default();
        }
        notes.into_result(encryption)
    }

    /// Whether the keys include one of `before` in its slot. Without one, the volume could not be opened to add the new
    /// keys.
    #[must_use]
    pub fn keeps_a_key_of(&self, before: &Encryption) -> bool {
        self.keys.iter().any(|key| before.keys.contains(key))
    }
}

section! {
    /// A key of an encrypted volume: exactly one source.
    pub struct EncryptionKey [check_key] {
        Acted "slot" slot: u8 = "Number of the key slot, 0 to 31";
        Acted "static" fixed: Option<StaticKey> = "Fixed passphrase", even_empty;
        Acted "nodeID" node_id: Option<NodeIdKey> = "Key derived from the machine's identity", even_empty;
        Later "kms" kms: Option<KmsKey> = "Key sealed by a service", even_empty;
        Later "tpm" tpm: Option<TpmKey> = "Key sealed by the TPM", even_empty;
        Later "lockToState" lock_to_state: bool = "Whether the key needs STATE as well";
    }
}

fn check_key(key: &EncryptionKey, node: &Node, reader: &mut Reader<'_>) {
    let sources = ["static", "nodeID", "kms", "tpm"];
    // `nodeID: {}` and `tpm: {}` are valid although they are empty.
    let given = sources
        .iter()
        .filter(|name| node.get(name).is_some())
        .count();
    if given != 1 {
        reader.wrong(node.mark, "needs exactly one of static, nodeID, kms, tpm");
    }
    if key.slot > 31 {
        reader.wrong_in(node, "slot", "must be from 0 to 31");
    }
}

section! {
    /// A passphrase.
    pub struct StaticKey {
        Acted "passphrase" passphrase: Secret = "Passphrase", required;
    }
}

section! {
    /// A key derived from the machine's identity.
    pub struct NodeIdKey {
    }
}

section! {
    /// A key sealed by a service.
    pub struct KmsKey {
        Acted "endpoint" endpoint: Url = "URL of the key service", required;
    }
}

section! {
    /// A key sealed by the TPM.
    pub struct TpmKey {
        Acted "options" options: TpmOptions = "Binding of the key";
        Acted "checkSecurebootStatusOnEnroll" check_secureboot_status_on_enroll: bool = "Whether enrolment requires Secure Boot";
    }
}

section! {
    /// Binding of a key in the TPM.
    pub struct TpmOptions {
        Acted "pcrs" pcrs: Vec<u8> = "Numbers of the PCRs";
    }
}
