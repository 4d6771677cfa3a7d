//! The list of methods: docs/api.md matches the server.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use corten_api::roles::{METHODS, Method, Role, allows};
use corten_config::Document;
use tonic::client::Grpc;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use super::operator::etcd;
use super::{World, config_text, set_time, world};
use crate::absent::{ABSENT, sentence};
use crate::node::{Apply, Node as _};

/// A method's answer to an empty request.
async fn answer(world: &World, path: &'static str) -> Result<(), Status> {
    let mut client = Grpc::new(world.channel.clone());
    client.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(path);
    let codec = ProstCodec::<(), ()>::default();
    let mut stream = client
        .server_streaming(Request::new(()), path, codec)
        .await?
        .into_inner();
    stream.message().await.map(drop)
}

#[tokio::test]
async fn every_method_is_answered_or_names_what_it_waits_for() {
    let world = world();
    let config = Document::parse((config_text() + &etcd()).as_bytes()).unwrap();
    world.node.apply_config(config, Apply::Now).unwrap();
    set_time(&world.node, true);
    for method in METHODS {
        let answer = answer(&world, method.path).await;
        let is_absent = ABSENT.iter().any(|(path, _)| *path == method.path);
        let read_only = |status: &Status| status.message().starts_with("resources are read-only");
        let is_refused = answer.as_ref().is_err_and(read_only);
        assert_eq!(is_refused, writes_resources(method.path), "{answer:?}");
        match answer {
            Err(status) if status.message() == sentence(method.path) => {
                assert_eq!(status.code(), Code::Unimplemented);
                assert!(is_absent, "{} is not answered", method.path);
            }
            answer => assert!(!is_absent, "{} is answered: {answer:?}", method.path),
        }
    }
    for (path, _) in ABSENT {
        assert!(METHODS.iter().any(|method| method.path == *path), "{path}");
    }
}

/// Whether the method writes resources, which all callers are refused.
fn writes_resources(path: &str) -> bool {
    let method = path.strip_prefix("/cosi.resource.State/");
    method.is_some_and(|method| !["Get", "List", "Watch"].contains(&method))
}

/// The role's name, marked if only a node without a config allows it.
fn role(method: &Method, role: Role) -> String {
    let condition = if allows(method.path, &[role], false) {
        ""
    } else {
        " (maintenance)"
    };
    format!("{}{condition}", role.name())
}

fn state(path: &str) -> String {
    match ABSENT.iter().find(|(absent, _)| *absent == path) {
        Some((_, what)) => format!("needs {what}"),
        None if writes_resources(path) => "refused".to_owned(),
        None => "served".to_owned(),
    }
}

fn table() -> String {
    let mut table = "| method | roles | |\n|---|---|---|\n".to_owned();
    for method in METHODS {
        let roles = method.roles.iter().map(|one| role(method, *one));
        let roles = roles.collect::<Vec<_>>().join(", ");
        let name = method.path.trim_start_matches('/');
        writeln!(table, "| `{name}` | {roles} | {} |", state(method.path)).unwrap();
    }
    table
}

/// `UPDATE=1 cargo test -p corten-server methods` writes the list.
#[test]
fn methods_page_matches_the_server() {
    const MARK: &str =
        "<!-- Below: written by `UPDATE=1 cargo test -p corten-server methods`. -->\n";
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    let text = fs::read_to_string(&page).unwrap();
    let (top, _) = text.split_once(MARK).unwrap();
    let expected = format!("{top}{MARK}\n{}", table());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&page, &expected).unwrap();
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(
        text == expected,
        "docs/api.md is behind the server: UPDATE=1 cargo test -p corten-server methods"
    );
}
