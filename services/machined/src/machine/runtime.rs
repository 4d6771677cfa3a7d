//! Declares containerd. It starts last, and is declared again when the machine config changes its variables,
//! credentials, CAs or parts of its configuration.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use corten_base::trusted_roots;
use corten_config::Document;
use corten_supervisor::environment::{variables, with_variables};
use corten_supervisor::{Runner, ServiceSpec, containerd};
use corten_types::environment::Variables;

use super::{Machine, lock};

/// Variable with a hash of the input that containerd reads only at its start. A change alters the declaration, and so
/// restarts containerd.
const READ_AT_START: &str = "CORTEN_READ_AT_START";
/// Random key of the hash, new at each boot: the hash must not reveal the credentials.
static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl Machine {
    /// Starts containerd, and has later configs declare it again.
    pub(super) fn want_containerd(&self) {
        *lock(&self.wants_containerd) = true;
        self.declare_containerd();
    }

    /// Declares containerd by the current config, once it is wanted.
    pub(super) fn declare_containerd(&self) {
        // The lock comes before the read of the config: the last call then declares by the newest config.
        let is_wanted = lock(&self.wants_containerd);
        if *is_wanted {
            let config = self.node.network_configs().borrow().clone();
            let spec = with_what_it_reads(containerd(), config.as_ref());
            self.supervisor
                .declare(with_variables(spec, &self.variables()));
        }
    }

    /// Environment variables of the services, by the current config.
    pub(super) fn variables(&self) -> Variables {
        variables(self.node.network_configs().borrow().as_ref(), &self.cmdline)
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
        // Settings that containerd reads at every pull.
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
