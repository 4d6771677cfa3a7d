//! A document that has been read and found good.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::MAX_SIZE;
use crate::check;
use crate::extract::extract;
use crate::problem::{Mark, Notes, Problems};
use crate::schema::{self, Field, Shape};
use crate::secret::Secret;
use crate::tree::{self, Node};

/// What a node is in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineType {
    /// Runs the control plane. `init` is an old name for the first of them.
    ControlPlane,
    /// Runs workloads only.
    Worker,
}

/// Where a node runs, for what only some places need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A machine that is installed to a disk of its own.
    Metal,
    /// A machine whose image is its disk: nothing is installed.
    Cloud,
}

/// A certificate authority as a config carries it, decoded to PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyPair {
    /// The certificate.
    pub crt: String,
    /// The private key; empty where only the certificate is known.
    pub key: Secret,
}

/// The `machine` section, as far as the node reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// `machine.type`.
    pub kind: MachineType,
    /// `machine.token`: what a joining node shows to trustd.
    pub token: Secret,
    /// `machine.ca`: the authority of the API.
    pub ca: Option<KeyPair>,
    /// `machine.acceptedCAs`: further authorities whose clients are let in, PEM.
    pub accepted_cas: Vec<String>,
    /// `machine.certSANs`: further names of the API's certificate.
    pub cert_sans: Vec<String>,
    /// `machine.network.hostname`, or that of a `HostnameConfig` document.
    pub hostname: Option<String>,
    /// `machine.network.nameservers`.
    pub nameservers: Vec<IpAddr>,
    /// `machine.sysctls`, over the node's own.
    pub sysctls: BTreeMap<String, String>,
    /// `machine.install.disk`: a device path.
    pub install_disk: Option<String>,
}

/// The `cluster` section, as far as the node reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// `cluster.clusterName`.
    pub name: String,
    /// `cluster.controlPlane.endpoint`: a URL.
    pub endpoint: String,
}

/// A machine config, complete and checked. `Debug` shows no secret.
#[derive(Clone)]
pub struct Document {
    /// The `machine` section.
    pub machine: Machine,
    /// The `cluster` section.
    pub cluster: Cluster,
    source: String,
    trees: Vec<Node>,
}

impl std::fmt::Debug for Document {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Document")
            .field("machine", &self.machine)
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Document) -> bool {
        self.source == other.source
    }
}

const HOSTNAME_KIND: &[Field] = &[
    Field {
        name: "apiVersion",
        shape: Shape::Text,
        support: schema::Support::Acted,
        secret: false,
    },
    Field {
        name: "kind",
        shape: Shape::Text,
        support: schema::Support::Acted,
        secret: false,
    },
    Field {
        name: "hostname",
        shape: Shape::Text,
        support: schema::Support::Acted,
        secret: false,
    },
    Field {
        name: "auto",
        shape: Shape::Text,
        support: schema::Support::NotYet,
        secret: false,
    },
];

impl Document {
    /// Reads and checks a document, or a stream of them.
    ///
    /// # Errors
    /// Everything that is wrong with it, with line and column.
    pub fn parse(bytes: &[u8]) -> Result<Document, Problems> {
        if bytes.len() > MAX_SIZE {
            let message = format!("larger than {} MiB", MAX_SIZE / 1024 / 1024);
            return Err(Problems::one(Mark::default(), message));
        }
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Problems::one(Mark::default(), "not UTF-8 text"))?;
        let mut notes = Notes::default();
        let trees: Vec<Node> = tree::read(text, &mut notes).into_iter().flatten().collect();
        if trees.is_empty() && notes.0.is_empty() {
            notes.add(Mark::default(), "", "the config is empty");
        }
        let mut root = None;
        let mut hostname = None;
        for node in &trees {
            match node.get("kind").and_then(Node::text) {
                None if root.is_none() => {
                    check::fields(node, schema::ROOT, "", &mut notes);
                    root = Some(node);
                }
                None => notes.add(node.mark, "", "a second document without a kind"),
                Some("HostnameConfig") => {
                    check::fields(node, HOSTNAME_KIND, "", &mut notes);
                    hostname = node.get("hostname");
                }
                Some(kind) => {
                    let kind: String = kind.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
                    notes.add(
                        node.mark,
                        "kind",
                        format!("not supported yet: documents of kind {kind}"),
                    );
                }
            }
        }
        let sections = root.map(|root| extract(root, hostname, &mut notes));
        if root.is_none() && notes.0.is_empty() {
            notes.add(
                Mark::default(),
                "",
                "no v1alpha1 document (the one with version and machine)",
            );
        }
        match (Problems::from_list(notes.0), sections) {
            (None, Some((machine, cluster))) => Ok(Document {
                machine,
                cluster,
                source: text.to_owned(),
                trees,
            }),
            (Some(problems), _) => Err(problems),
            (None, None) => Err(Problems::one(Mark::default(), "the config is empty")),
        }
    }

    /// Checks what depends on where the node runs.
    ///
    /// # Errors
    /// Everything that is missing there.
    pub fn validate(&self, mode: Mode) -> Result<(), Problems> {
        let mut notes = Notes::default();
        if mode == Mode::Metal && self.machine.install_disk.is_none() {
            let path = "machine.install.disk";
            notes.add(
                Mark::default(),
                path,
                format!("{path} is required to install on metal"),
            );
        }
        Problems::from_list(notes.0).map_or(Ok(()), Err)
    }

    /// The text as it was given, secrets and all: for the STATE partition.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The document with every secret replaced, for logs and support bundles.
    /// Comments are not kept.
    #[must_use]
    pub fn redacted(&self) -> String {
        crate::redact::redacted(&self.trees)
    }
}
