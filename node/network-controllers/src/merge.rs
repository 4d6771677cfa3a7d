//! Merges the layers.

use std::marker::PhantomData;

use corten_network::layers::{Layered, merge};
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_resources::{Draft, Query};
use corten_types::network_spec::LAYERS;

/// Merges the specs of one type.
#[derive(Debug, Clone)]
pub(crate) struct Merge<S> {
    name: &'static str,
    of: PhantomData<fn() -> S>,
}

impl<S> Merge<S> {
    pub(crate) fn named(name: &'static str) -> Merge<S> {
        Merge {
            name,
            of: PhantomData,
        }
    }
}

impl<S: Layered> Controller for Merge<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<S>(Dependency::Weak).in_namespace(LAYERS)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::shared::<S>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let layers = context.list_in::<S>(LAYERS, &Query::default())?;
            let merged = merge(layers.iter().map(|layer| (layer.id(), &**layer)));
            context.start_outputs();
            for (id, spec) in merged {
                context.put(Draft::new(&id, spec))?;
            }
            context.remove_others::<S>()?;
        }
    }
}
