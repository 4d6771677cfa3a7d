//! System calls no container of the node's own has, whatever it is allowed else (OCI runtime spec,
//! config-linux.md, "Seccomp").

use serde_json::{Value, json};

/// They work on the machine as a whole, go around limits and namespaces, or are ones only old programs know.
const REFUSED: [&str; 28] = [
    // What runs as the kernel, and when it ends.
    "create_module",
    "delete_module",
    "finit_module",
    "init_module",
    "kexec_file_load",
    "kexec_load",
    "reboot",
    // Memory of the machine.
    "swapoff",
    "swapon",
    "userfaultfd",
    // Keys know of no namespaces.
    "add_key",
    "keyctl",
    "request_key",
    // Work that no filter sees.
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    // Written by the kernel into a file of the caller's choice.
    "acct",
    // Nobody needs them any more.
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

/// The filter. Calls of another architecture than the node's end their caller, as it names none.
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
