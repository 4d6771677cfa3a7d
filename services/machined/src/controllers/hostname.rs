//! The node's name, from whoever named it.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Failure, Input, Output};
use tokio::sync::watch;

use crate::network::Network;
use crate::resources::network::HostnameStatus;

#[derive(Debug, Clone)]
pub(super) struct Hostname {
    pub(super) network: watch::Receiver<Option<Network>>,
}

impl Controller for Hostname {
    fn name(&self) -> &'static str {
        "network.HostnameStatusController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<HostnameStatus>()]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        context.event().await;
        let network = self.network.wait_for(Option::is_some).await;
        let Some(mut network) = network.ok().and_then(|network| network.clone()) else {
            return Ok(());
        };
        loop {
            let name = network.status().hostname;
            if !name.is_empty() {
                context.put(Draft::new(HostnameStatus::ID, split(&name)))?;
            }
            network.changed().await;
        }
    }
}

fn split(name: &str) -> HostnameStatus {
    let (hostname, domainname) = name.split_once('.').unwrap_or((name, ""));
    HostnameStatus {
        hostname: hostname.to_owned(),
        domainname: domainname.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_domain_is_what_follows_the_first_dot() {
        let name = split("node-1.a.example");
        assert_eq!(
            (&*name.hostname, &*name.domainname),
            ("node-1", "a.example")
        );
        assert_eq!(split("node-1").domainname, "");
    }
}
