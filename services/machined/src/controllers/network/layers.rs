//! What the node itself, the kernel's parameters and the machine config say of the network.

use std::collections::BTreeSet;
use std::sync::Arc;

use corten_config::Document;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use tokio::sync::watch;

use super::{forget_others, layer_outputs, write};
use crate::network::cmdline_layer::{Parameters, parameters};
use crate::network::config_layer::{Present, Said, said};
use crate::network::layers::Specs;
use crate::network::{Setup, default_layer};
use crate::resources::network::LinkStatus;
use crate::resources::network_names::StaticHost;
use crate::resources::network_spec::Layer;

/// The three layers that know no server.
#[derive(Debug, Clone)]
pub(in crate::controllers) struct Layers {
    pub(in crate::controllers) setup: watch::Receiver<Option<Arc<Setup>>>,
    pub(in crate::controllers) config: watch::Receiver<Option<Document>>,
}

impl Controller for Layers {
    fn name(&self) -> &'static str {
        "network.ConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<LinkStatus>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        let mut outputs = layer_outputs();
        outputs.push(Output::exclusive::<StaticHost>());
        outputs
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let Some(setup) = Setup::wait(&mut self.setup).await else {
            return Ok(());
        };
        let parameters = parameters(&setup.cmdline);
        let mut first = None;
        loop {
            tokio::select! {
                () = context.event() => {}
                changed = self.config.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
            let links = context.list::<LinkStatus>()?;
            let present: Present = links
                .iter()
                .map(|link| (link.id().to_owned(), (**link).clone()))
                .collect();
            let said = match &*self.config.borrow_and_update() {
                Some(document) => said(document, &present),
                None => Said::default(),
            };
            let all = layers(&setup, &parameters, &said, &present, &mut first);
            context.start_outputs();
            for (layer, specs) in &all {
                write(context, layer.name(), specs)?;
            }
            forget_others(context)?;
            for (name, addresses) in said.hosts {
                context.put(Draft::new(&name, StaticHost { addresses }))?;
            }
            context.remove_others::<StaticHost>()?;
        }
    }
}

/// The layers. `first` is the link that takes an `ip=` without a device: the first there was, as long as it
/// is there.
fn layers(
    setup: &Setup,
    parameters: &Parameters,
    said: &Said,
    present: &Present,
    first: &mut Option<String>,
) -> [(Layer, Specs); 3] {
    let ignored = |name: &String| said.ignored.contains(name) || parameters.ignored.contains(name);
    let physical: Vec<String> = present
        .iter()
        .filter(|(name, link)| link.is_physical() && !ignored(name))
        .map(|(name, _)| name.clone())
        .collect();
    if !first.as_ref().is_some_and(|first| physical.contains(first)) {
        *first = physical.first().cloned();
    }
    let cmdline = parameters.specs(&physical, first.as_deref());
    let config = said.specs.clone();
    let spoken_for: BTreeSet<String> = [&cmdline, &config]
        .iter()
        .flat_map(|specs| &specs.links)
        .map(|link| link.name.clone())
        .collect();
    let name = &setup.default_hostname;
    let default = default_layer::specs(name, &physical, &spoken_for);
    [
        (Layer::Default, default),
        (Layer::Cmdline, cmdline),
        (Layer::Configuration, config),
    ]
}
