//! Groups of the system's pods; the pods of a group share one process of containerd's shim on a node.
//!
//! Never: gives a group to pods of users. A container that hangs in its start blocks the other containers of its shim.

use corten_config::Document;
use sha2::{Digest as _, Sha256};

/// Bytes of the digest in a group's name.
const NAME: usize = 16;

/// The groups. Their names contain a digest of the cluster's secret: a user that cannot read the pods of `kube-system`
/// cannot name a group in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShimGroups {
    /// The static pods of the control plane.
    pub control_plane: String,
    /// kube-proxy, CoreDNS and flannel.
    pub addons: String,
}

impl ShimGroups {
    /// The groups of the cluster; `None` without a secret of the cluster.
    #[must_use]
    pub fn of(document: &Document) -> Option<ShimGroups> {
        let secret = document.cluster_secret().expose();
        let group = |name: &str| {
            let digest = Sha256::new()
                .chain_update(format!("shim group {name}\n"))
                .chain_update(secret)
                .finalize();
            let digest: String = hex::encode(digest).chars().take(2 * NAME).collect();
            format!("{name}-{digest}")
        };
        (!secret.is_empty()).then(|| ShimGroups {
            control_plane: group("control-plane"),
            addons: group("addons"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::document;

    #[test]
    fn groups_differ_by_name_and_by_the_secret_of_the_cluster() {
        let own = ShimGroups::of(&document("")).unwrap();
        assert!(own.control_plane.starts_with("control-plane-"));
        assert!(own.addons.starts_with("addons-"));
        let digest = |group: &str| group.rsplit('-').next().unwrap().to_owned();
        assert_ne!(digest(&own.control_plane), digest(&own.addons));
        let mut other = document("");
        other.cluster.secret = corten_values::Secret::new("another");
        let other = ShimGroups::of(&other).unwrap();
        assert_ne!(other.control_plane, own.control_plane);
    }

    #[test]
    fn cluster_without_a_secret_has_no_groups() {
        let mut document = document("");
        document.cluster.secret = corten_values::Secret::new("");
        assert_eq!(ShimGroups::of(&document), None);
    }
}
