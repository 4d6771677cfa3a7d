//! Writes certificates to the files that daemons read. Each daemon sees only its own directory.

use std::fmt::Write as _;
use std::path::PathBuf;

use corten_credentials::certificates::write_files;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::supervisor::Conditions;
use corten_supervisor::{ApiMode, Condition};
use corten_types::network::NodeAddress;
use corten_types::secrets::{
    ApiCertificates, CertSans, Endpoint, OsRoot, TrustdCertificates, joined,
};

/// Writes apid's files.
#[derive(Debug, Clone)]
pub(crate) struct ApiFiles {
    pub(crate) directory: PathBuf,
    pub(crate) uid: u32,
    pub(crate) conditions: Conditions,
}

impl Controller for ApiFiles {
    fn name(&self) -> &'static str {
        "secrets.APIFilesController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<ApiCertificates>(Dependency::Weak).with_id(ApiCertificates::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let Some(certificates) = context.get::<ApiCertificates>(ApiCertificates::ID)? else {
                continue;
            };
            let client = certificates.client.as_ref();
            let ca = joined(&certificates.accepted_cas);
            // Certificates last: a reader that sees a new one then also finds its key.
            let files = [
                ("ca.crt", Some(ca.as_str())),
                ("client.key", client.map(|client| client.key.expose())),
                ("client.crt", client.map(|client| client.crt.as_str())),
                ("server.key", Some(certificates.server.key.expose())),
                ("server.crt", Some(certificates.server.crt.as_str())),
            ];
            write_files(&self.directory, self.uid, &files)?;
            let mode = if certificates.skip_verifying_client_cert {
                ApiMode::Maintenance
            } else {
                ApiMode::Secure
            };
            self.conditions.set(Condition::ApiFiles(mode), Ok(()));
        }
    }
}

/// Writes trustd's files.
#[derive(Debug, Clone)]
pub(crate) struct TrustdFiles {
    pub(crate) directory: PathBuf,
    pub(crate) uid: u32,
    pub(crate) conditions: Conditions,
}

impl Controller for TrustdFiles {
    fn name(&self) -> &'static str {
        "secrets.TrustdFilesController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<TrustdCertificates>(Dependency::Weak).with_id(TrustdCertificates::ID),
            Input::of::<OsRoot>(Dependency::Weak).with_id(OsRoot::ID),
            Input::of::<Endpoint>(Dependency::Weak),
            Input::of::<CertSans>(Dependency::Weak).with_id(CertSans::ID),
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::ROUTED),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut written = None;
        loop {
            context.event().await;
            let root = context
                .get::<OsRoot>(OsRoot::ID)?
                .filter(|root| root.signs());
            let certificates = context.get::<TrustdCertificates>(TrustdCertificates::ID)?;
            let (Some(root), Some(certificates)) = (root, certificates) else {
                continue;
            };
            let names = trustd_names(context)?;
            let current = ((*root).clone(), (*certificates).clone(), names);
            // trustd re-reads them when one of them is replaced.
            if written.as_ref() == Some(&current) {
                continue;
            }
            let (root, certificates, names) = &current;
            let ca = root.trusted_cas();
            let files = [
                ("names", Some(names.as_str())),
                ("token", Some(root.token.expose())),
                ("ca.key", Some(root.issuing_ca.key.expose())),
                ("ca.crt", Some(ca.as_str())),
                ("server.key", Some(certificates.server.key.expose())),
                ("server.crt", Some(certificates.server.crt.as_str())),
            ];
            write_files(&self.directory, self.uid, &files)?;
            self.conditions.set(Condition::TrustdFiles, Ok(()));
            written = Some(current);
        }
    }
}

/// Names for which trustd signs no certificate, and networks whose addresses it signs; one per line
/// (`services/trustd/src/names.rs`).
fn trustd_names(context: &Context) -> Result<String, Failure> {
    let mut names = Vec::new();
    for endpoint in context.list::<Endpoint>()? {
        names.extend(endpoint.addresses.iter().chain(&endpoint.hosts).cloned());
    }
    if let Some(sans) = context.get::<CertSans>(CertSans::ID)? {
        names.extend(sans.names());
    }
    names.sort();
    names.dedup();
    let networks = context.get::<NodeAddress>(NodeAddress::ROUTED)?;
    let mut text = String::new();
    for name in &names {
        let _ = writeln!(text, "control-plane {name}");
    }
    for network in networks.iter().flat_map(|found| &found.addresses) {
        let _ = writeln!(text, "network {network}");
    }
    Ok(text)
}
