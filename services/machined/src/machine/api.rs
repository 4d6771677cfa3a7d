//! The API's side of the node: machined's socket, and what apid serves with and whom.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use corten_config::Document;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use super::{ADDRESS_PATIENCE, Fatal, Machine, describe, lock};
use crate::boot::system;
use crate::console;
use crate::identity::{Identity, IdentityError, RENEW_AFTER};
use crate::node::{Node, Stage};
use crate::server;
use crate::services::{APID_PKI, APID_UID, ApiMode, MACHINED_SOCKET, table};

impl Machine {
    /// Opens machined's socket, writes apid's certificate, starts apid.
    pub(super) async fn serve_api(&self) -> Result<(), Fatal> {
        let listener = bind(Path::new(MACHINED_SOCKET))?;
        let node: Arc<dyn Node> = self.node.clone();
        tokio::spawn(async move {
            if let Err(error) = server::serve(listener, node).await {
                crate::finish::fatal(&format!("the API server ended: {error}"));
            }
        });
        if self.node.config().is_none() {
            self.acquire_config().await?;
        }
        let mode = self.api_mode();
        if mode == ApiMode::Secure {
            // Its certificate names the addresses, so one without them would only be replaced at once.
            let _ = timeout(ADDRESS_PATIENCE, self.network.reachable()).await;
        } else {
            self.node.set_stage(Stage::Maintenance);
        }
        self.certify().map_err(|error| Fatal(describe(&error)))?;
        self.restart_apid();
        self.start("apid").await;
        Ok(())
    }

    pub(super) fn api_mode(&self) -> ApiMode {
        if self.node.config().is_some() {
            ApiMode::Secure
        } else {
            ApiMode::Maintenance
        }
    }

    /// Writes a certificate for the present config and network.
    pub(super) fn certify(&self) -> Result<(), IdentityError> {
        let mut status = self.network.status();
        let now = SystemTime::now();
        let config = self.node.config();
        if let Some(name) = config.as_ref().and_then(Document::hostname) {
            // The network takes it over in a moment; the certificate need not be made twice.
            status.hostname = name.to_owned();
        } else if status.hostname.is_empty() {
            status.hostname = system::default_hostname(&lock(&self.machine_id));
        }
        let identity = match config {
            Some(document) => Identity::from_config(&document, &status, now)?,
            None => {
                let identity = Identity::of_maintenance(&status, now)?;
                console::say(&format!(
                    "maintenance certificate fingerprint: {}",
                    identity.fingerprint()?
                ));
                identity
            }
        };
        identity.write(Path::new(APID_PKI), APID_UID)?;
        *lock(&self.certified) = status;
        Ok(())
    }

    pub(super) fn restart_apid(&self) {
        if let Some(apid) = table(self.api_mode())
            .into_iter()
            .find(|spec| spec.id == "apid")
        {
            self.supervisor.redefine(apid);
        }
    }

    /// Replaces the certificate at half of its life, and when name or addresses change. One of maintenance
    /// stays: nobody checks its names, and an operator may be comparing its fingerprint right now.
    pub(super) async fn keep_certificate(self: Arc<Machine>) {
        let mut network = self.network.clone();
        loop {
            tokio::select! {
                () = sleep(RENEW_AFTER) => {}
                () = network.changed() => {
                    if *lock(&self.certified) == network.status() {
                        continue;
                    }
                }
            }
            if self.api_mode() == ApiMode::Secure
                && let Err(error) = self.certify()
            {
                keeps_old(&error);
            }
        }
    }
}

/// The API's socket: apid's alone.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    chown(path, Some(APID_UID), Some(APID_UID))?;
    Ok(listener)
}

pub(super) fn keeps_old(error: &IdentityError) {
    console::error(&format!(
        "the API keeps its old certificate: {}",
        describe(error)
    ));
}
