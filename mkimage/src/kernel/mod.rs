//! The kernel: fragments to a resolved config, source to vmlinuz and signed modules.
