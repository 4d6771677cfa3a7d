//! Shows the kernel parameters of the config.

use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Output};
use corten_types::kernel::KernelParamSpec;
use tokio::sync::watch;

#[derive(Debug, Clone)]
pub(crate) struct ParamConfig {
    pub(crate) config: watch::Receiver<Option<Document>>,
}

impl Controller for ParamConfig {
    fn name(&self) -> &'static str {
        "runtime.KernelParamConfigController"
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<KernelParamSpec>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        loop {
            let config = self.config.borrow_and_update().clone();
            context.start_outputs();
            for (id, value) in config.iter().flat_map(wanted) {
                let spec = KernelParamSpec {
                    value,
                    ignore_errors: false,
                };
                context.put(Draft::new(&id, spec))?;
            }
            context.remove_others::<KernelParamSpec>()?;
            if self.config.changed().await.is_err() {
                return Ok(());
            }
        }
    }
}

fn wanted(config: &Document) -> Vec<(String, String)> {
    let params = |prefix: &str, settings: std::collections::BTreeMap<&str, &str>| {
        let named = |(key, value): (&str, &str)| (format!("{prefix}.{key}"), value.to_owned());
        settings.into_iter().map(named).collect::<Vec<_>>()
    };
    let sysctls = params("proc.sys", config.sysctls());
    [sysctls, params("sys", config.sysfs())].concat()
}
