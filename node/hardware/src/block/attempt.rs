//! An attempt to attach a user volume, in a task of its own. An attempt whose disk hangs may never end; the other volumes
//! wait for it for a limited time only.

use std::time::Duration;

use corten_volumes::user::{Facts, Place, Trouble, UserVolume};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::outside::Outside;

/// Time for which other volumes wait. Reading the disks takes 20 s at most; a mount that replays its log, or the file
/// system of a large disk, may take minutes.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) volume: UserVolume,
    pub(super) facts: Facts,
    task: JoinHandle<Result<Place, Trouble>>,
}

impl Attempt {
    pub(super) fn start(outside: &impl Outside, volume: &UserVolume, facts: &Facts) -> Attempt {
        let outside = outside.clone();
        let (wanted, known) = (volume.clone(), facts.clone());
        Attempt {
            volume: volume.clone(),
            facts: facts.clone(),
            task: tokio::spawn(async move { outside.attach(&wanted, &known).await }),
        }
    }

    /// Waits for the result; `None` if it takes too long.
    pub(super) async fn result(&mut self) -> Option<Result<Place, Trouble>> {
        let ended = timeout(PATIENCE, &mut self.task).await.ok()?;
        let bug = "machined has a bug; its log has the panic message";
        Some(ended.unwrap_or_else(|_| Err(Trouble::Failed(bug.to_owned()))))
    }

    /// Whether the result is there.
    pub(super) fn is_over(&self) -> bool {
        self.task.is_finished()
    }
}

/// Why a volume is not attached while its attempt takes too long.
pub(super) fn overdue() -> String {
    let seconds = PATIENCE.as_secs();
    format!("attaching it takes more than {seconds} s; its disk may not answer")
}
