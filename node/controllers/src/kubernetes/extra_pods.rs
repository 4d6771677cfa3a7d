//! Shows the static pods of the config, on nodes of any kind.

use corten_config::Document;
use corten_kubernetes::pods::extra_pods;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};
use corten_types::kubernetes::StaticPod;
use tokio::sync::watch;

use super::next;

#[derive(Debug, Clone)]
pub(super) struct ExtraPods {
    pub(super) config: watch::Receiver<Option<Document>>,
}

impl Controller for ExtraPods {
    fn name(&self) -> &'static str {
        "k8s.ExtraStaticPodController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::shared::<StaticPod>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            let config = next(&mut self.config, context).await;
            let pods = config.as_ref().map(extra_pods).unwrap_or_default();
            context.start_outputs();
            for (id, pod) in pods {
                context.put(Draft::new(&id, StaticPod(pod)))?;
            }
            context.remove_others::<StaticPod>()?;
        }
    }
}
