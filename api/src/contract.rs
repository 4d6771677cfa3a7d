//! The methods declared in the `.proto` files, for tests of the tables.

use std::path::Path;

/// A method of the API.
pub(crate) struct Declared {
    /// The path on the wire: `/package.Service/Method`.
    pub(crate) path: String,
    /// Whether its request is a stream.
    pub(crate) takes_stream: bool,
}

/// Packages outside of the node API: trustd, the daemons of one node among themselves, and receivers of events.
const OTHERS: [&str; 3] = ["/securityapi.", "/corten.", "/events."];

/// Every method of the API.
pub(crate) fn methods() -> Vec<Declared> {
    let mut all = Vec::new();
    in_directory(Path::new("proto"), &mut all);
    let is_other = |path: &str| OTHERS.iter().any(|other| path.starts_with(other));
    all.retain(|method| !is_other(&method.path));
    all
}

fn in_directory(directory: &Path, all: &mut Vec<Declared>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            in_directory(&path, all);
        } else {
            in_file(&std::fs::read_to_string(path).unwrap(), all);
        }
    }
}

fn in_file(proto: &str, all: &mut Vec<Declared>) {
    let (mut package, mut service) = ("", "");
    for line in proto.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("package ") {
            package = rest.trim_end_matches(';');
        } else if let Some(rest) = line.strip_prefix("service ") {
            service = rest.split([' ', '{']).next().unwrap();
        } else if let Some(rest) = line.strip_prefix("rpc ") {
            let (method, request) = rest.split_once('(').unwrap();
            all.push(Declared {
                path: format!("/{package}.{service}/{}", method.trim_end()),
                takes_stream: request.trim_start().starts_with("stream "),
            });
        }
    }
}
