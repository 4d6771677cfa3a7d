//! The node's side of the API: machined's socket, and the certificates and mode of apid.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::sync::Arc;

use corten_base::durable;
use corten_config::Document;
use corten_resources::controller::with_causes as describe;
use corten_server::node::{Node, Stage};
use corten_supervisor::supervisor::task::Ready;
use corten_supervisor::{APID_UID, ApiMode, MACHINED, MACHINED_SOCKET, Task, machined, table};
use tokio::net::UnixListener;

use super::{Fatal, Machine};

impl Machine {
    /// Opens machined's socket and starts apid, which waits for its certificate (`node/controllers/src/secrets`).
    pub(super) async fn serve_api(self: &Arc<Machine>) -> Result<(), Fatal> {
        let node: Arc<dyn Node> = self.node.clone();
        let serves = Task::new(move |ready| serve(node.clone(), ready));
        self.supervisor.declare(machined(serves));
        self.start(MACHINED).await;
        if self.node.config().is_none() {
            self.find_owner().await?;
        }
        self.restart_apid();
        // Without the CA's key, the certificate comes from another node, which may be unreachable for long. A locked
        // node may have no caller to serve.
        let signs = |config: Document| config.machine.kind.is_control_plane();
        if self.node.stage() == Stage::Maintenance || self.node.config().is_some_and(signs) {
            self.start("apid").await;
        }
        Ok(())
    }

    /// Only in maintenance mode does the API answer anonymous callers.
    pub(super) fn api_mode(&self) -> ApiMode {
        if self.node.stage() == Stage::Maintenance {
            ApiMode::Maintenance
        } else {
            ApiMode::Secure
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

async fn serve(node: Arc<dyn Node>, ready: Ready) -> Result<(), String> {
    let path = Path::new(MACHINED_SOCKET);
    let listener = bind(path).map_err(|error| format!("{}: {error}", path.display()))?;
    ready.tell();
    let served = corten_server::serve(listener, node).await;
    served.map_err(|error| describe(&error))
}

/// Binds the API's socket, which only apid may reach.
fn bind(path: &Path) -> io::Result<UnixListener> {
    durable::remove_if_there(path)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    chown(path, Some(APID_UID), Some(APID_UID))?;
    Ok(listener)
}
