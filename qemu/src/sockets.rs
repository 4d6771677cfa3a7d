//! The directory of a machine's sockets.

use std::path::{Path, PathBuf};

use crate::VmError;

/// Longest path of a socket in bytes (Linux, `unix(7)`: 108 with the final zero).
const LONGEST_PATH: usize = 107;
/// Room for the name of a socket and the slash before it, in bytes.
const NAME: usize = 16;

/// The directory of a machine's sockets: that of the machine, which is removed with it, unless its path is too long.
#[derive(Debug)]
pub(crate) struct Sockets {
    path: PathBuf,
    /// Removed when the machine is dropped.
    _temporary: Option<tempfile::TempDir>,
}

impl Sockets {
    pub(crate) fn of(machine: &Path) -> Result<Sockets, VmError> {
        if machine.as_os_str().len() + NAME <= LONGEST_PATH {
            return Ok(Sockets {
                path: machine.to_owned(),
                _temporary: None,
            });
        }
        let temporary = tempfile::Builder::new()
            .prefix("corten-vm-")
            .tempdir()
            .map_err(VmError::file("create", std::env::temp_dir()))?;
        Ok(Sockets {
            path: temporary.path().to_owned(),
            _temporary: Some(temporary),
        })
    }

    /// Path of the socket with this name.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_in_the_machines_directory_unless_its_path_is_too_long() {
        let short = Sockets::of(Path::new("/state/lab")).unwrap();
        assert_eq!(short.path("qmp"), Path::new("/state/lab/qmp"));
        let long = format!("/{}", "d".repeat(LONGEST_PATH));
        let long = Sockets::of(Path::new(&long)).unwrap();
        assert!(long.path("second").as_os_str().len() <= LONGEST_PATH);
        let made = long.path.clone();
        assert!(made.is_dir());
        drop(long);
        assert!(!made.exists());
    }
}
