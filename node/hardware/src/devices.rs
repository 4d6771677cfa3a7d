//! Shows whether the devices present at boot are enumerated.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::runtime::{DevicesStatus, Service};

/// Id of udevd's service, which is up once it has reported every device.
pub(super) const UDEVD: &str = "udevd";

#[derive(Debug, Clone)]
pub(super) struct Devices;

impl Controller for Devices {
    fn name(&self) -> &'static str {
        "runtime.DevicesStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<Service>(Dependency::Weak).with_id(UDEVD)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<DevicesStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let udevd = context.get::<Service>(UDEVD)?;
            if udevd.is_some_and(|service| service.running && service.healthy) {
                context.put(Draft::new(DevicesStatus::ID, DevicesStatus { ready: true }))?;
                // Enumeration stays complete even if udevd fails later.
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use corten_resources::Store;
    use corten_resources::controller::Runtime;

    use super::*;

    #[tokio::test]
    async fn devices_are_ready_once_udevd_is_healthy() {
        let udevd = |healthy| {
            let service = Service {
                running: true,
                healthy,
                unknown: false,
            };
            Draft::new(UDEVD, service)
        };
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        runtime.add(Devices).unwrap();
        store.put(udevd(false), "").unwrap();
        let running = tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(!running.is_finished());
        assert!(store.get_as::<DevicesStatus>(DevicesStatus::ID).is_none());
        store.put(udevd(true), "").unwrap();
        running.await.unwrap();
        let devices = store.get_as::<DevicesStatus>(DevicesStatus::ID);
        assert!(devices.is_some_and(|devices| devices.ready));
    }
}
