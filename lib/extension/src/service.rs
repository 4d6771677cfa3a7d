//! `/usr/local/etc/containers/<name>.yaml`: a service of an extension. It runs in a container with the root
//! `/usr/local/lib/containers/<name>`.

use serde::Deserialize;

use crate::Problem;

/// Directory of the service files.
pub const DIRECTORY: &str = "/usr/local/etc/containers";
/// Directory of the containers' roots.
pub const ROOTS: &str = "/usr/local/lib/containers";

/// Limit of the file in bytes; real ones have a few hundred.
pub const LARGEST: usize = 64 * 1024;
/// Longest name: `ext-` and the name form the name of a log, which has at most 64 letters.
const LONGEST_NAME: usize = 60;
/// Longest name of a service in the API.
const LONGEST_ID: usize = 64;
/// Propagation types of mount_namespaces(7).
const PROPAGATIONS: [&str; 8] = [
    "private",
    "rprivate",
    "shared",
    "rshared",
    "slave",
    "rslave",
    "unbindable",
    "runbindable",
];

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Service {
    /// Name: lower-case letters and digits, with single `-` and `_` between them.
    pub name: String,
    /// Container of the service.
    pub container: Container,
    /// Conditions for its start.
    #[serde(default)]
    pub depends: Vec<Dependency>,
    /// Restart policy.
    pub restart: Restart,
    /// Whether its output also goes to the console.
    #[serde(default)]
    pub log_to_console: bool,
}

/// The container of a service.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Container {
    /// Program: a path in the root, or a name in its `PATH`.
    pub entrypoint: String,
    /// Environment variables, as `NAME=value`.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Path of a file of the node with further variables, one per line; empty: none.
    #[serde(default)]
    pub environment_file: String,
    /// Arguments of the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// Mounts, for example of paths of the node.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Restrictions.
    #[serde(default)]
    pub security: Security,
}

/// A mount (OCI runtime spec, config.md, "Mounts").
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Path in the container.
    pub destination: String,
    /// Source: a path of the node for binds, else a value that depends on the type.
    #[serde(default)]
    pub source: String,
    /// File system type; `bind` for a path of the node.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Options, as for mount(8).
    #[serde(default)]
    pub options: Vec<String>,
}

/// Restrictions of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Security {
    /// Paths hidden from it, instead of the usual ones.
    pub masked_paths: Option<Vec<String>>,
    /// Read-only paths, instead of the usual ones.
    pub readonly_paths: Option<Vec<String>>,
    /// Whether its root is writable.
    #[serde(default)]
    pub writeable_rootfs: bool,
    /// Whether `/sys` is writable.
    #[serde(default)]
    pub writeable_sysfs: bool,
    /// Propagation between its mounts and the node's; empty: the kernel's `rslave`.
    #[serde(default)]
    pub rootfs_propagation: String,
}

/// Restart policy of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Restart {
    /// Restarts always.
    Always,
    /// Restarts until it succeeds.
    UntilSuccess,
    /// Never restarts.
    Never,
}

/// A condition of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkPart {
    /// The node has an address.
    Addresses,
    /// The node can reach other hosts.
    Connectivity,
    /// The host name is set.
    Hostname,
    /// `/etc/hosts` and `/etc/resolv.conf` are written.
    EtcFiles,
}

/// One condition for a service's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dependency {
    /// Another service is up.
    Service(String),
    /// A path of the node exists.
    Path(String),
    /// All these network conditions hold.
    Network(Vec<NetworkPart>),
    /// The clock is synchronized.
    Time,
    /// The machine config has an `ExtensionServiceConfig` with its name.
    Configuration,
}

/// A dependency in the file; exactly one field is set.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    service: Option<String>,
    path: Option<String>,
    network: Option<Vec<NetworkPart>>,
    time: Option<bool>,
    configuration: Option<bool>,
}

impl<'de> Deserialize<'de> for Dependency {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Dependency, D::Error> {
        let written = Written::deserialize(deserializer)?;
        let only_true = |flag: Option<bool>| flag.filter(|flag| *flag);
        let mut found = [
            written.service.map(Dependency::Service),
            written.path.map(Dependency::Path),
            written.network.map(Dependency::Network),
            only_true(written.time).map(|_| Dependency::Time),
            only_true(written.configuration).map(|_| Dependency::Configuration),
        ]
        .into_iter()
        .flatten();
        match (found.next(), found.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(serde::de::Error::custom(
                "an entry of depends must be exactly one of service, path, network, time: true and configuration: true",
            )),
        }
    }
}

impl Service {
    /// Parses and checks a file.
    ///
    /// # Errors
    /// The problem, with its field.
    pub fn parse(bytes: &[u8]) -> Result<Service, Problem> {
        let malformed =
            |what: String| Problem::new("the file", what, "correct it; unknown fields are refused");
        if bytes.len() > LARGEST {
            return Err(malformed(format!("it is larger than {LARGEST} bytes")));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| malformed(error.to_string()))?;
        let service: Service =
            serde_saphyr::from_str(text).map_err(|error| malformed(crate::told(&error)))?;
        service.check()?;
        Ok(service)
    }

    fn check(&self) -> Result<(), Problem> {
        if !is_name(&self.name, LONGEST_NAME) {
            let remedy = format!(
                "use up to {LONGEST_NAME} lower-case letters and digits, with single - or _ between them"
            );
            return Err(wrong(
                "name",
                &format!("{:?} is not a valid name", self.name),
                &remedy,
            ));
        }
        self.container.check()?;
        for (place, dependency) in self.depends.iter().enumerate() {
            let field = |kind: &str| format!("depends[{place}].{kind}");
            match dependency {
                Dependency::Path(path) => check_path(&field("path"), path)?,
                Dependency::Service(id) if !is_name(id, LONGEST_ID) => {
                    let what = format!("{id:?} is not a service id");
                    return Err(wrong(
                        &field("service"),
                        &what,
                        "use an id of the service list",
                    ));
                }
                Dependency::Network(parts) if parts.is_empty() => {
                    let remedy = "use addresses, connectivity, hostname or etcfiles";
                    return Err(wrong(&field("network"), "it is empty", remedy));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Container {
    fn check(&self) -> Result<(), Problem> {
        check_text("container.entrypoint", &self.entrypoint)?;
        if self.entrypoint.is_empty() {
            let remedy = "set the path of the program";
            return Err(wrong("container.entrypoint", "it is empty", remedy));
        }
        for (place, word) in self.args.iter().enumerate() {
            check_text(&format!("container.args[{place}]"), word)?;
        }
        for (place, variable) in self.environment.iter().enumerate() {
            let field = format!("container.environment[{place}]");
            check_text(&field, variable)?;
            // The text is not quoted: it may hold a secret.
            if variable.find('=').is_none_or(|at| at == 0) {
                return Err(wrong(
                    &field,
                    "it does not have the form NAME=value",
                    "use this form",
                ));
            }
        }
        if !self.environment_file.is_empty() {
            check_path("container.environmentFile", &self.environment_file)?;
        }
        for (place, mount) in self.mounts.iter().enumerate() {
            mount.check(&format!("container.mounts[{place}]"))?;
        }
        let Security {
            masked_paths,
            readonly_paths,
            rootfs_propagation,
            ..
        } = &self.security;
        for (field, paths) in [
            ("maskedPaths", masked_paths),
            ("readonlyPaths", readonly_paths),
        ] {
            for (place, path) in paths.iter().flatten().enumerate() {
                check_path(&format!("container.security.{field}[{place}]"), path)?;
            }
        }
        let known = PROPAGATIONS.contains(&rootfs_propagation.as_str());
        if !known && !rootfs_propagation.is_empty() {
            return Err(wrong(
                "container.security.rootfsPropagation",
                &format!("{rootfs_propagation:?} is not a mount propagation"),
                &format!("use one of {}", PROPAGATIONS.join(", ")),
            ));
        }
        Ok(())
    }
}

impl Mount {
    fn check(&self, field: &str) -> Result<(), Problem> {
        check_path(&format!("{field}.destination"), &self.destination)?;
        check_text(&format!("{field}.type"), &self.kind)?;
        for (place, option) in self.options.iter().enumerate() {
            check_text(&format!("{field}.options[{place}]"), option)?;
        }
        let is_bind = |option: &String| option == "bind" || option == "rbind";
        if self.kind == "bind" || self.options.iter().any(is_bind) {
            return check_path(&format!("{field}.source"), &self.source);
        }
        check_text(&format!("{field}.source"), &self.source)
    }
}

fn wrong(field: &str, what: &str, remedy: &str) -> Problem {
    Problem::new(field, what, remedy)
}

/// An absolute path without `.` and `..`.
fn check_path(field: &str, path: &str) -> Result<(), Problem> {
    check_text(field, path)?;
    if path.starts_with('/') && !path.split('/').any(|part| part == "..") {
        return Ok(());
    }
    let what = format!("{path:?} is not an absolute path");
    Err(wrong(
        field,
        &what,
        "begin the path with / and remove .. parts",
    ))
}

/// The kernel accepts no text with a NUL.
fn check_text(field: &str, text: &str) -> Result<(), Problem> {
    if text.contains('\0') {
        return Err(wrong(field, "it contains a NUL", "remove it"));
    }
    Ok(())
}

/// Words with single separators between them, as in containerd's identifiers.
fn is_name(name: &str, longest: usize) -> bool {
    let in_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut words = name.split(['-', '_']);
    name.len() <= longest && words.all(|word| !word.is_empty() && word.chars().all(in_word))
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
