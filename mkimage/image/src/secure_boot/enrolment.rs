//! Updates of the firmware's key variables (UEFI Specification 2.10, sections 8.2.6 and 32.4.1): files `NAME.auth`.
//!
//! A file is an `EFI_VARIABLE_AUTHENTICATION_2` followed by the new content. systemd-boot and the setup menus of
//! firmware write it to the variable unchanged.

use corten_steps::calendar;
use corten_steps::error::Result;
use uuid::{Uuid, uuid};

use super::Signer;
use crate::bytes;

/// A variable of the firmware that holds a key.
#[derive(Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name, and the base name of the key's files.
    pub name: &'static str,
    /// The key's name in the specification.
    pub title: &'static str,
    /// The GUID of the variable's vendor.
    vendor: Uuid,
}

/// `EFI_GLOBAL_VARIABLE` (section 3.3).
const GLOBAL: Uuid = uuid!("8be4df61-93ca-11d2-aa0d-00e098032b8c");
/// `EFI_IMAGE_SECURITY_DATABASE_GUID` (section 32.4.1).
const SECURITY_DATABASE: Uuid = uuid!("d719b2cb-3d3a-4596-a3bc-dad00e67656f");

/// The machine owner's key: may change the KEK.
pub const PK: Variable = Variable {
    name: "PK",
    title: "Platform Key",
    vendor: GLOBAL,
};
/// The key that may change the database.
pub const KEK: Variable = Variable {
    name: "KEK",
    title: "Key Exchange Key",
    vendor: GLOBAL,
};
/// The key that signs the programs that firmware starts.
pub const DB: Variable = Variable {
    name: "db",
    title: "Signature Database Key",
    vendor: SECURITY_DATABASE,
};
/// All variables, each after the one whose key sets it.
pub const ALL: [Variable; 3] = [PK, KEK, DB];

impl Variable {
    /// File name of the private key.
    pub fn key(&self) -> String {
        format!("{}.key", self.name)
    }

    /// File name of the certificate.
    pub fn certificate(&self) -> String {
        format!("{}.crt", self.name)
    }

    /// File name of the update that sets the variable.
    pub fn update(&self) -> String {
        format!("{}.auth", self.name)
    }

    /// The variable whose key may set it.
    pub fn set_by(&self) -> Self {
        if *self == DB { KEK } else { PK }
    }
}

/// `EFI_CERT_X509_GUID`.
const X509: Uuid = uuid!("a5c059a1-94e4-4aa7-87b5-ab155c2bf072");
/// `EFI_CERT_TYPE_PKCS7_GUID`.
const PKCS7: Uuid = uuid!("4aafd29d-68df-49ee-8aa9-347d375665a7");
/// Seed of the GUID of the list's "owner", in the specification the creator of the list.
const OWNER: &[u8] = b"corten.secure-boot";
/// Non-volatile, available at boot and run time, set by time-based authenticated updates.
const ATTRIBUTES: u32 = 0x1 | 0x2 | 0x4 | 0x20;
/// `WIN_CERTIFICATE` (section 32.2.4): revision and `WIN_CERT_TYPE_EFI_GUID`.
const REVISION: u16 = 0x0200;
const TYPE_GUID: u16 = 0x0ef1;
/// Size in bytes of a `WIN_CERTIFICATE_UEFI_GUID` without data.
const HEADER: usize = 24;

/// The update that sets `variable` to the certificate of `key`, signed by `signer`. Its date is
/// that of the certificate; every change needs a later date.
pub fn update(variable: &Variable, key: &Signer, signer: &Signer) -> Result<Vec<u8>> {
    let time = time(key.since)?;
    let list = list(&key.certificate)?;
    let signature = signer.beside(&signed(variable, &time, &list))?;
    let length = signature.len().saturating_add(HEADER);
    let mut update = time.to_vec();
    update.extend(bytes::fit32(length, "the signature")?.to_le_bytes());
    update.extend(REVISION.to_le_bytes());
    update.extend(TYPE_GUID.to_le_bytes());
    update.extend(PKCS7.to_bytes_le());
    update.extend(signature);
    update.extend(list);
    Ok(update)
}

/// The bytes that the signature of an update covers.
fn signed(variable: &Variable, time: &[u8; 16], list: &[u8]) -> Vec<u8> {
    let name = variable.name.encode_utf16().flat_map(u16::to_le_bytes);
    let mut signed: Vec<u8> = name.collect();
    signed.extend(variable.vendor.to_bytes_le());
    signed.extend(ATTRIBUTES.to_le_bytes());
    signed.extend(time);
    signed.extend(list);
    signed
}

/// An `EFI_SIGNATURE_LIST` of one certificate.
fn list(certificate: &[u8]) -> Result<Vec<u8>> {
    let entry = certificate.len().saturating_add(16);
    let mut list = X509.to_bytes_le().to_vec();
    list.extend(bytes::fit32(entry.saturating_add(28), "the certificate")?.to_le_bytes());
    list.extend(0_u32.to_le_bytes());
    list.extend(bytes::fit32(entry, "the certificate")?.to_le_bytes());
    list.extend(Uuid::new_v5(&Uuid::NAMESPACE_DNS, OWNER).to_bytes_le());
    list.extend(certificate);
    Ok(list)
}

/// An `EFI_TIME` (section 8.3.1) in UTC, with zeros in the fields that must be zero here.
fn time(epoch: u64) -> Result<[u8; 16]> {
    let (year, month, day) = calendar::date(epoch);
    let [year_low, year_high] = u16::try_from(year)?.to_le_bytes();
    let [hour, minute, second] = [epoch / 3600 % 24, epoch / 60 % 60, epoch % 60]
        .map(|part| u8::try_from(part).unwrap_or(0));
    Ok([
        year_low, year_high, month, day, hour, minute, second, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ])
}

#[cfg(test)]
mod tests {
    use super::super::tests::openssl_agrees;
    use super::*;
    use crate::testing::development;

    #[test]
    fn each_variable_update_is_signed_by_the_key_above_it() {
        for variable in &ALL {
            let keys = development();
            let key = Signer::read(&keys, variable).unwrap();
            let signer = Signer::read(&keys, &variable.set_by()).unwrap();
            let auth = update(variable, &key, &signer).unwrap();
            assert!(auth == update(variable, &key, &signer).unwrap());
            let published = super::super::read(&keys, &variable.update()).unwrap();
            assert!(
                auth == published,
                "{} belongs to other keys",
                variable.update()
            );

            let length = usize::try_from(bytes::u32_le(&auth, 16).unwrap()).unwrap();
            let (signature, list) = (&auth[40..16 + length], &auth[16 + length..]);
            assert!(list.ends_with(&key.certificate));
            let size = bytes::u32_le(list, 16).unwrap();
            assert_eq!(usize::try_from(size).unwrap(), list.len());
            // openssl expects a signature with its type in front.
            let signature = yasna::construct_der(|writer| {
                writer.write_sequence(|writer| {
                    super::super::pkcs7::oid(writer.next(), &[1, 2, 840, 113_549, 1, 7, 2]);
                    let writer = writer.next();
                    writer.write_tagged(yasna::Tag::context(0), |w| w.write_der(signature));
                });
            });
            let time = auth[..16].try_into().unwrap();
            let content = signed(variable, time, list);
            assert!(openssl_agrees(&signature, &content, &variable.set_by()));
            let other = if *variable == DB { PK } else { DB };
            assert!(!openssl_agrees(&signature, &content, &other));
            let content = signed(&other, time, list);
            assert!(!openssl_agrees(&signature, &content, &variable.set_by()));
        }
    }

    #[test]
    fn timestamp_has_the_firmware_format() {
        let time = time(1_700_000_000).unwrap();
        assert_eq!(time[..7], [0xe7, 0x07, 11, 14, 22, 13, 20]);
        assert_eq!(time[7..], [0; 9]);
    }
}
