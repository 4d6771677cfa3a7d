//! Shows the receivers of the kernel log from the config and the kernel command line.

use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::logging::KmsgLogConfig;
use corten_types::runtime::KernelCmdline;
use tokio::sync::watch;

use super::next_wishes;
use crate::logging;

#[derive(Debug, Clone)]
pub(super) struct KmsgLogs {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for KmsgLogs {
    fn name(&self) -> &'static str {
        "runtime.KmsgLogConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<KernelCmdline>(Dependency::Weak).with_id(KernelCmdline::ID)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<KmsgLogConfig>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let (config, line) = next_wishes(&mut self.config, context).await?;
            let destinations = logging::kernel_receivers(config.as_ref(), &line);
            context.start_outputs();
            if !destinations.is_empty() {
                context.put(Draft::new(
                    KmsgLogConfig::ID,
                    KmsgLogConfig { destinations },
                ))?;
            }
            context.remove_others::<KmsgLogConfig>()?;
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
    async fn kernel_log_destinations_of_config_and_parameters_are_shown() {
        let document = sample::kind("KmsgLogConfig\nname: a\nurl: tcp://10.0.0.9:1");
        let store = Store::new();
        let mut runtime = Runtime::new(store.clone());
        let config = watch::Sender::new(Some(document));
        let logs = KmsgLogs {
            config: config.subscribe(),
        };
        runtime.add(logs).unwrap();
        tokio::spawn(runtime.run(|notice| panic!("{notice}")));
        let shows = async |wanted: &[&str]| {
            sample::until::<KmsgLogConfig>(&store, KmsgLogConfig::ID, |shown| {
                shown.is_some_and(|shown| shown.destinations == wanted)
            })
            .await
        };
        shows(&["tcp://10.0.0.9:1"]).await;
        let cmdline = "quiet talos.logging.kernel=udp://10.0.0.8:2".to_owned();
        let line = Draft::new(KernelCmdline::ID, KernelCmdline { cmdline });
        store.put(line, "").unwrap();
        shows(&["udp://10.0.0.8:2", "tcp://10.0.0.9:1"]).await;
        config.send_replace(None);
        shows(&["udp://10.0.0.8:2"]).await;
    }
}
