//! The zip file, written incrementally.

use std::collections::BTreeSet;
use std::io::Write as _;

use anyhow::Context as _;
use tempfile::NamedTempFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Maximum length of a path component, in characters.
const MAX_NAME: usize = 100;

pub(super) struct Archive {
    zip: ZipWriter<NamedTempFile>,
    names: BTreeSet<String>,
}

impl Archive {
    pub(super) fn new(file: NamedTempFile) -> Archive {
        Archive {
            zip: ZipWriter::new(file),
            names: BTreeSet::new(),
        }
    }

    /// Adds a file; a duplicate name gets a number.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        let numbered = (1_u32..).map(|number| format!("{name}.{number}"));
        let name = std::iter::once(name.to_owned())
            .chain(numbered)
            .find(|name| !self.names.contains(name))
            .unwrap_or_default();
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .unix_permissions(0o600);
        self.zip
            .start_file(&*name, options)
            .context("the zip file")?;
        self.zip.write_all(content).context("the zip file")?;
        self.names.insert(name);
        Ok(())
    }

    pub(super) fn finish(self) -> anyhow::Result<NamedTempFile> {
        let file = self.zip.finish().context("the zip file")?;
        file.as_file().sync_all().context("the zip file")?;
        Ok(file)
    }
}

/// A safe path component made from a name of a node.
pub(super) fn part(name: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':') {
            c
        } else {
            '_'
        }
    };
    let text: String = name.chars().take(MAX_NAME).map(plain).collect();
    match text.trim_start_matches('.') {
        "" => "_".to_owned(),
        rest => rest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn names_stay_inside_the_archive() {
        for (name, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("../../etc/passwd", "_.._etc_passwd"),
            ("..", "_"),
            ("", "_"),
            ("a\u{1b}/b", "a__b"),
        ] {
            assert_eq!(part(name), expected, "{name:?}");
        }
        assert_eq!(part(&"x".repeat(5000)).len(), MAX_NAME);
    }

    #[test]
    fn duplicate_names_are_numbered_and_content_is_kept() {
        let mut archive = Archive::new(NamedTempFile::new().unwrap());
        archive.add("n/a", b"one").unwrap();
        archive.add("n/a", b"two").unwrap();
        let file = archive.finish().unwrap();
        let mut zip = zip::ZipArchive::new(file.reopen().unwrap()).unwrap();
        let mut text = String::new();
        zip.by_name("n/a.1")
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        assert_eq!(text, "two");
        assert_eq!(zip.len(), 2);
    }
}
