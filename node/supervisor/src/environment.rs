//! Environment variables for services from the config and the kernel command line, such as those of a proxy.

use corten_base::cmdline::Cmdline;
use corten_config::Document;
use corten_types::environment::{ENVIRONMENT, Variables};

use super::{NOTIFY_SOCKET, Runner, ServiceSpec};

/// Variables from the kernel command line (`corten.environment=NAME=value`), overridden by those of the config.
/// Variables that machined itself sets cannot be overridden.
#[must_use]
pub fn variables(document: Option<&Document>, cmdline: &Cmdline) -> Variables {
    let given = cmdline.all_ours("environment");
    let given = given.filter_map(|given| given.split_once('='));
    let configured = document.map(Document::variables).unwrap_or_default();
    let is_own = |name: &str| name == NOTIFY_SOCKET || ENVIRONMENT.iter().any(|own| own.0 == name);
    given
        .chain(configured)
        .filter(|(name, _)| !name.is_empty() && !is_own(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Adds these variables to the service's environment; its own variables take precedence.
#[must_use]
pub fn with_variables(mut spec: ServiceSpec, variables: &Variables) -> ServiceSpec {
    match &mut spec.runner {
        Runner::Process(process) => {
            let has = |name: &String| process.env.iter().any(|(own, _)| own == name);
            let more = variables.iter().filter(|(name, _)| !has(name));
            let more: Vec<_> = more
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect();
            process.env.extend(more);
        }
        Runner::Container(container) => {
            let has = |name: &str| {
                let mut own = container.environment.iter();
                own.any(|own| own.split('=').next() == Some(name))
            };
            let more = variables.iter().filter(|(name, _)| !has(name));
            let more: Vec<_> = more
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            container.environment.extend(more);
        }
        Runner::Task(_) | Runner::Unusable(_) => {}
    }
    spec
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;
    use crate::containerd;

    fn document(env: &str, more: &str) -> Document {
        sample::config(&format!("env: {env}"), more)
    }

    fn listed(variables: &Variables) -> Vec<String> {
        let all = variables.iter();
        all.map(|(name, value)| format!("{name}={value}")).collect()
    }

    #[test]
    fn config_overrides_kernel_parameters_and_machined_overrides_both() {
        let cmdline = "talos.environment=A=1 corten.environment=B=x=y corten.environment=PATH=/x \
                       corten.environment=odd corten.environment==z";
        let cmdline = Cmdline::parse(cmdline);
        assert_eq!(listed(&variables(None, &cmdline)), ["A=1", "B=x=y"]);
        let old = document("{A: '2', NOTIFY_SOCKET: /x}", "");
        assert_eq!(listed(&variables(Some(&old), &cmdline)), ["A=2", "B=x=y"]);
        let new = "---\napiVersion: v1alpha1\nkind: EnvironmentConfig\nvariables: {https_proxy: 'http://p:1', PATH: /x}\n";
        let new = document("{}", new);
        let found = variables(Some(&new), &Cmdline::default());
        assert_eq!(listed(&found), ["https_proxy=http://p:1"]);
    }

    #[test]
    fn variables_of_a_service_take_precedence() {
        let given: Variables = [("A", "given"), ("B", "given")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let mut spec = containerd();
        if let Runner::Process(process) = &mut spec.runner {
            process.env = vec![("A".to_owned(), "own".to_owned())];
        }
        let Runner::Process(process) = with_variables(spec, &given).runner else {
            panic!("containerd is a process");
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(process.env, [pair("A", "own"), pair("B", "given")]);
        // A new declaration without changes must not restart the service.
        assert_eq!(
            with_variables(containerd(), &Variables::new()),
            containerd()
        );
    }
}
