//! The listing of an image, one line per path: the form of `rootfs/golden/`.

use std::path::Path;

use anyhow::Context as _;
use corten_steps::error::{Failure, Result};
use corten_steps::toolchain::Locked;

use crate::tree::{Kind, Tree};

/// The directory whose content is not listed.
const MODULES: &str = "/usr/lib/modules/";

/// The listing of a tree.
///
/// It has no sizes and no kernel modules, because they change with every version:
///
/// ```text
/// drwxr-xr-x 0:0 /usr/bin
/// lrwxrwxrwx 0:0 /bin -> usr/bin
/// ```
pub fn of_tree(tree: &Tree) -> String {
    let mut text = String::new();
    for (path, node) in tree.nodes() {
        let (kind, target) = match &node.kind {
            Kind::Directory => ('d', String::new()),
            Kind::File(_) => ('-', String::new()),
            Kind::Link(target) => ('l', format!(" -> {target}")),
        };
        let (uid, gid) = (node.uid, node.gid);
        line(
            &mut text,
            &format!("{kind}{}", bits(node.mode)),
            uid,
            gid,
            &format!("/{path}{target}"),
        );
    }
    text
}

/// The listing of a finished squashfs, read back with `unsquashfs`.
pub fn of_image(tools: &Locked, image: &Path) -> Result<String> {
    let output = tools
        .tool("usr/bin/unsquashfs")
        .args(["-dest", "", "-lln"])
        .arg(image)
        .output()?;
    parse(&String::from_utf8_lossy(&output)).with_context(|| format!("listing {}", image.display()))
}

/// Lines such as `drwxr-xr-x 0/0   123 1970-01-01 00:00 /usr -> target`.
fn parse(output: &str) -> Result<String> {
    let mut lines = Vec::new();
    for row in output.lines().filter(|row| !row.is_empty()) {
        let mut rest = row;
        let mut fields = Vec::new();
        while fields.len() < 5 {
            let (field, after) = rest.trim_start().split_once(' ').unwrap_or((rest, ""));
            fields.push(field);
            rest = after;
        }
        let [mode, owner, ..] = fields.as_slice() else {
            return Err(Failure::new(
                format!("unreadable line {row:?}"),
                "report this as a bug",
            ));
        };
        let Some((uid, gid)) = owner.split_once('/') else {
            return Err(Failure::new(
                format!("unreadable owner in {row:?}"),
                "report this as a bug",
            ));
        };
        if rest.is_empty() || rest == "/" {
            continue;
        }
        lines.push((
            rest.split(" -> ").next().unwrap_or(rest),
            *mode,
            uid.parse()?,
            gid.parse()?,
            rest,
        ));
    }
    lines.sort();
    let mut text = String::new();
    for (_, mode, uid, gid, path) in lines {
        line(&mut text, mode, uid, gid, path);
    }
    Ok(text)
}

fn line(text: &mut String, mode: &str, uid: u32, gid: u32, path: &str) {
    if !path.starts_with(MODULES) {
        text.push_str(&format!("{mode} {uid}:{gid} {path}\n"));
    }
}

/// Mode bits as `rwxr-xr-x`. The checks before have refused set-id and sticky bits.
fn bits(mode: u32) -> String {
    (0..9)
        .rev()
        .zip("rwxrwxrwx".chars())
        .map(|(bit, letter)| if mode >> bit & 1 == 1 { letter } else { '-' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsquashfs_output_is_converted_to_a_listing() {
        let output = "drwxr-xr-x 0/0       123 1970-01-01 00:00 /\n\
                      drwxr-x--- 0/50       28 1970-01-01 00:00 /usr\n\
                      lrwxrwxrwx 0/0         7 1970-01-01 00:00 /bin -> usr/bin\n\
                      -rw-r--r-- 0/0         7 1970-01-01 00:00 /usr/lib/modules/6/a.ko\n";
        let expected = "lrwxrwxrwx 0:0 /bin -> usr/bin\ndrwxr-x--- 0:50 /usr\n";
        assert_eq!(parse(output).unwrap(), expected);
        assert_eq!(bits(0o754), "rwxr-xr--");
    }
}
