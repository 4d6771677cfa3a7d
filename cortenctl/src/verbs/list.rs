//! `list`: lists files of a node.

use std::time::SystemTime;

use corten_api::machine::list_request::Type;
use corten_api::machine::{FileInfo, ListRequest};
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::format::Format;
use corten_client::stream::stream;
use corten_client::units;
use prost_types::Timestamp;
use serde_json::{Value, json};

use crate::cli::{FileKind, List};
use crate::verbs::listing::{Listing, size};

const HEADER: &[&str] = &["NODE", "NAME"];
const LONG_HEADER: &[&str] = &[
    "NODE", "MODE", "UID", "GID", "SIZE(B)", "LASTMOD", "LABEL", "NAME",
];
/// The extended attribute with a file's label.
const LABEL: &str = "security.selinux";

pub(crate) async fn run(routes: Vec<Route>, args: &List) -> Result<(), Failure> {
    let body = ListRequest {
        root: args.path.clone(),
        recurse: args.recurse || args.depth > 1,
        recursion_depth: args.depth,
        types: args.kinds.iter().map(|kind| of(*kind).into()).collect(),
        // The other formats include the attributes.
        report_xattrs: args.long || args.output.output != Format::Table,
    };
    let now = SystemTime::now();
    let header = if args.long { LONG_HEADER } else { HEADER };
    let header = header.iter().map(|cell| (*cell).to_owned()).collect();
    let mut listing = Listing::new(&args.output.output, header);
    let call = |mut client: Machine, request| async move { client.list(request).await };
    let failed = stream(routes, body, call, |node, file: FileInfo| {
        let cells = || cells(node, &file, args, now);
        listing.file(node, &file.name, &file.error, cells, || fields(&file))
    })
    .await?;
    listing.finish(&failed)
}

fn of(kind: FileKind) -> Type {
    match kind {
        FileKind::Regular => Type::Regular,
        FileKind::Directory => Type::Directory,
        FileKind::Link => Type::Symlink,
    }
}

fn cells(node: &str, file: &FileInfo, args: &List, now: SystemTime) -> Vec<String> {
    let name = if file.link.is_empty() || !args.long {
        file.relative_name.clone()
    } else {
        format!("{} -> {}", file.relative_name, file.link)
    };
    if !args.long {
        return vec![node.to_owned(), name];
    }
    vec![
        node.to_owned(),
        mode(file.mode),
        file.uid.to_string(),
        file.gid.to_string(),
        size(file.size, args.humanize),
        units::file_time(file.modified, now),
        label(file),
        name,
    ]
}

fn label(file: &FileInfo) -> String {
    let label = file.xattrs.iter().find(|attribute| attribute.name == LABEL);
    label.map_or_else(String::new, |attribute| {
        // The kernel's value ends in a zero byte.
        let text = String::from_utf8_lossy(&attribute.data);
        text.trim_end_matches('\0').to_owned()
    })
}

fn fields(file: &FileInfo) -> Value {
    let modified = Timestamp {
        seconds: file.modified,
        nanos: 0,
    };
    json!({
        "path": file.name,
        "name": file.relative_name,
        "mode": mode(file.mode),
        "uid": file.uid,
        "gid": file.gid,
        "size": file.size,
        "modified": units::moment(modified),
        "label": label(file),
        "link": file.link,
    })
}

/// Letters of the upper bits, from the highest, and of the permissions. The wire has the mode in
/// the form of Go's `os.FileMode`.
fn mode(mode: u32) -> String {
    let mut text: String = "dalTLDpSugct?"
        .chars()
        .zip((0..32).rev())
        .filter(|(_, bit)| mode & (1 << bit) != 0)
        .map(|(letter, _)| letter)
        .collect();
    if text.is_empty() {
        text.push('-');
    }
    let permissions = "rwxrwxrwx".chars().zip((0..9).rev());
    text.extend(permissions.map(|(c, bit)| if mode & (1 << bit) != 0 { c } else { '-' }));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_rendered_as_letters() {
        for (bits, text) in [
            (0o644, "-rw-r--r--"),
            (1 << 31 | 0o755, "drwxr-xr-x"),
            (1 << 27 | 0o777, "Lrwxrwxrwx"),
            (1 << 31 | 1 << 20 | 0o777, "dtrwxrwxrwx"),
            (1 << 26 | 1 << 21, "Dc---------"),
            (1 << 23 | 0o755, "urwxr-xr-x"),
            (0, "----------"),
        ] {
            assert_eq!(mode(bits), text, "{bits:o}");
        }
    }
}
