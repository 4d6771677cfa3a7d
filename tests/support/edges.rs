//! Which crate may use which: the picture of docs/architecture.md as a table, which tests/architecture.rs holds.

/// What only tests may use.
pub const OF_TESTS: &str = "corten-corpus";

/// Every crate of the workspace and what it may use of the workspace: the
/// picture of docs/architecture.md as a table. Leaves have an empty row.
pub const EDGES: &[(&str, &[&str])] = &[
    // Leaves: do not know each other.
    ("corten-api", &[]),
    ("corten-config", &["corten-corpus"]),
    (OF_TESTS, &[]),
    ("corten-daemon", &[]),
    ("corten-dial", &[]),
    ("corten-etcd", &[]),
    ("corten-extension", &["corten-corpus"]),
    // The Kubernetes API, and what the node gives to Kubernetes out of its config.
    ("corten-cluster", &["corten-manifests"]),
    (
        "corten-kubernetes",
        &["corten-config", "corten-manifests", "corten-pki"],
    ),
    ("corten-installer", &[]),
    // What a cloud says of a machine.
    ("corten-platform", &["corten-config"]),
    ("corten-luks", &[]),
    ("corten-manifests", &[]),
    ("corten-meta", &["corten-corpus"]),
    ("corten-nts", &["corten-corpus"]),
    ("corten-pki", &[]),
    ("corten-resources", &[]),
    ("corten-sys", &[]),
    // The parts of machined, from the ground up.
    (
        "corten-base",
        &[
            "corten-api",
            "corten-config",
            "corten-resources",
            "corten-sys",
        ],
    ),
    (
        "corten-types",
        &[
            "corten-api",
            "corten-base",
            "corten-config",
            "corten-extension",
            "corten-pki",
            "corten-resources",
            "corten-sys",
        ],
    ),
    (
        "corten-network",
        &[
            "corten-base",
            "corten-config",
            "corten-corpus",
            "corten-resources",
            "corten-sys",
            "corten-types",
        ],
    ),
    (
        "corten-services",
        &[
            "corten-api",
            "corten-base",
            "corten-config",
            "corten-extension",
            "corten-kubernetes",
            "corten-resources",
            "corten-sys",
            "corten-types",
        ],
    ),
    (
        "corten-containerd",
        &[
            "corten-api",
            "corten-base",
            "corten-config",
            "corten-extension",
            "corten-services",
            "corten-sys",
        ],
    ),
    (
        "corten-volumes",
        &[
            "corten-base",
            "corten-config",
            "corten-corpus",
            "corten-luks",
            "corten-meta",
            "corten-services",
            "corten-sys",
            "corten-types",
        ],
    ),
    (
        "corten-clock",
        &[
            "corten-base",
            "corten-config",
            "corten-corpus",
            "corten-dial",
            "corten-nts",
            "corten-pki",
            "corten-sys",
        ],
    ),
    // The node. Daemons never link each other; `node`, the multi-call binary,
    // is the one place that links several.
    ("init", &["corten-sys"]),
    (
        "machined",
        &[
            "corten-api",
            "corten-base",
            "corten-clock",
            "corten-cluster",
            "corten-config",
            "corten-containerd",
            "corten-corpus",
            "corten-dial",
            "corten-etcd",
            "corten-extension",
            "corten-installer",
            "corten-kubernetes",
            "corten-luks",
            "corten-manifests",
            "corten-meta",
            "corten-network",
            "corten-nts",
            "corten-pki",
            "corten-platform",
            "corten-resources",
            "corten-services",
            "corten-sys",
            "corten-types",
            "corten-volumes",
        ],
    ),
    (
        "apid",
        &[
            "corten-api",
            "corten-daemon",
            "corten-dial",
            "corten-pki",
            "corten-sys",
        ],
    ),
    (
        "registryd",
        &[
            "corten-api",
            "corten-daemon",
            "corten-extension",
            "corten-installer",
            // Its tests confine it.
            "corten-sys",
        ],
    ),
    (
        "syslogd",
        &["corten-api", "corten-corpus", "corten-daemon", "corten-sys"],
    ),
    ("trustd", &["corten-api", "corten-daemon", "corten-pki"]),
    ("udevd", &["corten-corpus", "corten-daemon"]),
    (
        "node",
        &[
            "machined",
            "apid",
            "registryd",
            "syslogd",
            "trustd",
            // Its tests and its benchmark, which is a small node.
            "corten-base",
            "corten-services",
            "corten-api",
            "corten-config",
            "corten-meta",
            "corten-pki",
            "corten-resources",
            "corten-sys",
        ],
    ),
    // The host. Nothing here links a program of the node.
    (
        "cortenctl",
        &[
            "corten-api",
            // Draining a node is the same work on both sides.
            "corten-cluster",
            "corten-config",
            "corten-dial",
            "corten-pki",
            // Containers of this machine: namespaces, cgroups, mounts.
            "corten-sys",
        ],
    ),
    (
        "mkimage",
        &[
            "corten-config",
            "corten-extension",
            "corten-installer",
            "corten-meta",
            // Its tests compare the platforms.
            "corten-platform",
        ],
    ),
    ("qemu", &[]),
    ("chaos", &[]),
    (
        "tests",
        &["qemu", "mkimage", "corten-api", "corten-extension"],
    ),
];
