//! A key slot: the volume's key, encrypted under a passphrase.

use std::num::NonZeroU32;

use aes::cipher::KeyInit;
use aes::{Aes128, Aes256};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::pbkdf2;
use xts_mode::{Xts128, get_tweak_default};
use zeroize::Zeroizing;

use crate::metadata::{Af, Area, Digest, Kdf, Keyslot};
use crate::split::{self, STRIPES};
use crate::{CIPHER, Device, LuksError, VolumeKey, random, unsupported};

/// Size of the sectors of a slot's area, independent of the data's sectors.
const SECTOR: usize = 512;
/// Alignment of areas.
const ALIGNMENT: u64 = 4096;
const SALT: usize = 32;
const HASH: &str = "sha256";
/// Limit of the memory that a header may ask for, in KiB. Common tools use up to 1 GiB, and few passes.
pub(crate) const MOST_MEMORY: u32 = 1 << 20;
/// Limit of KiB times passes; it and the iterations take a slow machine about 20 s. The boot waits for them.
const MOST_WORK: u64 = 16 << 20;
const MOST_ITERATIONS: u32 = 20_000_000;
const MOST_KEY: usize = 64;
/// Iterations of the digest. The key is random, so a slow hash would add nothing.
const DIGEST_ITERATIONS: u32 = 1000;

/// Argon2id parameters for trying a passphrase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Memory in KiB.
    pub memory: u32,
    /// Passes over the memory.
    pub time: u32,
    /// Degree of parallelism.
    pub lanes: u32,
}

impl Cost {
    /// The second recommended option of RFC 9106, section 4, for machines with little memory. It has one pass more,
    /// because common tools require 4.
    pub const DEFAULT: Cost = Cost {
        memory: 64 << 10,
        time: 4,
        lanes: 4,
    };
}

/// Size of the area of a slot for a key of this length, in bytes.
pub(crate) fn area_size(key: usize) -> u64 {
    ((key * STRIPES) as u64).next_multiple_of(ALIGNMENT)
}

/// Encrypts the key under the passphrase and writes it at `offset`.
pub(crate) fn write<D: Device>(
    device: &D,
    offset: u64,
    key: &VolumeKey,
    passphrase: &[u8],
    cost: Cost,
) -> Result<Keyslot, LuksError> {
    let mut salt = [0; SALT];
    random(&mut salt)?;
    let kdf = Kdf::Argon2id {
        salt: BASE64.encode(salt),
        time: cost.time,
        memory: cost.memory,
        cpus: cost.lanes,
    };
    let keyslot = Keyslot {
        kind: "luks2".to_owned(),
        key_size: key.0.len(),
        af: Af {
            kind: "luks1".to_owned(),
            stripes: STRIPES,
            hash: HASH.to_owned(),
        },
        area: Area {
            kind: "raw".to_owned(),
            offset,
            size: area_size(key.0.len()),
            encryption: CIPHER.to_owned(),
            key_size: 64,
        },
        kdf,
        more: serde_json::Map::new(),
    };
    let under = derive(&keyslot.kdf, passphrase, keyslot.area.key_size)?;
    let mut stripes = split::split(&key.0, split::hash(HASH)?)?;
    crypt(&under, &mut stripes, true)?;
    device.store(&stripes, offset)?;
    device.sync()?;
    Ok(keyslot)
}

/// Decrypts the slot's content. With a wrong passphrase the result is a wrong key. `allowed` is the range where slots
/// may lie; `memory` bounds the cost in KiB.
pub(crate) fn read<D: Device>(
    device: &D,
    keyslot: &Keyslot,
    passphrase: &[u8],
    allowed: std::ops::Range<u64>,
    memory: u32,
) -> Result<VolumeKey, LuksError> {
    let Keyslot { kind, af, area, .. } = keyslot;
    if kind != "luks2" || af.kind != "luks1" || area.kind != "raw" || af.stripes != STRIPES {
        return Err(unsupported("a key slot of an unknown type"));
    }
    if area.encryption != CIPHER {
        return Err(unsupported(format!(
            "key slots encrypted with {:?}",
            area.encryption
        )));
    }
    if !(1..=MOST_KEY).contains(&keyslot.key_size) {
        return Err(unsupported(format!("a key of {} bytes", keyslot.key_size)));
    }
    // Only whole sectors are encrypted.
    let length = (keyslot.key_size * STRIPES).next_multiple_of(SECTOR);
    let end = area.offset.checked_add(length as u64);
    if area.offset < allowed.start || end.is_none_or(|end| end > allowed.end) {
        return Err(unsupported("a key slot outside of the key slot area"));
    }
    let hash = split::hash(&af.hash)?;
    if let Some(asked) = keyslot.kdf.memory().filter(|asked| *asked > memory) {
        return Err(unsupported(format!(
            "a key slot that needs {asked} KiB of memory (at most {memory} KiB are allowed)"
        )));
    }
    let under = derive(&keyslot.kdf, passphrase, area.key_size)?;
    let mut stripes = Zeroizing::new(vec![0; length]);
    device.load(&mut stripes, area.offset)?;
    crypt(&under, &mut stripes, false)?;
    stripes.truncate(keyslot.key_size * STRIPES);
    Ok(VolumeKey(split::merge(&stripes, keyslot.key_size, hash)))
}

/// The digest that identifies the right key, for these slots.
pub(crate) fn digest(key: &VolumeKey) -> Result<Digest, LuksError> {
    let mut salt = [0; SALT];
    random(&mut salt)?;
    let kdf = Kdf::Pbkdf2 {
        salt: BASE64.encode(salt),
        hash: HASH.to_owned(),
        iterations: DIGEST_ITERATIONS,
    };
    Ok(Digest {
        kind: "pbkdf2".to_owned(),
        keyslots: Vec::new(),
        segments: vec!["0".to_owned()],
        salt: BASE64.encode(salt),
        digest: BASE64.encode(&*derive(&kdf, &key.0, split::hash(HASH)?.output_len())?),
        hash: HASH.to_owned(),
        iterations: DIGEST_ITERATIONS,
        more: serde_json::Map::new(),
    })
}

/// Whether the digest belongs to this key.
pub(crate) fn is_right(key: &VolumeKey, digest: &Digest) -> Result<bool, LuksError> {
    if digest.kind != "pbkdf2" {
        return Err(unsupported(format!("a digest of type {:?}", digest.kind)));
    }
    let expected = bytes(&digest.digest)?;
    let salt = bytes(&digest.salt)?;
    let iterations = iterations(digest.iterations)?;
    let algorithm = pbkdf2_by(&digest.hash)?;
    Ok(pbkdf2::verify(algorithm, iterations, &salt, &key.0, &expected).is_ok())
}

/// Derives a key of `length` bytes from a passphrase.
fn derive(kdf: &Kdf, passphrase: &[u8], length: usize) -> Result<Zeroizing<Vec<u8>>, LuksError> {
    if !(1..=MOST_KEY).contains(&length) {
        return Err(unsupported(format!("a derived key of {length} bytes")));
    }
    let mut key = Zeroizing::new(vec![0; length]);
    match kdf {
        Kdf::Pbkdf2 {
            salt,
            hash,
            iterations: count,
        } => {
            let (algorithm, count) = (pbkdf2_by(hash)?, iterations(*count)?);
            pbkdf2::derive(algorithm, count, &bytes(salt)?, passphrase, &mut key);
        }
        Kdf::Argon2i {
            salt,
            time,
            memory,
            cpus,
        } => argon2(
            Algorithm::Argon2i,
            (*memory, *time, *cpus),
            (passphrase, salt),
            &mut key,
        )?,
        Kdf::Argon2id {
            salt,
            time,
            memory,
            cpus,
        } => argon2(
            Algorithm::Argon2id,
            (*memory, *time, *cpus),
            (passphrase, salt),
            &mut key,
        )?,
    }
    Ok(key)
}

fn argon2(
    algorithm: Algorithm,
    (memory, time, lanes): (u32, u32, u32),
    (passphrase, salt): (&[u8], &str),
    key: &mut [u8],
) -> Result<(), LuksError> {
    if memory > MOST_MEMORY || u64::from(memory) * u64::from(time) > MOST_WORK {
        let cost = format!("a key slot that needs {memory} KiB and {time} passes");
        return Err(unsupported(cost));
    }
    let refuse = |error: argon2::Error| unsupported(format!("invalid Argon2 parameters ({error})"));
    let params = Params::new(memory, time, lanes, Some(key.len())).map_err(refuse)?;
    let mut blocks = Zeroizing::new(Vec::new());
    blocks
        .try_reserve_exact(params.block_count())
        .map_err(|_| LuksError::Machine("has too little memory for Argon2"))?;
    blocks.resize(params.block_count(), Block::default());
    Argon2::new(algorithm, Version::V0x13, params)
        .hash_password_into_with_memory(passphrase, &bytes(salt)?, key, &mut blocks)
        .map_err(refuse)
}

fn pbkdf2_by(hash: &str) -> Result<pbkdf2::Algorithm, LuksError> {
    match hash {
        "sha1" => Ok(pbkdf2::PBKDF2_HMAC_SHA1),
        "sha256" => Ok(pbkdf2::PBKDF2_HMAC_SHA256),
        "sha384" => Ok(pbkdf2::PBKDF2_HMAC_SHA384),
        "sha512" => Ok(pbkdf2::PBKDF2_HMAC_SHA512),
        other => Err(unsupported(format!("the hash {other:?}"))),
    }
}

fn iterations(count: u32) -> Result<NonZeroU32, LuksError> {
    NonZeroU32::new(count)
        .filter(|count| count.get() <= MOST_ITERATIONS)
        .ok_or_else(|| unsupported(format!("{count} iterations")))
}

fn bytes(base64: &str) -> Result<Vec<u8>, LuksError> {
    BASE64
        .decode(base64)
        .map_err(|_| unsupported("a salt or digest that is not base64"))
}

/// AES-XTS (IEEE 1619) over whole sectors, numbered from 0.
fn crypt(key: &[u8], sectors: &mut [u8], encrypt: bool) -> Result<(), LuksError> {
    let (first, second) = key.split_at(key.len() / 2);
    let size = || unsupported(format!("a key of {} bytes for its key slots", key.len()));
    match key.len() {
        32 => {
            let cipher = |half| Aes128::new_from_slice(half).map_err(|_| size());
            run(
                &Xts128::new(cipher(first)?, cipher(second)?),
                sectors,
                encrypt,
            );
        }
        64 => {
            let cipher = |half| Aes256::new_from_slice(half).map_err(|_| size());
            run(
                &Xts128::new(cipher(first)?, cipher(second)?),
                sectors,
                encrypt,
            );
        }
        _ => return Err(size()),
    }
    Ok(())
}

fn run<C>(cipher: &Xts128<C>, sectors: &mut [u8], encrypt: bool)
where
    C: aes::cipher::BlockEncrypt + aes::cipher::BlockDecrypt + aes::cipher::BlockCipher,
{
    if encrypt {
        cipher.encrypt_area(sectors, SECTOR, 0, get_tweak_default);
    } else {
        cipher.decrypt_area(sectors, SECTOR, 0, get_tweak_default);
    }
}
