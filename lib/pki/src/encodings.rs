//! The encodings of private keys: PKCS#8 (RFC 5208), which the signing library reads, and the older ones of RSA and of
//! elliptic curves.

use yasna::models::ObjectIdentifier;
use yasna::{ASN1Result, Tag, construct_der, parse_der};

use crate::PkiError;

/// Object identifier of RSA keys (RFC 8017, appendix A.1).
const RSA: &[u64] = &[1, 2, 840, 113_549, 1, 1, 1];
/// Object identifier of elliptic curve keys (RFC 5480, section 2.1.1).
const CURVES: &[u64] = &[1, 2, 840, 10_045, 2, 1];
/// Integers of an RSA key behind its modulus: two exponents, two primes, and three numbers for faster signing.
const BEHIND_MODULUS: usize = 7;

/// A key in PKCS#8.
struct Pkcs8 {
    algorithm: ObjectIdentifier,
    /// DER; of a curve, its name.
    parameters: Vec<u8>,
    /// The key in the encoding of its algorithm.
    key: Vec<u8>,
}

impl Pkcs8 {
    fn read(der: &[u8]) -> ASN1Result<Pkcs8> {
        parse_der(der, |reader| {
            reader.read_sequence(|reader| {
                reader.next().read_u8()?;
                let (algorithm, parameters) = reader.next().read_sequence(|reader| {
                    Ok((reader.next().read_oid()?, reader.next().read_der()?))
                })?;
                Ok(Pkcs8 {
                    algorithm,
                    parameters,
                    key: reader.next().read_bytes()?,
                })
            })
        })
    }

    fn write(&self) -> Vec<u8> {
        construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_u8(0);
                writer.next().write_sequence(|writer| {
                    writer.next().write_oid(&self.algorithm);
                    writer.next().write_der(&self.parameters);
                });
                writer.next().write_bytes(&self.key);
            });
        })
    }
}

/// PKCS#8 of an RSA key in PKCS#1 (RFC 8017, appendix A.1.2).
pub(crate) fn from_pkcs1(key: &[u8]) -> Vec<u8> {
    let key = Pkcs8 {
        algorithm: ObjectIdentifier::from_slice(RSA),
        parameters: construct_der(|writer| writer.write_null()),
        key: key.to_vec(),
    };
    key.write()
}

/// PKCS#8 of an elliptic curve key in SEC 1 (RFC 5915). The key must name its curve.
pub(crate) fn from_sec1(key: &[u8]) -> Result<Vec<u8>, PkiError> {
    let curve = parse_der(key, |reader| {
        reader.read_sequence(|reader| {
            reader.next().read_u8()?;
            reader.next().read_bytes()?;
            let curve = reader
                .next()
                .read_tagged(Tag::context(0), |reader| reader.read_der())?;
            // The point of the public key.
            reader.next().read_der()?;
            Ok(curve)
        })
    });
    let key = Pkcs8 {
        algorithm: ObjectIdentifier::from_slice(CURVES),
        parameters: curve.map_err(|_| PkiError::NotAKey)?,
        key: key.to_vec(),
    };
    Ok(key.write())
}

/// SEC 1 of an elliptic curve key in PKCS#8, with the name of the curve, which PKCS#8 has outside of the key.
pub(crate) fn to_sec1(pkcs8: &[u8]) -> Result<Vec<u8>, PkiError> {
    let named = |whole: Pkcs8| {
        let (scalar, point) = parse_der(&whole.key, |reader| {
            reader.read_sequence(|reader| {
                reader.next().read_u8()?;
                Ok((reader.next().read_bytes()?, reader.next().read_der()?))
            })
        })?;
        Ok(construct_der(|writer| {
            writer.write_sequence(|writer| {
                writer.next().write_u8(1);
                writer.next().write_bytes(&scalar);
                writer.next().write_tagged(Tag::context(0), |writer| {
                    writer.write_der(&whole.parameters);
                });
                writer.next().write_der(&point);
            });
        }))
    };
    let sec1 = Pkcs8::read(pkcs8).and_then(named);
    sec1.map_err(|_| PkiError::NotAKey)
}

/// Bits of the modulus of an RSA key in PKCS#8; `None` for other bytes.
pub(crate) fn rsa_bits(pkcs8: &[u8]) -> Option<usize> {
    let whole = Pkcs8::read(pkcs8).ok()?;
    if whole.algorithm.components() != RSA {
        return None;
    }
    let modulus = parse_der(&whole.key, |reader| {
        reader.read_sequence(|reader| {
            reader.next().read_u8()?;
            let (modulus, _) = reader.next().read_bigint_bytes()?;
            for _ in 0..BEHIND_MODULUS {
                reader.next().read_der()?;
            }
            Ok(modulus)
        })
    });
    let modulus = modulus.ok()?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let first = modulus.get(zeros)?;
    Some((modulus.len() - zeros) * 8 - first.leading_zeros() as usize)
}
