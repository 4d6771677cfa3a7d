//! Shows active swap. The kernel sends no notification of changes, so it is polled.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::block::SwapStatus;
use corten_types::volume::VolumeStatus;
use corten_volumes::user::areas;
use tokio::time::sleep;

use super::device::pretty_binary;

/// Poll interval (the reference's number).
const PAUSE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(crate) struct Swaps {
    /// `/proc`, except in tests.
    pub(crate) proc: PathBuf,
}

impl Controller for Swaps {
    fn name(&self) -> &'static str {
        "block.SwapStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        // The node swaps only to volumes.
        vec![Input::of::<VolumeStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<SwapStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                () = sleep(PAUSE) => {}
            }
            // A kernel without swap has no such file.
            let list = fs::read_to_string(self.proc.join("swaps")).unwrap_or_default();
            context.start_outputs();
            for area in areas(&list) {
                let status = SwapStatus {
                    device: area.device.to_owned(),
                    kind: area.kind.to_owned(),
                    size: area.size,
                    size_human: pretty_binary(area.size),
                    used: area.used,
                    used_human: pretty_binary(area.used),
                    priority: area.priority,
                };
                context.put(Draft::new(area.device, status))?;
            }
            context.remove_others::<SwapStatus>()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample::until;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    const DEVICE: &str = "/dev/dm-1";

    #[tokio::test]
    async fn swap_status_exists_while_the_swap_is_active() {
        let proc = tempfile::tempdir().unwrap();
        let list = proc.path().join("swaps");
        let line = "/dev/dm-1 partition 1023996 2048 -2\n";
        fs::write(&list, format!("Filename Type Size Used Priority\n{line}")).unwrap();
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let swaps = Swaps {
            proc: proc.path().to_owned(),
        };
        runtime.add(swaps).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let status = until::<SwapStatus>(&store, DEVICE, |status| status.is_some()).await;
        let status = status.unwrap();
        assert_eq!((status.size, status.used), (1_048_571_904, 2 << 20));
        assert_eq!(
            (&*status.size_human, &*status.used_human),
            ("1000 MiB", "2.0 MiB")
        );
        assert_eq!((&*status.kind, status.priority), ("partition", -2));
        // The entry disappears with its volume.
        fs::remove_file(&list).unwrap();
        let volume = Draft::new("s-a", VolumeStatus::default());
        store.put(volume, "").unwrap();
        until::<SwapStatus>(&store, DEVICE, |status| status.is_none()).await;
    }
}
