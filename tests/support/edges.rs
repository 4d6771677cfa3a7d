//! The allowed dependencies between crates: the picture of docs/architecture.md as a table, which
//! tests/architecture.rs enforces.

/// The crate that only tests may use.
pub const OF_TESTS: &str = "corten-corpus";

/// Every crate of the workspace with its allowed workspace dependencies. Leaves have an empty row.
pub const EDGES: &[(&str, &[&str])] = &[
    // Leaves: independent of each other.
    ("corten-api", &[]),
    ("corten-config", &["corten-corpus"]),
    (OF_TESTS, &[]),
    ("corten-daemon", &[]),
    ("corten-dial", &[]),
    ("corten-etcd", &[]),
    ("corten-extension", &["corten-corpus"]),
    // The Kubernetes API, and the manifests that the node makes from its config.
    ("corten-cluster", &["corten-manifests"]),
    (
        "corten-kubernetes",
        &["corten-config", "corten-manifests", "corten-pki"],
    ),
    ("corten-installer", &["corten-meta"]),
    // Cloud metadata of a machine.
    ("corten-platform", &["corten-config"]),
    ("corten-luks", &[]),
    ("corten-manifests", &[]),
    ("corten-meta", &["corten-corpus"]),
    ("corten-nts", &["corten-corpus"]),
    ("corten-pki", &[]),
    ("corten-resources", &[]),
    ("corten-sys", &[]),
    // The parts of machined, from the bottom up.
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
            "corten-installer",
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
    (
        "corten-persistence",
        &[
            "corten-api",
            "corten-base",
            "corten-config",
            "corten-extension",
            "corten-meta",
            "corten-services",
            "corten-sys",
            "corten-types",
        ],
    ),
    (
        "corten-credentials",
        &[
            "corten-api",
            "corten-base",
            "corten-cluster",
            "corten-config",
            "corten-dial",
            "corten-etcd",
            "corten-kubernetes",
            "corten-pki",
            "corten-resources",
            "corten-services",
        ],
    ),
    // The API. It knows no controller: the node shows it what controllers have found.
    (
        "corten-server",
        &[
            "corten-api",
            "corten-base",
            "corten-clock",
            "corten-cluster",
            "corten-config",
            "corten-containerd",
            "corten-credentials",
            "corten-etcd",
            "corten-kubernetes",
            "corten-meta",
            "corten-persistence",
            "corten-pki",
            "corten-resources",
            "corten-services",
            "corten-sys",
            "corten-types",
            "corten-volumes",
        ],
    ),
    // The node. Daemons never link each other; only `node`, the multi-call binary, links several.
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
            "corten-credentials",
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
            "corten-persistence",
            "corten-pki",
            "corten-platform",
            "corten-resources",
            "corten-server",
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
            // Its tests run it in a sandbox.
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
            // Its tests and its benchmark run a small node.
            "corten-base",
            "corten-credentials",
            "corten-server",
            "corten-services",
            "corten-api",
            "corten-config",
            "corten-meta",
            "corten-pki",
            "corten-resources",
            "corten-sys",
        ],
    ),
    // The host. No crate here links a program of the node.
    (
        "cortenctl",
        &[
            "corten-api",
            // Client and node share the code that drains a node.
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
