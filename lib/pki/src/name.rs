//! Subjects and alternative names of certificates.

use std::net::IpAddr;

use rcgen::string::Ia5String;
use rcgen::{DistinguishedName, DnType, SanType};

use crate::PkiError;

/// The object id of `organizationName` (2.5.4.10).
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// Maximum number of organizations of a subject: the builder keeps one value per attribute *type*, and this type has
/// two names.
pub(crate) const MAX_ORGANIZATIONS: usize = 2;

/// A subject with these organizations and, unless it is empty, this common name.
pub(crate) fn subject(organizations: &[&str], common: &str) -> Result<DistinguishedName, PkiError> {
    let mut name = DistinguishedName::new();
    match organizations {
        [] => {}
        [one] => name.push(DnType::OrganizationName, *one),
        [one, two] => {
            name.push(DnType::OrganizationName, *one);
            name.push(DnType::CustomDnType(ORGANIZATION.to_vec()), *two);
        }
        _ => return Err(PkiError::TooManyRoles(MAX_ORGANIZATIONS)),
    }
    if !common.is_empty() {
        name.push(DnType::CommonName, common);
    }
    Ok(name)
}

/// The URI of [`crate::is_control_planes`].
pub(crate) const MARK: &str = "urn:corten:control-plane";

/// The mark as an alternative name.
pub(crate) fn mark() -> Result<SanType, PkiError> {
    let uri = Ia5String::try_from(MARK).map_err(|_| PkiError::BadName(MARK.to_owned()))?;
    Ok(SanType::URI(uri))
}

/// Alternative names: IP addresses as such, the rest as DNS names.
pub(crate) fn alternatives(names: &[String]) -> Result<Vec<SanType>, PkiError> {
    names.iter().map(|name| alternative(name)).collect()
}

fn alternative(name: &str) -> Result<SanType, PkiError> {
    if let Ok(address) = name.parse::<IpAddr>() {
        return Ok(SanType::IpAddress(address));
    }
    let bad = || PkiError::BadName(name.to_owned());
    let plausible = !name.is_empty()
        && name.len() <= 253
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '*'));
    if !plausible {
        return Err(bad());
    }
    Ok(SanType::DnsName(
        Ia5String::try_from(name).map_err(|_| bad())?,
    ))
}
