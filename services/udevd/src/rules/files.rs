//! Finds and reads rule files.

use super::{Position, Problem, Severity};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Directories of rule files: the operator's, those made at run time from the machine config, and those of the image
/// and its extensions.
pub const DIRECTORIES: [&str; 4] = [
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
];

/// Size limit of a rule file in bytes. Debian's largest is below 20 KB.
const MAX_FILE: u64 = 1 << 20;

/// Paths of rule files by file name.
#[derive(Debug, Default)]
pub struct FileSet {
    files: BTreeMap<String, PathBuf>,
}

/// Content of a rule file.
#[derive(Debug)]
pub struct Content {
    /// Path of the file, for messages.
    pub name: String,
    /// Bytes of the file.
    pub bytes: Vec<u8>,
}

impl FileSet {
    /// The files `*.rules` of `directories`. A file hides files of the same name in later directories. A missing
    /// directory is empty.
    pub fn find(directories: &[PathBuf]) -> Self {
        let mut files = BTreeMap::new();
        for directory in directories {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            for entry in entries {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(".rules") && !name.starts_with('.') {
                    files.entry(name).or_insert_with(|| entry.path());
                }
            }
        }
        Self { files }
    }

    /// Reads the files, sorted by name. A link to `/dev/null` is skipped; it only hides files of its name.
    pub fn read(&self, problems: &mut Vec<Problem>) -> Vec<Content> {
        let mut contents = Vec::new();
        for path in self.files.values() {
            let name = path.display().to_string();
            match read(path) {
                Ok(Some(bytes)) => contents.push(Content { name, bytes }),
                Ok(None) => {}
                Err(error) => problems.push(Problem {
                    at: Position {
                        file: name.into(),
                        line: 0,
                        column: 0,
                    },
                    severity: Severity::Broken,
                    text: format!("the file is skipped: {error}"),
                }),
            }
        }
        contents
    }
}

fn read(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    if std::fs::canonicalize(path)? == Path::new("/dev/null") {
        return Ok(None);
    }
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::FileSet;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn rule_file_of_an_earlier_directory_hides_later_ones() {
        let root = tempfile::tempdir().unwrap();
        let [etc, run, lib, none] = ["etc", "run", "lib", "none"].map(|d| root.path().join(d));
        for directory in [&etc, &run, &lib] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(lib.join("10-a.rules"), "lib a").unwrap();
        fs::write(lib.join("20-b.rules"), "lib b").unwrap();
        fs::write(lib.join("30-c.rules"), "lib c").unwrap();
        fs::write(lib.join("README"), "no rules").unwrap();
        fs::write(run.join("20-b.rules"), "run b").unwrap();
        fs::write(etc.join("99-z.rules"), vec![b'#'; (1 << 20) + 1]).unwrap();
        symlink("/dev/null", etc.join("30-c.rules")).unwrap();
        symlink("/nowhere", etc.join("40-d.rules")).unwrap();
        let mut problems = Vec::new();
        let contents = FileSet::find(&[etc, run, lib, none]).read(&mut problems);
        let texts: Vec<&[u8]> = contents.iter().map(|c| c.bytes.as_slice()).collect();
        assert_eq!(texts, [b"lib a", b"run b"]);
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(
            problems[0].contains("etc/40-d.rules:0:0: the file is skipped"),
            "{problems:?}"
        );
        assert!(problems[1].contains("larger than 1 MiB"), "{problems:?}");
    }
}
