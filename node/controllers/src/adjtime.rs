//! Shows the kernel's clock discipline. The kernel sends no notification of changes, so it is polled.

use std::time::Duration;

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_sys::clock;
use corten_types::clock::AdjtimeStatus;
use tokio::time::sleep;

/// Poll interval (the reference's number).
const PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(super) struct Adjtime;

impl Controller for Adjtime {
    fn name(&self) -> &'static str {
        "time.AdjtimeStatusController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<AdjtimeStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let now = AdjtimeStatus::from(clock::steering()?);
            context.put(Draft::new(AdjtimeStatus::ID, now))?;
            sleep(PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_base::sample;
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    #[tokio::test]
    async fn clock_state_of_the_test_machine_is_shown() {
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(Adjtime).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let id = AdjtimeStatus::ID;
        sample::until::<AdjtimeStatus>(&store, id, |status| status.is_some()).await;
    }
}
