//! Tests of the whole crate; tests of one file are in that file.

mod alike;
mod carried;
mod containerd;
mod cri;
mod encryption;
mod forms;
mod hostile;
mod installation;
mod invalid;
mod kept;
mod kinds;
mod kubelet;
mod kubernetes;
mod links;
mod page;
mod parse;
mod pod_access;
mod registries;
mod volumes;

use corten_yaml::table::Support;
use proptest::prelude::*;

use crate::Document;
use crate::testing::{
    EXAMPLES, KEY_TEXT, bare, bomb, control_plane, crt, doc, document, future, good, key, lines,
    read, with, with_interfaces, worker,
};

/// Effective support of a nested field: a field within a kept one is only kept.
fn least(around: Support, own: Support) -> Support {
    match (around, own) {
        (Support::Later, _) | (_, Support::Later) => Support::Later,
        (Support::Held, _) | (_, Support::Held) => Support::Held,
        (Support::Acted, Support::Acted) => Support::Acted,
    }
}

fn problems(text: &str) -> Vec<String> {
    match Document::parse(text.as_bytes()) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

fn future_problems(text: &str) -> Vec<String> {
    match read(text) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// Pieces of real documents in random order, which reach deep into the parser.
fn fragments() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(lines()), 0..30).prop_map(|lines| lines.concat())
}
