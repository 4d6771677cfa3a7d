//! Applies the host name; shows the name servers and time servers in use.

use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_types::network::HostnameStatus;
use corten_types::network_names::{
    HostnameSpec, ResolverSpec, ResolverStatus, TimeServerSpec, TimeServerStatus,
};

/// Sets the kernel's host name.
#[derive(Debug, Clone)]
pub(crate) struct Hostname;

impl Controller for Hostname {
    fn name(&self) -> &'static str {
        "network.HostnameSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<HostnameSpec>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<HostnameStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let Some(spec) = context.get::<HostnameSpec>(HostnameSpec::ID)? else {
                continue;
            };
            let status = HostnameStatus {
                hostname: spec.hostname.clone(),
                domainname: spec.domainname.clone(),
            };
            // The kernel limits the name to 64 bytes; a longer one falls back to the name without its domain.
            corten_sys::host::set_hostname(&status.full())
                .or_else(|_| corten_sys::host::set_hostname(&status.hostname))
                .map_err(|error| format!("cannot set the host name {}: {error}", status.full()))?;
            context.put(Draft::new(HostnameStatus::ID, status))?;
        }
    }
}

/// Shows the name servers in use.
#[derive(Debug, Clone)]
pub(crate) struct Resolvers;

impl Controller for Resolvers {
    fn name(&self) -> &'static str {
        "network.ResolverSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<ResolverSpec>(Dependency::Weak),
            Input::of::<HostnameStatus>(Dependency::Weak),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<ResolverStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            let Some(spec) = context.get::<ResolverSpec>("resolvers")? else {
                continue;
            };
            let mut search_domains = spec.search_domains.clone();
            if let Some(name) = context.get::<HostnameStatus>(HostnameStatus::ID)?
                && !name.domainname.is_empty()
                && !spec.no_own_domain
                && !search_domains.contains(&name.domainname)
            {
                search_domains.push(name.domainname.clone());
            }
            let status = ResolverStatus {
                dns_servers: spec.dns_servers.clone(),
                search_domains,
            };
            context.put(Draft::new(ResolverStatus::ID, status))?;
        }
    }
}

/// Shows the time servers in use.
#[derive(Debug, Clone)]
pub(crate) struct TimeServers;

impl Controller for TimeServers {
    fn name(&self) -> &'static str {
        "network.TimeServerSpecController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![Input::of::<TimeServerSpec>(Dependency::Weak)]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![Output::exclusive::<TimeServerStatus>()]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        loop {
            context.event().await;
            if let Some(spec) = context.get::<TimeServerSpec>("timeservers")? {
                let time_servers = spec.time_servers.clone();
                let status = TimeServerStatus { time_servers };
                context.put(Draft::new(TimeServerStatus::ID, status))?;
            }
        }
    }
}
