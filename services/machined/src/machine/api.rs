//! The API's side of the node: machined's socket, and what apid serves with and whom.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;

use tokio::net::UnixListener;

use super::{Fatal, Machine};
use crate::node::{Node, Stage};
use crate::server;
use crate::services::{APID_UID, ApiMode, MACHINED_SOCKET, table};

impl Machine {
    /// Opens machined's socket and starts apid, which waits for its certificate (`controllers/secrets`).
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
        if self.api_mode() == ApiMode::Maintenance {
            self.node.set_stage(Stage::Maintenance);
        }
        self.restart_apid();
        // Without the authority's key its certificate comes from another node, which may be away for long.
        let config = self.node.config();
        if config.is_none_or(|config| config.machine.kind.is_control_plane()) {
            self.start("apid").await;
        }
        Ok(())
    }

    pub(super) fn api_mode(&self) -> ApiMode {
        if self.node.config().is_some() {
            ApiMode::Secure
        } else {
            ApiMode::Maintenance
        }
    }

    pub(super) fn restart_apid(&self) {
        if let Some(apid) = table(self.api_mode())
            .into_iter()
            .find(|spec| *spec.id == *"apid")
        {
            self.supervisor.declare(apid);
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
