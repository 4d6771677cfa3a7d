//! The keys of a kernel: files of a key set. They are inputs, so that the same keys give the same
//! bytes.

use std::path::{Path, PathBuf};

/// The module-signing key and certificate, both PEM in one file, as the kernel's build takes it.
pub const MODULE_SIGNING: &str = "module-signing.pem";
/// The seed of `CONFIG_RANDSTRUCT_FULL`: 64 hex digits.
pub const RANDSTRUCT_SEED: &str = "randstruct.seed";
/// The published development keys, in the directory of the kernel config.
pub const DEVELOPMENT: &str = "keys/development";

/// The directory of the key set: `named`, or the development keys below `config_dir`.
pub fn directory(config_dir: &Path, named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| config_dir.join(DEVELOPMENT), Path::to_path_buf)
}
