//! META, as resources.

use corten_meta::Values;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use tokio::sync::watch;

use crate::meta::STATE_ENCRYPTION;
use crate::resources::runtime::MetaKey;

/// Instead of a value with passphrases.
const HIDDEN: &str = "******";

#[derive(Debug, Clone)]
pub(super) struct MetaKeys {
    pub(super) values: watch::Receiver<Values>,
}

impl Controller for MetaKeys {
    fn name(&self) -> &'static str {
        "runtime.MetaController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<MetaKey>()]
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
            if self.values.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}
