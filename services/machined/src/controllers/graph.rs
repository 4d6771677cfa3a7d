//! Which controller reads and writes which resource. Owns nothing: no controller runs here.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use corten_base::events::Events;
use corten_clock::floor::Floor;
use corten_meta::Values;
use corten_resources::Store;
use corten_resources::controller::{Graph, GraphError};
use corten_services::supervisor::Conditions;
use corten_volumes::user::OpenedVolumes;
use tokio::sync::watch;

use super::{Sources, runtime};
use crate::node::Stage;
use crate::uevents::Uevents;

/// Who reads and writes what: it is declared, so none of them has to run.
///
/// # Errors
/// Those of [`runtime`].
pub fn graph() -> Result<Graph, GraphError> {
    let sources = Sources {
        stage: watch::Sender::new(Stage::Booting).subscribe(),
        lock: watch::Sender::new(None).subscribe(),
        services: watch::Sender::new(Vec::new()).subscribe(),
        conditions: Conditions::unheard(),
        last_stop: watch::Sender::new(None).subscribe(),
        meta: watch::Sender::new(Values::new()).subscribe(),
        config: watch::Sender::new(None).subscribe(),
        supervisor: None,
        network: watch::Sender::new(None).subscribe(),
        seed: watch::Sender::new(None).subscribe(),
        volumes: watch::Sender::default().subscribe(),
        user_volumes: OpenedVolumes::default(),
        mounts: watch::Sender::default().subscribe(),
        uevents: Uevents::default(),
        extensions: watch::Sender::default().subscribe(),
        extension_configs: watch::Sender::default().subscribe(),
        cluster: watch::Sender::default().subscribe(),
        events: Events::default(),
        floor: Arc::new(Floor::new(UNIX_EPOCH)),
    };
    Ok(runtime(Store::new(), sources)?.graph().clone())
}
