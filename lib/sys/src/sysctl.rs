//! Kernel parameters at run time (`/proc/sys`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Sets `key` ("net.ipv4.ip_forward", or with slashes where a name holds a dot) to `value`.
///
/// # Errors
/// `NotFound` when this kernel has no such parameter; anything else the kernel answers.
pub fn write(proc_sys: &Path, key: &str, value: &str) -> io::Result<()> {
    // Some parameters (kernel.printk_devkmsg) refuse a value without the line feed.
    fs::write(file_of(proc_sys, key), format!("{value}\n"))
}

/// Reads `key`, without the final line feed.
///
/// # Errors
/// As for [`write()`].
pub fn read(proc_sys: &Path, key: &str) -> io::Result<String> {
    fs::read_to_string(file_of(proc_sys, key)).map(|text| text.trim_end().to_owned())
}

/// With a slash in it the key is a path already: `net/ipv4/conf/eth0.100/rp_filter`.
fn file_of(proc_sys: &Path, key: &str) -> PathBuf {
    if key.contains('/') {
        proc_sys.join(key)
    } else {
        proc_sys.join(key.replace('.', "/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_paths() {
        let sys = Path::new("/proc/sys");
        assert_eq!(
            file_of(sys, "kernel.kptr_restrict"),
            sys.join("kernel/kptr_restrict")
        );
        assert_eq!(
            file_of(sys, "net/ipv4/conf/eth0.1/rp_filter"),
            sys.join("net/ipv4/conf/eth0.1/rp_filter")
        );
        assert_eq!(read(sys, "kernel.ostype").unwrap(), "Linux");
    }
}
