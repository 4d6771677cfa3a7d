//! Access to the node's API from pods, in either form of the config.

pub(crate) mod rules;

use crate::document::Document;
use crate::kinds::KubeTalosAPIAccessConfig;

pub use rules::POD_ROLES;

/// The pods that get access, and their roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodAccess<'a> {
    /// Roles that pods may have at most.
    pub roles: &'a [String],
    /// Namespaces of the allowed pods.
    pub namespaces: &'a [String],
}

impl Document {
    /// The access of pods to the node's API; `None` if it is off, and on a worker.
    #[must_use]
    pub fn pod_access(&self) -> Option<PodAccess<'_>> {
        if !self.machine.kind.is_control_plane() {
            return None;
        }
        let by_kind = self.all::<KubeTalosAPIAccessConfig>().next();
        let by_kind = by_kind.map(|config| PodAccess {
            roles: &config.allowed_roles,
            namespaces: &config.allowed_kubernetes_namespaces,
        });
        by_kind.or_else(|| {
            let old = self.machine.features.kubernetes_talos_api_access.as_ref();
            let old = old.filter(|access| access.enabled)?;
            Some(PodAccess {
                roles: &old.allowed_roles,
                namespaces: &old.allowed_kubernetes_namespaces,
            })
        })
    }
}
