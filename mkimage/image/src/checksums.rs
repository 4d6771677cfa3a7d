//! SHA-256 of outputs: the digests that all other descriptions refer to, and the SHA256SUMS file.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use corten_steps::error::Result;
use sha2::{Digest as _, Sha256};

use super::output;

/// Hexadecimal SHA-256 of `data`.
pub fn of_bytes(data: &[u8]) -> String {
    hex::encode(Sha256::digest(data))
}

/// Hexadecimal SHA-256 of a file.
pub fn of_file(path: &Path) -> Result<String> {
    let mut file: File = output::open(path)?;
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let count = file
            .read(&mut buffer)
            .with_context(|| format!("reading {}", path.display()))?;
        if count == 0 {
            return Ok(hex::encode(digest.finalize()));
        }
        digest.update(buffer.get(..count).unwrap_or_default());
    }
}

/// Name and digest of every file in `outputs`, sorted by name. A directory stands for its files,
/// named `directory/file`.
pub fn of_outputs(outputs: &[PathBuf]) -> Result<Vec<(String, String)>> {
    let mut sums = Vec::new();
    for path in outputs {
        let above = path.parent().unwrap_or(Path::new(""));
        let mut pending = vec![path.clone()];
        while let Some(path) = pending.pop() {
            if path.is_dir() {
                let entries = path
                    .read_dir()
                    .with_context(|| format!("reading {}", path.display()))?;
                for entry in entries {
                    pending.push(entry?.path());
                }
                continue;
            }
            let name = path
                .strip_prefix(above)
                .unwrap_or(&path)
                .to_string_lossy()
                .into_owned();
            sums.push((name, of_file(&path)?));
        }
    }
    sums.sort();
    Ok(sums)
}

/// Writes the input of `sha256sum --check`: a line for every file in `outputs`.
pub fn write(out: &Path, outputs: &[PathBuf]) -> Result<()> {
    let lines: Vec<String> = of_outputs(outputs)?
        .into_iter()
        .map(|(name, digest)| format!("{digest}  {name}\n"))
        .collect();
    output::create(out, |file| Ok(file.write_all(lines.concat().as_bytes())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, text};

    #[test]
    fn sha256sum_verifies_the_checksum_file() {
        let scratch = Scratch::new();
        let outputs = [
            scratch.file("b.iso", b"iso"),
            scratch.file("a.raw", b""),
            scratch
                .file("pxe/vmlinuz", b"kernel")
                .parent()
                .unwrap()
                .to_owned(),
        ];
        let out = scratch.path("SHA256SUMS");
        write(&out, &outputs).unwrap();
        let sums = std::fs::read_to_string(&out).unwrap();
        let names: Vec<_> = sums
            .lines()
            .map(|line| line.split_once("  ").unwrap().1)
            .collect();
        assert_eq!(names, ["a.raw", "b.iso", "pxe/vmlinuz"]);
        corten_steps::tool::Tool::new("sha256sum")
            .args(["--check", "--strict", text(&out)])
            .dir(out.parent().unwrap())
            .run()
            .unwrap();
    }
}
