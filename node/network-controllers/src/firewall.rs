//! Builds and applies the packet filter.

use std::net::IpAddr;
use std::sync::Arc;

use corten_config::Document;
use corten_network::firewall;
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::firewall::NfTablesChain;
use corten_types::network::NodeAddress;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;

/// Shows the chains of the config.
#[derive(Debug, Clone)]
pub(crate) struct Chains {
    pub(crate) config: watch::Receiver<Option<Document>>,
}

impl Controller for Chains {
    fn name(&self) -> &'static str {
        "network.NfTablesChainConfigController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::CURRENT)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<NfTablesChain>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        loop {
            tokio::select! {
                () = context.event() => {}
                changed = self.config.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
            let own = context.get::<NodeAddress>(NodeAddress::CURRENT)?;
            let own: Vec<IpAddr> = own.iter().flat_map(|own| own.ips()).collect();
            let chains = match &*self.config.borrow_and_update() {
                Some(document) => firewall::chains(document, &own),
                None => firewall::Chains::new(),
            };
            context.start_outputs();
            for (name, chain) in chains {
                context.put(Draft::new(&name, chain))?;
            }
            context.remove_others::<NfTablesChain>()?;
        }
    }
}

/// Applies all chains in one transaction; the only controller that changes them in the kernel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filter {
    /// Chains in the kernel; shared by all runs.
    pub(crate) present: Arc<Mutex<firewall::Chains>>,
}

impl Controller for Filter {
    fn name(&self) -> &'static str {
        "network.NfTablesChainController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<NfTablesChain>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let wanted: firewall::Chains = context
                .list::<NfTablesChain>()?
                .iter()
                .map(|chain| (chain.id().to_owned(), (**chain).clone()))
                .collect();
            let mut present = self.present.lock().await;
            if *present == wanted {
                continue;
            }
            let chains = wanted.clone();
            // The kernel may first have to load modules.
            let done = spawn_blocking(move || firewall::replace(&chains)).await;
            let refused = match done {
                Ok(Ok(())) => None,
                Ok(Err(reason)) => Some(reason),
                Err(error) => Some(error.to_string()),
            };
            if let Some(reason) = refused {
                return Err(format!("the packet filter is unchanged: {reason}").into());
            }
            *present = wanted;
        }
    }
}
