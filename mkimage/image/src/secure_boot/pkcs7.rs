//! PKCS #7 signatures in the form that firmware reads: `SignedData` of version 1.5 (RFC 2315,
//! section 9.1).

use corten_steps::error::Result;
use sha2::{Digest as _, Sha256};
use yasna::models::ObjectIdentifier;
use yasna::{DERWriter, Tag, TagClass, construct_der};

use super::Signer;

const SIGNED_DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 2];
const DATA: &[u64] = &[1, 2, 840, 113_549, 1, 7, 1];
const CONTENT_TYPE: &[u64] = &[1, 2, 840, 113_549, 1, 9, 3];
const MESSAGE_DIGEST: &[u64] = &[1, 2, 840, 113_549, 1, 9, 4];
const RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];
pub(super) const SHA256: &[u64] = &[2, 16, 840, 1, 101, 3, 4, 2, 1];

/// The tag `[0]`.
const ZERO: Tag = Tag {
    tag_class: TagClass::ContextSpecific,
    tag_number: 0,
};

impl Signer {
    /// A detached signature of `content` without attributes: a bare `SignedData`.
    pub(super) fn beside(&self, content: &[u8]) -> Result<Vec<u8>> {
        let described = construct_der(|writer| {
            writer.write_sequence(|writer| oid(writer.next(), DATA));
        });
        let signature = self.sign(content)?;
        Ok(construct_der(|writer| {
            self.signed_data(writer, &described, &[], &signature);
        }))
    }

    /// A signature with embedded content of `kind`: a `ContentInfo`. `content` is the inside of the
    /// outermost SEQUENCE. The signature covers the content's type and digest.
    pub(super) fn around(&self, kind: &[u64], content: &[u8]) -> Result<Vec<u8>> {
        let described = construct_der(|writer| {
            writer.write_sequence(|writer| {
                oid(writer.next(), kind);
                writer.next().write_tagged(ZERO, |writer| {
                    writer.write_sequence(|writer| writer.next().write_der(content));
                });
            });
        });
        let digest = Sha256::digest(content);
        let attributes = [
            attribute(CONTENT_TYPE, |writer| oid(writer, kind)),
            attribute(MESSAGE_DIGEST, |writer| writer.write_bytes(&digest)),
        ];
        let signature = self.sign(&construct_der(|writer| set(writer, &attributes)))?;
        Ok(construct_der(|writer| {
            writer.write_sequence(|writer| {
                oid(writer.next(), SIGNED_DATA);
                writer.next().write_tagged(ZERO, |writer| {
                    self.signed_data(writer, &described, &attributes, &signature);
                });
            });
        }))
    }

    fn signed_data(
        &self,
        writer: DERWriter<'_>,
        described: &[u8],
        attributes: &[Vec<u8>],
        signature: &[u8],
    ) {
        writer.write_sequence(|writer| {
            writer.next().write_u8(1);
            writer
                .next()
                .write_set(|writer| algorithm(writer.next(), SHA256));
            writer.next().write_der(described);
            writer.next().write_tagged_implicit(ZERO, |writer| {
                writer.write_set(|writer| writer.next().write_der(&self.certificate));
            });
            let signers = writer.next();
            signers.write_set(|writer| self.signer_info(writer.next(), attributes, signature));
        });
    }

    fn signer_info(&self, writer: DERWriter<'_>, attributes: &[Vec<u8>], signature: &[u8]) {
        writer.write_sequence(|writer| {
            writer.next().write_u8(1);
            writer.next().write_sequence(|writer| {
                writer.next().write_der(&self.issuer);
                writer.next().write_bigint_bytes(&self.serial, true);
            });
            algorithm(writer.next(), SHA256);
            if !attributes.is_empty() {
                let writer = writer.next();
                writer.write_tagged_implicit(ZERO, |writer| set(writer, attributes));
            }
            algorithm(writer.next(), RSA);
            writer.next().write_bytes(signature);
        });
    }
}

pub(super) fn oid(writer: DERWriter<'_>, components: &[u64]) {
    writer.write_oid(&ObjectIdentifier::from_slice(components));
}

/// An algorithm without parameters.
pub(super) fn algorithm(writer: DERWriter<'_>, name: &[u64]) {
    writer.write_sequence(|writer| {
        oid(writer.next(), name);
        writer.next().write_null();
    });
}

fn attribute(kind: &[u64], value: impl FnOnce(DERWriter<'_>)) -> Vec<u8> {
    construct_der(|writer| {
        writer.write_sequence(|writer| {
            oid(writer.next(), kind);
            writer.next().write_set(|writer| value(writer.next()));
        });
    })
}

/// A SET OF encoded elements, in DER's order.
fn set(writer: DERWriter<'_>, elements: &[Vec<u8>]) {
    writer.write_set_of(|writer| {
        for element in elements {
            writer.next().write_der(element);
        }
    });
}
