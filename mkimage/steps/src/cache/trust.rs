//! The keys that sign finished steps for other caches: Ed25519, as PEM (RFC 8410).

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::anyhow;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use crate::error::{Failure, Remedy as _, Result};

/// File name of the private key in a key set.
pub const PRIVATE: &str = "cache.key";
/// File name of the public key in a key set, for `--trust`.
pub const PUBLIC: &str = "cache.pub";
/// The bytes before an Ed25519 key in a `SubjectPublicKeyInfo` (RFC 8410, section 4).
const PREFIX: [u8; 12] = [
    0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00,
];

/// A trusted public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Reads a public key.
    ///
    /// # Errors
    /// The file is not the PEM of an Ed25519 public key.
    pub fn read(path: &Path) -> Result<Self> {
        let remedy = format!("give the {PUBLIC} of a key set made by `mkimage keys`");
        let der = block(path, "PUBLIC KEY", &remedy)?;
        let key = der
            .strip_prefix(&PREFIX)
            .and_then(|key| key.try_into().ok());
        key.map(Self).ok_or_else(|| {
            Failure::new(
                format!("{} is not an Ed25519 public key", path.display()),
                remedy,
            )
        })
    }

    /// The raw key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The key as PEM.
    pub fn to_pem(&self) -> String {
        encode("PUBLIC KEY", [&PREFIX[..], &self.0].concat())
    }

    /// Whether `signature` is a valid signature of `message` by this key.
    pub fn has_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ED25519, self.as_bytes());
        key.verify(message, signature).is_ok()
    }
}

/// A signing key.
pub struct Signer {
    pair: Ed25519KeyPair,
    document: Vec<u8>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signer").field(&self.public()).finish()
    }
}

impl Signer {
    /// Generates a key.
    ///
    /// # Errors
    /// The machine has no random numbers.
    pub fn generate() -> Result<Self> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_unspecified| anyhow!("the machine has no random numbers for a key"))?;
        Self::parse(document.as_ref())
    }

    /// Reads the private key of a key set.
    ///
    /// # Errors
    /// The file is missing, or is not the PEM of an Ed25519 key.
    pub fn read(keys: &Path) -> Result<Self> {
        let path = keys.join(PRIVATE);
        let remedy = format!("use {PRIVATE} and {PUBLIC} of a new key set of `mkimage keys`");
        let der = block(&path, "PRIVATE KEY", &remedy)?;
        Self::parse(&der).or_fail(
            format!("{} is not an Ed25519 private key", path.display()),
            remedy,
        )
    }

    fn parse(document: &[u8]) -> Result<Self> {
        // Other tools omit the public key from the document.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(document);
        let pair = pair.map_err(|error| anyhow!("{error}"))?;
        Ok(Self {
            pair,
            document: document.to_owned(),
        })
    }

    /// The public key that verifies this key's signatures.
    pub fn public(&self) -> PublicKey {
        let mut key = [0; 32];
        for (to, from) in key.iter_mut().zip(self.pair.public_key().as_ref()) {
            *to = *from;
        }
        PublicKey(key)
    }

    /// The key as PEM.
    pub fn to_pem(&self) -> String {
        encode("PRIVATE KEY", self.document.clone())
    }

    /// The signature of `message`.
    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// The content of a file's single PEM block.
fn block(path: &Path, tag: &str, remedy: &str) -> Result<Vec<u8>> {
    let shown = path.display();
    let text = fs::read(path).or_fail(format!("reading the key {shown}"), remedy)?;
    let block = pem::parse(text).or_fail(format!("{shown} is not PEM"), remedy)?;
    match block.tag() == tag {
        true => Ok(block.into_contents()),
        false => Err(Failure::new(
            format!("{shown} holds a {}, not a {tag}", block.tag()),
            remedy,
        )),
    }
}

fn encode(tag: &str, der: Vec<u8>) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(tag, der), lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Tool;

    #[test]
    fn keys_and_signatures_are_interchangeable_with_openssl() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let openssl = |arguments: &[&str]| {
            let call = Tool::new("openssl").args(arguments).dir(dir.path());
            call.run().unwrap();
        };
        openssl(&["genpkey", "-algorithm", "ed25519", "-out", PRIVATE]);
        openssl(&["pkey", "-in", PRIVATE, "-pubout", "-out", PUBLIC]);
        let (signer, public) = (
            Signer::read(dir.path()).unwrap(),
            PublicKey::read(&at(PUBLIC)).unwrap(),
        );
        assert_eq!(signer.public(), public);
        assert_eq!(fs::read_to_string(at(PUBLIC)).unwrap(), public.to_pem());

        let own = Signer::generate().unwrap();
        fs::write(at("own.pub"), own.public().to_pem()).unwrap();
        fs::write(at("message"), "text").unwrap();
        fs::write(at("signature"), own.sign(b"text")).unwrap();
        let verify = "pkeyutl -verify -rawin -pubin -inkey own.pub -in message -sigfile signature";
        openssl(&verify.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn malformed_key_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(PUBLIC);
        let private = Signer::generate().unwrap().to_pem();
        let short = encode("PUBLIC KEY", PREFIX.to_vec());
        for text in ["", "nothing", &private, &short] {
            fs::write(&file, text).unwrap();
            let error = PublicKey::read(&file).unwrap_err();
            assert!(error.to_string().contains(PUBLIC), "{error}");
            let remedy = error.downcast_ref::<Failure>().unwrap().remedy();
            assert!(remedy.contains("mkimage keys"), "{remedy}");
        }
        let error = Signer::read(dir.path()).unwrap_err().to_string();
        assert!(error.contains(PRIVATE), "{error}");
    }
}
