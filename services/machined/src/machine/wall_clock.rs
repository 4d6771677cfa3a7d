//! Keeps the time across boots: raises the clock when STATE is mounted, and writes the time down when the boot ends.

use std::path::Path;
use std::time::Duration;

use corten_base::calendar::rfc3339;
use corten_base::console;
use corten_base::durable;
use corten_sys::clock;
use corten_volumes::STATE;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Machine;

/// Timeout of the write: a disk that does not answer must not delay the end of the boot.
const PATIENCE: Duration = Duration::from_secs(5);

impl Machine {
    /// Raises the clock to the last time that an earlier boot knew, if STATE is mounted.
    pub(super) fn raise_clock(&self) {
        let state = Path::new(STATE.target);
        if !durable::is_volume(state) {
            return;
        }
        let known = match self.floor.load(state) {
            Ok(Some(known)) => known,
            Ok(None) => return,
            Err(error) => {
                return console::warn(&format!(
                    "time: the time stored on STATE is not used: {error}"
                ));
            }
        };
        match clock::raise(known) {
            Ok(true) => console::say(&format!(
                "time: the clock was behind the last time this node knew, and is set to it: {}",
                rfc3339(known)
            )),
            Ok(false) => {}
            Err(error) => console::warn(&format!("time: cannot set the clock: {error}")),
        }
    }

    /// Writes the last known time to STATE as the boot ends.
    pub(super) async fn keep_clock(&self) {
        let floor = self.floor.clone();
        let keep = spawn_blocking(move || floor.keep(Path::new(STATE.target), true));
        let why = match timeout(PATIENCE, keep).await {
            Ok(Ok(Ok(()))) => return,
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the disk does not answer".to_owned(),
        };
        console::warn(&format!("time: cannot store the time on STATE: {why}"));
    }
}
