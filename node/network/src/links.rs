//! The present links, and the names that the config and the platform may use for them.

use std::collections::BTreeMap;

use corten_types::network::LinkStatus;
use corten_types::network_spec::Bond;

/// The present links, by name.
pub type Present = BTreeMap<String, LinkStatus>;

/// The kernel name of a link, given any of its names.
pub fn real_name<'a>(name: &'a str, present: &'a Present) -> &'a str {
    if present.contains_key(name) {
        return name;
    }
    let is_called =
        |link: &LinkStatus| link.alias == name || link.alt_names.iter().any(|other| other == name);
    let mut links = present.iter();
    let found = links.find(|(_, link)| is_called(link));
    found.map_or(name, |(link, _)| link)
}

/// The bond with the kernel name of its preferred port.
pub(super) fn with_real_primary(mut bond: Bond, present: &Present) -> Bond {
    if !bond.primary.is_empty() {
        bond.primary = real_name(&bond.primary, present).to_owned();
    }
    bond
}
