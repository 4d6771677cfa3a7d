//! Adapts service declarations to a node in a container.

use corten_base::mode::{Ability, Mode};
use corten_sys::child::CapabilitySet;

use super::table::{SYSLOGD, UDEVD};
use super::{Runner, ServiceSpec};

/// Whether a node in this mode runs the service. A container has no devices to manage.
#[must_use]
pub fn runs_in(id: &str, mode: Mode) -> bool {
    id != UDEVD || mode.can(Ability::Devices)
}

/// The declaration for a node in this mode: in a container, without dependencies on resources of the host.
#[must_use]
pub(crate) fn fitted(mut spec: ServiceSpec, mode: Mode) -> ServiceSpec {
    spec.depends_on.retain(|id| runs_in(id, mode));
    if !mode.can(Ability::OomScores) {
        spec.oom_score_adj = spec.oom_score_adj.max(0);
    }
    if *spec.id == *SYSLOGD
        && !mode.can(Ability::KernelLog)
        && let Runner::Process(process) = &mut spec.runner
    {
        process.argv.extend(["--kmsg", "none"].map(str::to_owned));
        process.capabilities = CapabilitySet::empty();
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiMode, table};

    #[test]
    fn services_in_a_container_wait_for_no_devices_and_read_no_kernel_log() {
        for spec in table(ApiMode::Secure) {
            assert_eq!(fitted(spec.clone(), Mode::Machine), spec);
            assert!(runs_in(&spec.id, Mode::Machine));
            assert_eq!(runs_in(&spec.id, Mode::Container), *spec.id != *"udevd");
            let own = fitted(spec, Mode::Container);
            assert!(own.depends_on.is_empty(), "{}", own.id);
            assert_eq!(own.oom_score_adj, 0, "{}", own.id);
            if *own.id == *"syslogd" {
                let Runner::Process(syslogd) = &own.runner else {
                    panic!("{own:?}")
                };
                assert!(
                    syslogd
                        .argv
                        .ends_with(&["--kmsg", "none"].map(str::to_owned))
                );
                assert!(syslogd.capabilities.is_empty());
            }
        }
    }
}
