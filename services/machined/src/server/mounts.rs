//! Mounted file systems: `/proc/self/mounts` and `statfs`, in bytes.

use corten_api::machine as api;
use tonic::Status;

use super::{Paths, procfile};

pub(super) fn mounts(paths: &Paths) -> Result<api::MountsResponse, Status> {
    let text = procfile::text(&paths.proc, "self/mounts")?;
    let stats = text.lines().filter_map(parse).map(measure).collect();
    Ok(api::MountsResponse {
        messages: vec![api::Mounts {
            metadata: None,
            stats,
        }],
    })
}

/// Source and mount point of a line.
fn parse(line: &str) -> Option<(String, String)> {
    let mut fields = line.split(' ');
    Some((unescaped(fields.next()?), unescaped(fields.next()?)))
}

/// A file system that cannot be measured (a dead network mount) is listed
/// with nothing in it rather than not at all.
fn measure((filesystem, mounted_on): (String, String)) -> api::MountStat {
    let (size, available) = rustix::fs::statvfs(mounted_on.as_str()).map_or((0, 0), |usage| {
        let bytes = |blocks: u64| blocks.saturating_mul(usage.f_frsize);
        (bytes(usage.f_blocks), bytes(usage.f_bavail))
    });
    api::MountStat {
        filesystem,
        size,
        available,
        mounted_on,
    }
}

/// The kernel writes blanks, tabs, line feeds and backslashes as `\ooo`.
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
    fn names_are_unescaped() {
        let parsed = parse(r"//host/a\040b /mnt/x\134y cifs rw 0 0").unwrap();
        assert_eq!(parsed, ("//host/a b".to_owned(), r"/mnt/x\y".to_owned()));
        assert_eq!(unescaped(r"end\"), r"end\");
        assert_eq!(unescaped(r"\999"), r"\999");
    }

    #[test]
    fn the_root_has_a_size() {
        let stat = measure(("root".into(), "/".into()));
        assert!(stat.size > 0 && stat.available <= stat.size);
        assert_eq!(measure(("gone".into(), "/no/such/place".into())).size, 0);
    }
}
