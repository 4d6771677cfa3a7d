//! The allowed dependencies between crates: the picture of docs/architecture.md as a table, which
//! tests/architecture.rs enforces.

use crate::node_edges::{PARTS_OF_THE_NODE, Row};

/// The crate that only tests may use.
pub const OF_TESTS: &str = "corten-corpus";

/// Every crate of the workspace with its allowed workspace dependencies.
#[must_use]
pub fn allowed() -> Vec<Row> {
    [EDGES, PARTS_OF_THE_NODE].concat()
}

/// The leaves, which have an empty row; the parts of the machine config; the host.
const EDGES: &[Row] = &[
    // Leaves: independent of each other.
    ("corten-api", &[]),
    (OF_TESTS, &[]),
    ("corten-daemon", &[]),
    ("corten-dial", &[]),
    ("corten-etcd", &["corten-corpus"]),
    ("corten-extension", &["corten-corpus"]),
    // The Kubernetes API, and the manifests that the node makes from its config.
    ("corten-cluster", &["corten-corpus", "corten-manifests"]),
    (
        "corten-kubernetes",
        &[
            "corten-changes",
            "corten-config",
            "corten-corpus",
            "corten-manifests",
            "corten-pki",
            "corten-values",
            "corten-yaml",
        ],
    ),
    ("corten-installer", &["corten-meta"]),
    // Cloud metadata of a machine.
    (
        "corten-platform",
        &[
            "corten-config",
            "corten-seed",
            "corten-values",
            "corten-yaml",
        ],
    ),
    ("corten-luks", &[]),
    ("corten-manifests", &[]),
    ("corten-meta", &["corten-corpus"]),
    ("corten-nts", &["corten-corpus"]),
    ("corten-pki", &["corten-corpus"]),
    ("corten-resources", &[]),
    ("corten-sys", &[]),
    // The parts of the machine config, from the bottom up.
    ("corten-yaml", &[]),
    ("corten-values", &["corten-yaml"]),
    (
        "corten-config",
        &["corten-corpus", "corten-values", "corten-yaml"],
    ),
    (
        "corten-changes",
        &[
            "corten-config",
            "corten-corpus",
            "corten-values",
            "corten-yaml",
        ],
    ),
    (
        "corten-seed",
        &[
            "corten-config",
            "corten-corpus",
            "corten-values",
            "corten-yaml",
        ],
    ),
    // The host. No crate here links a program of the node.
    // The parts of cortenctl, from the bottom up.
    (
        "corten-client",
        &[
            "corten-api",
            "corten-changes",
            "corten-config",
            "corten-dial",
            "corten-pki",
            "corten-yaml",
        ],
    ),
    (
        "corten-generate",
        &[
            "corten-api",
            "corten-client",
            "corten-config",
            "corten-corpus",
            "corten-pki",
            "corten-values",
        ],
    ),
    (
        "corten-operate",
        &[
            "corten-api",
            "corten-client",
            // Client and node share the code that drains a node.
            "corten-cluster",
            "corten-config",
            "corten-corpus",
            "corten-pki",
            "corten-yaml",
        ],
    ),
    (
        "corten-provision",
        &[
            "corten-api",
            "corten-client",
            "corten-cluster",
            "corten-generate",
            // Containers of this machine: namespaces, cgroups, mounts.
            "corten-sys",
            // Virtual machines of this machine.
            "qemu",
        ],
    ),
    (
        "cortenctl",
        &[
            "corten-api",
            "corten-client",
            "corten-config",
            "corten-generate",
            // The kind of pods' accounts, and the reader of manifests.
            "corten-manifests",
            "corten-operate",
            "corten-pki",
            "corten-provision",
        ],
    ),
    // The parts of mkimage, from the bottom up.
    ("corten-steps", &[]),
    ("corten-kernel", &["corten-steps"]),
    // Its tests compare the container images with those that configs name.
    ("corten-rootfs", &["corten-config", "corten-steps"]),
    (
        "corten-image",
        &[
            // Its tests read the files of an installer as a node does.
            "corten-extension",
            "corten-installer",
            "corten-meta",
            "corten-rootfs",
            "corten-steps",
        ],
    ),
    (
        "mkimage",
        &[
            "corten-config",
            "corten-extension",
            "corten-image",
            "corten-kernel",
            "corten-meta",
            // Its tests compare the platforms.
            "corten-platform",
            "corten-rootfs",
            "corten-steps",
        ],
    ),
    ("qemu", &[]),
    ("chaos", &[]),
    (
        "tests",
        &[
            "qemu",
            "mkimage",
            "corten-base",
            "corten-config",
            "corten-extension",
            "corten-image",
            "corten-installer",
            "corten-kernel",
            "corten-rootfs",
            "corten-steps",
        ],
    ),
];
