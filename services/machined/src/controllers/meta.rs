//! META, as resources.

use corten_meta::Values;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use tokio::sync::watch;

use crate::meta::STATE_ENCRYPTION;
use crate::resources::meta::MetaLoaded;
use crate::resources::runtime::MetaKey;
use crate::volumes::Progress;

/// Instead of a value with passphrases.
const HIDDEN: &str = "******";

#[derive(Debug, Clone)]
pub(super) struct MetaKeys {
    pub(super) values: watch::Receiver<Values>,
    /// META is read before the volumes are settled.
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
            let values = self.values.borrow_and_update().clone();
            context.start_outputs();
            for (tag, value) in values {
                let value = if tag == STATE_ENCRYPTION {
                    HIDDEN.to_owned()
                } else {
                    String::from_utf8_lossy(&value).into_owned()
                };
                context.put(Draft::new(&format!("{tag:#04x}"), MetaKey { value }))?;
            }
            context.remove_others::<MetaKey>()?;
            if *self.volumes.borrow_and_update() != Progress::Awaited {
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
    use std::time::Duration;

    use corten_resources::controller::Runtime;
    use corten_resources::{Pointer, Start, Store};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn meta_is_loaded_once_its_values_are_shown() {
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
        let mut watcher = store
            .watch(&Pointer::of::<MetaLoaded>(MetaLoaded::ID), Start::Now)
            .unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let tag = corten_meta::Tag::new(0x0c).unwrap();
        values.send_replace(Values::from([(tag, b"value".to_vec())]));
        volumes.send_replace(Progress::Settled);
        let loaded = async {
            while store.get_as::<MetaLoaded>(MetaLoaded::ID).is_none() {
                watcher.next().await.unwrap();
            }
        };
        timeout(Duration::from_secs(20), loaded).await.unwrap();
        let key = store.get_as::<MetaKey>("0x0c").unwrap();
        assert_eq!(key.value, "value");
    }
}
