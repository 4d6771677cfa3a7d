//! The two types of every store: resource types and namespaces.

use serde::Serialize;

use crate::resource::{Column, Definition, Sensitivity, Spec};

/// Namespace of the store's self-description.
pub const NAMESPACE: &str = "meta";

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Namespace {
    /// Purpose of the namespace.
    pub description: String,
}

impl Spec for Namespace {
    const DEFINITION: Definition = Definition {
        type_name: "Namespaces.meta.cosi.dev",
        default_namespace: NAMESPACE,
        aliases: &["ns"],
        columns: &[],
        sensitivity: Sensitivity::NonSensitive,
        only_declared_aliases: false,
    };

    type Message = ();

    fn message(&self) {}
}

/// A column of the client's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PrintColumn {
    /// Name of the column.
    pub name: String,
    /// JSON path into the spec, in braces.
    pub json_path: String,
}

/// A type of resources; its id is the type's name in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDefinition {
    /// Full name of the type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Singular of the name, for people.
    pub display_type: String,
    /// Default namespace of its resources.
    pub default_namespace: String,
    /// Short names: the declared ones, the singular and the acronym, except those of another type.
    pub aliases: Vec<String>,
    /// All names of the type except its full name.
    pub all_aliases: Vec<String>,
    /// Columns of the client's table.
    pub print_columns: Vec<PrintColumn>,
    /// `sensitive`, or absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<&'static str>,
}

impl Spec for ResourceDefinition {
    const DEFINITION: Definition = Definition {
        type_name: "ResourceDefinitions.meta.cosi.dev",
        default_namespace: NAMESPACE,
        aliases: &["api-resources"],
        columns: &[Column {
            name: "Aliases",
            path: ".aliases[:]",
        }],
        sensitivity: Sensitivity::NonSensitive,
        only_declared_aliases: false,
    };

    type Message = ();

    fn message(&self) {}
}

impl From<Definition> for ResourceDefinition {
    fn from(definition: Definition) -> ResourceDefinition {
        let (plural, suffix) = definition
            .type_name
            .split_once('.')
            .unwrap_or((definition.type_name, ""));
        let display_type = singular(plural);
        let declared = definition.aliases.iter().map(|alias| (*alias).to_owned());
        let mut aliases: Vec<String> = declared.collect();
        let mut all_aliases = Vec::new();
        if !definition.only_declared_aliases {
            for alias in [display_type.to_lowercase()]
                .into_iter()
                .chain(acronyms(plural))
            {
                if !aliases.contains(&alias) {
                    aliases.push(alias);
                }
            }
            let plural = plural.to_lowercase();
            all_aliases.push(plural.clone());
            // `statuses.net` and `statuses.net.talos` for `Statuses.net.talos.dev`.
            all_aliases.extend(
                suffix
                    .match_indices('.')
                    .filter_map(|(end, _)| suffix.get(..end))
                    .map(|prefix| format!("{plural}.{prefix}")),
            );
        }
        all_aliases.extend(aliases.iter().cloned());
        let columns = definition.columns.iter().map(|column| PrintColumn {
            name: column.name.to_owned(),
            json_path: format!("{{{}}}", column.path),
        });
        ResourceDefinition {
            type_name: definition.type_name.to_owned(),
            display_type,
            default_namespace: definition.default_namespace.to_owned(),
            aliases,
            all_aliases,
            print_columns: columns.collect(),
            sensitivity: match definition.sensitivity {
                Sensitivity::NonSensitive => None,
                Sensitivity::Masked | Sensitivity::Sensitive => Some("sensitive"),
            },
        }
    }
}

/// The English singular, for the endings of type names.
fn singular(plural: &str) -> String {
    if let Some(stem) = plural.strip_suffix("ies") {
        return format!("{stem}y");
    }
    let two = ["sses", "uses", "shes", "xes"];
    let ending = if two.iter().any(|ending| plural.ends_with(ending)) {
        "es"
    } else {
        "s"
    };
    plural.strip_suffix(ending).unwrap_or(plural).to_owned()
}

/// The acronym of the name and its plural; none when it is a single letter.
fn acronyms(plural: &str) -> Vec<String> {
    let capitals: String = plural.chars().filter(char::is_ascii_uppercase).collect();
    let capitals = capitals.to_lowercase();
    if capitals.len() < 2 {
        return Vec::new();
    }
    let more = (!capitals.ends_with('s')).then(|| format!("{capitals}s"));
    [capitals].into_iter().chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_found_by_every_name_clients_use() {
        let own = ResourceDefinition::from(ResourceDefinition::DEFINITION);
        assert_eq!(own.display_type, "ResourceDefinition");
        assert_eq!(
            own.aliases,
            ["api-resources", "resourcedefinition", "rd", "rds"]
        );
        let addresses = ResourceDefinition::from(Definition {
            type_name: "AddressStatuses.net.talos.dev",
            aliases: &["address", "addresses"],
            ..ResourceDefinition::DEFINITION
        });
        assert_eq!(
            addresses.all_aliases,
            [
                "addressstatuses",
                "addressstatuses.net",
                "addressstatuses.net.talos",
                "address",
                "addresses",
                "addressstatus",
                "as",
            ]
        );
    }

    #[test]
    fn type_with_only_declared_aliases_has_no_derived_ones() {
        let mounts = ResourceDefinition::from(Definition {
            type_name: "MountStatuses.runtime.talos.dev",
            aliases: &["mounts"],
            only_declared_aliases: true,
            ..ResourceDefinition::DEFINITION
        });
        assert_eq!(mounts.aliases, ["mounts"]);
        assert_eq!(mounts.all_aliases, ["mounts"]);
        assert_eq!(mounts.display_type, "MountStatus");
    }

    #[test]
    fn plural_type_names_have_singulars() {
        for (plural, one) in [
            ("Identities", "Identity"),
            ("NodeAddresses", "NodeAddress"),
            ("LinkStatuses", "LinkStatus"),
            ("LinkRefreshes", "LinkRefresh"),
            ("DNSResolveCaches", "DNSResolveCache"),
            ("Services", "Service"),
        ] {
            assert_eq!(singular(plural), one);
        }
    }
}
