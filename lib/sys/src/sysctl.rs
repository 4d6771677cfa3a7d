//! Kernel parameters at run time (`/proc/sys`).

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Sets `key` ("net.ipv4.ip_forward", or with slashes where a name holds a dot) to `value`.
///
/// # Errors
/// `NotFound` when the kernel lacks the parameter; `InvalidInput` when the key leads out of `proc_sys`; otherwise the
/// kernel's error.
pub fn write(proc_sys: &Path, key: &str, value: &str) -> io::Result<()> {
    // Some parameters (kernel.printk_devkmsg) require the line feed.
    fs::write(file_of(proc_sys, key)?, format!("{value}\n"))
}

/// Reads `key`, without the final line feed.
///
/// # Errors
/// As for [`write()`].
pub fn read(proc_sys: &Path, key: &str) -> io::Result<String> {
    fs::read_to_string(file_of(proc_sys, key)?).map(|text| text.trim_end().to_owned())
}

/// A key with a slash is a path already: `net/ipv4/conf/eth0.100/rp_filter`.
fn file_of(proc_sys: &Path, key: &str) -> io::Result<PathBuf> {
    let path = if key.contains('/') {
        PathBuf::from(key)
    } else {
        PathBuf::from(key.replace('.', "/"))
    };
    // An absolute path would replace the directory, and `..` would leave it.
    let stays = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if !stays {
        let text = "must be the name of a parameter, such as net.ipv4.ip_forward";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(proc_sys.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysctl_keys_map_to_paths() {
        let sys = Path::new("/proc/sys");
        assert_eq!(
            file_of(sys, "kernel.kptr_restrict").unwrap(),
            sys.join("kernel/kptr_restrict")
        );
        assert_eq!(
            file_of(sys, "net/ipv4/conf/eth0.1/rp_filter").unwrap(),
            sys.join("net/ipv4/conf/eth0.1/rp_filter")
        );
        assert_eq!(read(sys, "kernel.ostype").unwrap(), "Linux");
    }

    #[test]
    fn sysctl_key_cannot_escape_the_directory() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        let base = directory.path().join("sys");
        fs::create_dir(&base).unwrap();
        let absolute = victim.to_str().unwrap();
        for key in [
            absolute,
            &absolute.replace('/', "."),
            "../victim",
            "a/../../victim",
        ] {
            let error = write(&base, key, "x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{key}");
            assert_eq!(
                read(&base, key).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
        assert!(!victim.exists());
    }
}
