//! The mount table `/proc/self/mounts` (fstab(5), proc(5)).

use std::fs;
use std::io;

/// The table of the calling process.
pub const TABLE: &str = "/proc/self/mounts";

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Device path, or the file system's own name of its source.
    pub source: String,
    /// Mount point.
    pub target: String,
    /// File system type.
    pub kind: String,
    /// Mount options, such as `rw`, `nosuid`.
    pub options: Vec<String>,
}

impl Mount {
    /// Whether it is mounted with this option.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }
}

/// Reads the table of the calling process.
///
/// # Errors
/// `/proc` is not mounted, or the kernel refuses.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&String::from_utf8_lossy(&fs::read(TABLE)?)))
}

/// Parses a table and skips malformed lines.
#[must_use]
pub fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Mount> {
    let mut fields = line.split(' ');
    let (source, target) = (unescaped(fields.next()?), unescaped(fields.next()?));
    let (kind, options) = (unescaped(fields.next()?), fields.next()?);
    Some(Mount {
        source,
        target,
        kind,
        options: options.split(',').map(unescaped).collect(),
    })
}

/// Decodes the kernel's escapes `\ooo` of blanks, tabs, line feeds and backslashes.
fn unescaped(field: &str) -> String {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = match (first, after) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..]) => {
                Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
            }
            _ => None,
        };
        out.push(code.unwrap_or(first));
        rest = if code.is_some() {
            after.get(3..).unwrap_or_default()
        } else {
            after
        };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octal_escapes_in_the_mount_table_are_decoded() {
        let mounts = parse("//host/a\\040b /mnt/x\\134y cifs rw,nosuid 0 0\n");
        let [mount] = mounts.as_slice() else {
            panic!("{mounts:?}")
        };
        assert_eq!(
            (&*mount.source, &*mount.target),
            ("//host/a b", "/mnt/x\\y")
        );
        assert!(mount.has("nosuid") && !mount.has("ro"));
        assert_eq!(unescaped(r"end\"), r"end\");
        assert_eq!(unescaped(r"\999"), r"\999");
    }

    #[test]
    fn malformed_lines_of_the_mount_table_are_skipped() {
        let mounts = parse("\n \nproc\nproc /proc\n\u{fffd} / \u{0} \nproc /proc proc rw\n");
        let kinds: Vec<&str> = mounts.iter().map(|mount| mount.kind.as_str()).collect();
        assert_eq!(kinds, ["\u{0}", "proc"]);
    }
}
