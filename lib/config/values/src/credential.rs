//! Certificates and keys.

use std::fmt;
use std::ops::Deref;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_yaml::read::{Reader, Value, scalar};
use corten_yaml::section;
use corten_yaml::table::Shape;
use corten_yaml::tree::Node;

use crate::secret::Secret;

/// A certificate: PEM here, base64 of it in the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base64Certificate(String);

impl Deref for Base64Certificate {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Base64Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Value for Base64Certificate {
    const SHAPE: Shape = Shape::Text("base64 of a PEM CERTIFICATE");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "base64 of a PEM CERTIFICATE", |text| {
            decoded(text, "CERTIFICATE").map(Base64Certificate)
        })
    }
}

/// A private key: PEM here, base64 of it in the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base64Key(Secret);

impl Deref for Base64Key {
    type Target = Secret;
    fn deref(&self) -> &Secret {
        &self.0
    }
}

impl Value for Base64Key {
    const SHAPE: Shape = Shape::Secret;
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "base64 of a PEM PRIVATE KEY", |text| {
            decoded(text, "PRIVATE KEY").map(|pem| Base64Key(Secret::new(pem)))
        })
    }
}

/// Decodes PEM text from base64.
fn decoded(text: &str, tag: &str) -> Option<String> {
    let text: String = text.split_whitespace().collect();
    let pem = String::from_utf8(STANDARD.decode(text).ok()?).ok()?;
    holds(&pem, tag).then_some(pem)
}

fn holds(pem: &str, tag: &str) -> bool {
    pem.contains("-----BEGIN ") && pem.contains(tag)
}

section! {
    /// A CA in the old form.
    pub struct KeyPair {
        Acted "crt" crt: Base64Certificate = "Certificate";
        Acted "key" key: Base64Key = "Private key; absent where only the certificate is known";
    }
}

section! {
    /// A CA for verification only.
    pub struct AcceptedCa {
        Acted "crt" crt: Base64Certificate = "Certificate";
    }
}

/// A private key as PEM text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PemKey(Secret);

impl Deref for PemKey {
    type Target = Secret;
    fn deref(&self) -> &Secret {
        &self.0
    }
}

impl Value for PemKey {
    const SHAPE: Shape = Shape::Secret;
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "a PEM PRIVATE KEY", |text| {
            holds(text, "PRIVATE KEY").then(|| PemKey(Secret::new(text)))
        })
    }
}

/// A public key as PEM text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PemPublicKey(String);

impl Deref for PemPublicKey {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Value for PemPublicKey {
    const SHAPE: Shape = Shape::Text("a PEM PUBLIC KEY");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "a PEM PUBLIC KEY", |text| {
            let only = !text.contains("PRIVATE KEY");
            (holds(text, "PUBLIC KEY") && only).then(|| PemPublicKey(text.to_owned()))
        })
    }
}

section! {
    /// A CA in the documents of Kubernetes.
    pub struct PemKeyPair {
        Acted "cert" crt: PemCertificates = "Certificate", required;
        Acted "key" key: PemKey = "Private key in PEM", required;
    }
}

/// One or more certificates as PEM text, possibly with comments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PemCertificates(String);

impl Deref for PemCertificates {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Value for PemCertificates {
    const SHAPE: Shape = Shape::Text("PEM certificates");
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        scalar(node, reader, "PEM certificates", |text| {
            let ends = text.matches("-----END CERTIFICATE-----").count();
            let whole = ends > 0 && ends == text.matches("-----BEGIN CERTIFICATE-----").count();
            // A private key in this text would be copied to every program on the node.
            let only = !text.contains("PRIVATE KEY");
            (whole && only).then(|| PemCertificates(text.to_owned()))
        })
    }
}
