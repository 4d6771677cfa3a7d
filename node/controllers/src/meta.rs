//! Shows the values of META.

use corten_api::parameters::HIDDEN;
use corten_meta::Values;
use corten_meta::tags::STATE_ENCRYPTION;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::meta::MetaLoaded;
use corten_types::runtime::MetaKey;
use corten_volumes::Progress;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(super) struct MetaKeys {
    pub(super) values: watch::Receiver<Values>,
    /// META is read before the volumes settle.
    pub(super) volumes: watch::Receiver<Progress>,
}

impl Controller for MetaKeys {
    fn name(&self) -> &'static str {
        "runtime.MetaController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<MetaKey>(),
            Output::exclusive::<MetaLoaded>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            // Read before the values: once the volumes have settled, the values read next are META's.
            let is_loaded = *self.volumes.borrow_and_update() != Progress::Awaited;
            let values = self.values.borrow_and_update().clone();
            context.start_outputs();
            for (tag, value) in values {
                let value = if tag == STATE_ENCRYPTION {
                    // It may contain passphrases.
                    HIDDEN.to_owned()
                } else {
                    String::from_utf8_lossy(&value).into_owned()
                };
                context.put(Draft::new(&format!("{tag:#04x}"), MetaKey { value }))?;
            }
            context.remove_others::<MetaKey>()?;
            if is_loaded {
                context.put(Draft::new(MetaLoaded::ID, MetaLoaded { done: true }))?;
            }
            let ended = tokio::select! {
                changed = self.values.changed() => changed.is_err(),
                changed = self.volumes.changed() => changed.is_err(),
            };
            if ended {
                return Ok(());
            }
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
    async fn meta_values_are_shown_and_meta_is_loaded_once_volumes_settle() {
        let (values, volumes) = (
            watch::Sender::new(Values::new()),
            watch::Sender::new(Progress::Awaited),
        );
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let keys = MetaKeys {
            values: values.subscribe(),
            volumes: volumes.subscribe(),
        };
        runtime.add(keys).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let tag = corten_meta::Tag::new(0x0c).unwrap();
        values.send_replace(Values::from([
            (tag, b"value".to_vec()),
            (STATE_ENCRYPTION, b"passphrase".to_vec()),
        ]));
        sample::until::<MetaKey>(&store, "0x0c", |key| {
            key.is_some_and(|key| key.value == "value")
        })
        .await;
        // The controller has finished its turn, because this test has only one thread.
        assert!(store.get_as::<MetaLoaded>(MetaLoaded::ID).is_none());
        let id = format!("{STATE_ENCRYPTION:#04x}");
        assert_eq!(store.get_as::<MetaKey>(&id).unwrap().value, HIDDEN);
        volumes.send_replace(Progress::Settled);
        sample::until::<MetaLoaded>(&store, MetaLoaded::ID, |loaded| {
            loaded.is_some_and(|loaded| loaded.done)
        })
        .await;
    }
}
