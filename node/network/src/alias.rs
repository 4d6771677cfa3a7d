//! Aliases that the config gives to links of devices: `LinkAliasConfig`.

use std::collections::{BTreeMap, BTreeSet};

use corten_config::Document;
use corten_config::kinds::LinkAliasConfig;
use corten_types::names::{LINK_TYPES, number};
use corten_types::network::{LinkStatus, bytes};
use corten_values::LinkFacts;

use super::links::Present;

/// The aliases, and the failures.
#[derive(Debug, Default)]
pub(super) struct Aliases {
    /// Alias by kernel name.
    pub(super) by_link: BTreeMap<String, String>,
    /// Failures of documents, as messages for the operator.
    pub(super) complaints: Vec<String>,
}

/// Assigns aliases in the order of the documents; a link gets at most one.
pub(super) fn aliases(document: &Document, present: &Present) -> Aliases {
    let mut aliases = Aliases::default();
    let mut links: Vec<(&String, &LinkStatus)> = present
        .iter()
        .filter(|(_, link)| link.is_physical())
        .collect();
    links.sort_by_key(|(name, link)| (own_address(link), *name));
    let facts: Vec<LinkFacts> = links.iter().map(|(_, link)| facts(link)).collect();
    for config in document.all::<LinkAliasConfig>() {
        let selected = match config.selector.expression.selected(&facts) {
            Ok(selected) => selected,
            Err(why) => {
                aliases.complain(config, &why);
                continue;
            }
        };
        let selected = links.iter().zip(selected);
        let selected: Vec<&str> = selected
            .filter(|(_, is_selected)| *is_selected)
            .map(|((name, _), _)| name.as_str())
            .collect();
        match config.name.strip_suffix("%d") {
            Some(start) => {
                let without = selected
                    .into_iter()
                    .filter(|link| !aliases.by_link.contains_key(*link));
                let without: Vec<&str> = without.collect();
                for (at, link) in without.into_iter().enumerate() {
                    aliases.call(config, link, format!("{start}{at}"), present);
                }
            }
            None => aliases.call_the_only(config, &selected, present),
        }
    }
    aliases
}

impl Aliases {
    fn call_the_only(&mut self, config: &LinkAliasConfig, selected: &[&str], present: &Present) {
        match selected {
            // The device may appear later.
            [] => {}
            [link] => self.call(config, link, config.name.to_string(), present),
            several => {
                let why = format!("the selector matches several links: {}", several.join(", "));
                self.complain(config, &why);
            }
        }
    }

    fn call(&mut self, config: &LinkAliasConfig, link: &str, alias: String, present: &Present) {
        let is_link = present.iter().any(|(name, status)| {
            *name != *link && (*name == alias || status.alt_names.contains(&alias))
        });
        let taken: BTreeSet<&String> = self.by_link.values().collect();
        if let Some(other) = self.by_link.get(link) {
            let why = format!("{link} already has the alias {other}");
            self.complain(config, &why);
        } else if is_link || taken.contains(&alias) {
            self.complain(
                config,
                &format!("another link already has the name {alias}"),
            );
        } else {
            self.by_link.insert(link.to_owned(), alias);
        }
    }

    fn complain(&mut self, config: &LinkAliasConfig, why: &str) {
        let name = &config.name;
        self.complaints
            .push(format!("LinkAliasConfig {name}: {why}"));
    }
}

/// The device's permanent address, which does not change when the link joins a bond.
pub(super) fn own_address(link: &LinkStatus) -> Vec<u8> {
    if link.permanent_addr.is_empty() {
        link.mac()
    } else {
        bytes(&link.permanent_addr)
    }
}

fn facts(link: &LinkStatus) -> LinkFacts {
    LinkFacts {
        index: link.index,
        kind_of_hardware: number(&link.link_type, LINK_TYPES).unwrap_or(0xffff),
        // A port of a bond shows the bond's address, which would select another link.
        hardware_addr: if link.master_index == 0 {
            link.mac()
        } else {
            own_address(link)
        },
        permanent_addr: bytes(&link.permanent_addr),
        mtu: link.mtu,
        kind: link.kind.clone(),
        bus_path: link.bus_path.clone(),
        pci_id: link.pci_id.clone(),
        driver: link.driver.clone(),
        link_state: link.link_state,
        alt_names: link.alt_names.clone(),
    }
}
