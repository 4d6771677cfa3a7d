//! containerd in the node's life: started last, and declared again when the machine config gives it other variables,
//! credentials, authorities or parts of its configuration.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use corten_base::trusted_roots;
use corten_config::Document;
use corten_services::environment::{variables, with_variables};
use corten_services::{Runner, ServiceSpec, containerd};
use corten_types::environment::Variables;

use super::{Machine, lock};
use crate::node::Node as _;

/// Stands for what containerd reads at its start alone: with another, it is declared otherwise, and starts anew.
const READ_AT_START: &str = "CORTEN_READ_AT_START";
/// Of this boot alone: the variable tells nobody what it stands for.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Machine {
    /// Wants containerd to run, with the variables of each moment's config.
    pub(super) fn want_containerd(&self) {
        *lock(&self.wants_containerd) = true;
        self.declare_containerd();
    }

    /// Declares it by the config of now, once it is wanted.
    pub(super) fn declare_containerd(&self) {
        // Who declares last has read the config last.
        let is_wanted = lock(&self.wants_containerd);
        if *is_wanted {
            let spec = with_what_it_reads(containerd(), self.node.config().as_ref());
            self.supervisor
                .declare(with_variables(spec, &self.variables()));
        }
    }

    /// What the config of now gives to services.
    pub(super) fn variables(&self) -> Variables {
        variables(self.node.config().as_ref(), &self.cmdline)
    }
}

fn with_what_it_reads(mut spec: ServiceSpec, config: Option<&Document>) -> ServiceSpec {
    let Some(config) = config else { return spec };
    let files = corten_containerd::settings::read_at_start(config);
    let roots = trusted_roots::of(config);
    if files.is_empty() && roots.is_empty() {
        return spec;
    }
    if let Runner::Process(process) = &mut spec.runner {
        let stands_for = format!("{:016x}", KEYS.hash_one((files, roots)));
        process.env.push((READ_AT_START.to_owned(), stands_for));
    }
    spec
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;

    #[test]
    fn containerd_restarts_only_for_settings_it_reads_at_start() {
        let declared = |registries: &str, more: &str| {
            let config = sample::config(&format!("registries: {registries}"), more);
            with_what_it_reads(containerd(), Some(&config))
        };
        let plain = with_what_it_reads(containerd(), None);
        assert_eq!(plain, containerd());
        // What it reads at every pull.
        let often = "{mirrors: {docker.io: {endpoints: ['http://m']}}, \
                     config: {m: {tls: {insecureSkipVerify: true}}}}";
        assert_eq!(declared(often, ""), plain);
        let login = |password: &str| {
            let config =
                format!("{{config: {{m: {{auth: {{username: a, password: {password}}}}}}}}}");
            declared(&config, "")
        };
        assert_eq!(login("one"), login("one"));
        assert_ne!(login("one"), login("two"));
        assert_ne!(login("one"), plain);
        let pem = "-----BEGIN CERTIFICATE-----\\nAAAA\\n-----END CERTIFICATE-----";
        let roots = format!(
            "---\napiVersion: v1alpha1\nkind: TrustedRootsConfig\nname: a\ncertificates: \"{pem}\"\n"
        );
        assert_ne!(declared("{}", &roots), plain);
        assert_eq!(declared("{}", &roots), declared(often, &roots));
        let more = |kind: &str| {
            let document = format!("---\napiVersion: v1alpha1\nkind: {kind}\n");
            declared("{}", &document)
        };
        let metrics = |address: &str| {
            let content = format!("[metrics]\\naddress = '{address}'");
            more(&format!(
                "CRICustomizationConfig\nname: a\ncontent: \"{content}\""
            ))
        };
        let changed = more("CRIBaseRuntimeSpecConfig\noverrides: {process: {oomScoreAdj: 1}}");
        for spec in [metrics("x"), metrics("y"), changed] {
            assert_ne!(spec, plain);
        }
        assert_eq!(metrics("x"), metrics("x"));
        assert_ne!(metrics("x"), metrics("y"));
        assert_eq!(more("ImageCacheConfig\nlocal: {enabled: true}"), plain);
        let shown = format!("{:?}", login("one"));
        assert!(!shown.contains("username"), "{shown}");
    }
}
