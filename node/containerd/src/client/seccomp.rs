//! Seccomp filter for the node's own containers: system calls that no container has (OCI runtime spec, config-linux.md,
//! "Seccomp").

use serde_json::{Value, json};

/// Refused calls: they affect the whole machine, bypass limits and namespaces, or are obsolete.
const REFUSED: [&str; 28] = [
    // Kernel code and reboot.
    "create_module",
    "delete_module",
    "finit_module",
    "init_module",
    "kexec_file_load",
    "kexec_load",
    "reboot",
    // Memory of the whole machine.
    "swapoff",
    "swapon",
    "userfaultfd",
    // Keyrings have no namespaces.
    "add_key",
    "keyctl",
    "request_key",
    // Operations that bypass seccomp.
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    // The kernel writes accounting records to a file of the caller's choice.
    "acct",
    // Obsolete.
    "_sysctl",
    "get_kernel_syms",
    "lookup_dcookie",
    "nfsservctl",
    "query_module",
    "sysfs",
    "uselib",
    "ustat",
    "vm86",
    "vm86old",
    "vserver",
];

/// The filter. A call of another architecture than the node's kills its caller, because the filter lists only one.
pub(super) fn filter() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [architecture()],
        "syscalls": [{ "names": REFUSED, "action": "SCMP_ACT_ERRNO", "errnoRet": 1 }],
    })
}

const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") {
        "SCMP_ARCH_AARCH64"
    } else {
        "SCMP_ARCH_X86_64"
    }
}
