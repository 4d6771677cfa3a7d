//! `/usr/local/etc/containers/<name>.yaml`: a service an extension brings, which runs in a container whose
//! root is `/usr/local/lib/containers/<name>`.

use serde::Deserialize;

use crate::Problem;

/// Where the files are.
pub const DIRECTORY: &str = "/usr/local/etc/containers";
/// Where the containers' roots are.
pub const ROOTS: &str = "/usr/local/lib/containers";

/// The largest file, in bytes; real ones have a few hundred.
pub const LARGEST: usize = 64 * 1024;
/// Of a name: `ext-` and it are the name of a log, which has at most 64 letters.
const LONGEST_NAME: usize = 60;
/// Of a service's name in the API.
const LONGEST_ID: usize = 64;
/// What mount_namespaces(7) knows.
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
    /// Lower-case letters and digits, single `-` and `_` between them.
    pub name: String,
    /// What runs.
    pub container: Container,
    /// What must be there before.
    #[serde(default)]
    pub depends: Vec<Dependency>,
    /// What becomes of it when it has ended.
    pub restart: Restart,
    /// Its output is shown on the console, too.
    #[serde(default)]
    pub log_to_console: bool,
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Container {
    /// The program, by its path in the root or as a name in its `PATH`.
    pub entrypoint: String,
    /// `NAME=value`.
    #[serde(default)]
    pub environment: Vec<String>,
    /// A file of the node with more of them, a line each; empty: none.
    #[serde(default)]
    pub environment_file: String,
    /// Of the program.
    #[serde(default)]
    pub args: Vec<String>,
    /// What of the node it sees, and more.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// What it may do.
    #[serde(default)]
    pub security: Security,
}

/// A mount (OCI runtime spec, config.md, "Mounts").
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// Where in the container.
    pub destination: String,
    /// What is mounted: a path of the node for binds, else what the type wants.
    #[serde(default)]
    pub source: String,
    /// The file system; `bind` for a part of the node.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// As mount(8) takes them.
    #[serde(default)]
    pub options: Vec<String>,
}

/// What a container may do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Security {
    /// Paths hidden from it, in place of the usual ones.
    pub masked_paths: Option<Vec<String>>,
    /// Paths it cannot write to, in place of the usual ones.
    pub readonly_paths: Option<Vec<String>>,
    /// It may write to its root.
    #[serde(default)]
    pub writeable_rootfs: bool,
    /// It may write to `/sys`.
    #[serde(default)]
    pub writeable_sysfs: bool,
    /// How its mounts and the node's see each other; empty: as the kernel's `rslave`.
    #[serde(default)]
    pub rootfs_propagation: String,
}

/// What becomes of a service that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Restart {
    /// It starts again.
    Always,
    /// It starts again unless it has succeeded.
    UntilSuccess,
    /// It does not.
    Never,
}

/// A part of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkPart {
    /// The node has an address.
    Addresses,
    /// The node reaches others.
    Connectivity,
    /// The node has its name.
    Hostname,
    /// `/etc/hosts` and `/etc/resolv.conf` are written.
    EtcFiles,
}

/// One thing a service waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dependency {
    /// Another service is up.
    Service(String),
    /// A path of the node is there.
    Path(String),
    /// All these parts of the network.
    Network(Vec<NetworkPart>),
    /// The clock is right.
    Time,
    /// The machine config has an `ExtensionServiceConfig` of its name.
    Configuration,
}

/// A dependency as it is written: exactly one of these.
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
                "an entry of depends is exactly one of service, path, network, time: true and \
                 configuration: true",
            )),
        }
    }
}

impl Service {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// What is wrong, with its field.
    pub fn parse(bytes: &[u8]) -> Result<Service, Problem> {
        let malformed =
            |what: String| Problem::new("the file", what, "correct it; no other field is known");
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
                "use up to {LONGEST_NAME} lower-case letters and digits, and single - and _ between them"
            );
            return Err(wrong(
                "name",
                &format!("{:?} is no name", self.name),
                &remedy,
            ));
        }
        self.container.check()?;
        for (place, dependency) in self.depends.iter().enumerate() {
            let field = |kind: &str| format!("depends[{place}].{kind}");
            match dependency {
                Dependency::Path(path) => check_path(&field("path"), path)?,
                Dependency::Service(id) if !is_name(id, LONGEST_ID) => {
                    let what = format!("{id:?} is no service");
                    return Err(wrong(
                        &field("service"),
                        &what,
                        "name one of the service list",
                    ));
                }
                Dependency::Network(parts) if parts.is_empty() => {
                    let remedy = "name addresses, connectivity, hostname or etcfiles";
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
            let remedy = "name the program";
            return Err(wrong("container.entrypoint", "it is empty", remedy));
        }
        for (place, word) in self.args.iter().enumerate() {
            check_text(&format!("container.args[{place}]"), word)?;
        }
        for (place, variable) in self.environment.iter().enumerate() {
            let field = format!("container.environment[{place}]");
            check_text(&field, variable)?;
            // The value may be a secret.
            if variable.find('=').is_none_or(|at| at == 0) {
                return Err(wrong(&field, "it is not NAME=value", "write it so"));
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
                &format!("{rootfs_propagation:?} is none"),
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

/// An absolute path that leads where it seems to.
fn check_path(field: &str, path: &str) -> Result<(), Problem> {
    check_text(field, path)?;
    if path.starts_with('/') && !path.split('/').any(|part| part == "..") {
        return Ok(());
    }
    let what = format!("{path:?} is no absolute path");
    Err(wrong(field, &what, "begin it with /, and leave .. out"))
}

/// The kernel takes no text with a NUL.
fn check_text(field: &str, text: &str) -> Result<(), Problem> {
    if text.contains('\0') {
        return Err(wrong(field, "it has a NUL", "leave it out"));
    }
    Ok(())
}

/// Words with one separator between them, as containerd takes identifiers.
fn is_name(name: &str, longest: usize) -> bool {
    let in_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut words = name.split(['-', '_']);
    name.len() <= longest && words.all(|word| !word.is_empty() && word.chars().all(in_word))
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
