//! Netstat: the sockets of the host and of other network namespaces.

mod owners;
mod table;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::thread;

use corten_api::machine as api;
use corten_api::machine::netstat_request::{Filter, L4proto, NetNs};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tonic::Status;

use crate::Paths;
use crate::request::at_most;

/// Limit of sockets in one answer; more would not fit a message.
const MOST: usize = 100_000;
/// Limit of named namespaces in one request; a thread enters each.
const MOST_NAMES: usize = 1024;

/// A table of `/proc/net`, and whether a request selects it.
type Table = (&'static str, fn(&L4proto) -> bool);

const TABLES: [Table; 8] = [
    ("tcp", |asked| asked.tcp),
    ("tcp6", |asked| asked.tcp6),
    ("udp", |asked| asked.udp),
    ("udp6", |asked| asked.udp6),
    ("udplite", |asked| asked.udplite),
    ("udplite6", |asked| asked.udplite6),
    ("raw", |asked| asked.raw),
    ("raw6", |asked| asked.raw6),
];

/// Lists sockets. A request without protocols means all of them; one without namespaces means the host's. Queues are
/// bytes. Blocks, and starts a thread for each other namespace.
///
/// # Errors
/// INVALID_ARGUMENT for a malformed name or too many names; NOT_FOUND for a named namespace that does not exist;
/// RESOURCE_EXHAUSTED for more than 100,000 sockets; INTERNAL if the tables are unreadable.
pub fn netstat(
    paths: &Paths,
    request: &api::NetstatRequest,
) -> Result<api::NetstatResponse, Status> {
    let filter = request.filter();
    let tables = tables(request.l4proto.as_ref());
    let mut records = Vec::new();
    for namespace in namespaces(paths, request.netns.as_ref())? {
        let found = match &namespace {
            None => sockets(&paths.proc, &tables, filter),
            Some(name) => inside(paths, name, &tables, filter),
        };
        let is_named = |name| {
            let asked = request.netns.as_ref();
            asked.is_some_and(|asked| asked.netns.contains(name))
        };
        let found = match found {
            // The namespace's container ended meanwhile.
            Err(error)
                if namespace.as_ref().is_some_and(|name| !is_named(name)) && is_gone(&error) =>
            {
                continue;
            }
            found => found,
        };
        let shown = namespace.unwrap_or_default();
        let found = found.map_err(|error| {
            let text = format!("netns: {shown}: {error}");
            match error.kind() {
                io::ErrorKind::NotFound => Status::not_found(text),
                _ => Status::internal(text),
            }
        })?;
        records.extend(found.into_iter().map(|record| api::ConnectRecord {
            netns: shown.clone(),
            ..record
        }));
        if records.len() > MOST {
            return Err(Status::resource_exhausted(format!(
                "there are more than {MOST} sockets; ask for one protocol, or for listening sockets only"
            )));
        }
    }
    if request.feature.is_some_and(|feature| feature.pid) {
        owners::name(&paths.proc, &mut records);
    }
    Ok(api::NetstatResponse {
        messages: vec![api::Netstat {
            metadata: None,
            connectrecord: records,
        }],
    })
}

/// Whether the namespace does not exist: the name is missing, or no longer a mount point.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
    )
}

fn tables(asked: Option<&L4proto>) -> Vec<&'static str> {
    let asks = |(_, is_asked): &&Table| asked.is_some_and(is_asked);
    let all = !TABLES.iter().any(|table| asks(&table));
    let wanted = TABLES.iter().filter(|table| all || asks(table));
    wanted.map(|(name, _)| *name).collect()
}

/// The requested namespaces, without duplicates; `None` is the host's.
fn namespaces(paths: &Paths, asked: Option<&NetNs>) -> Result<Vec<Option<String>>, Status> {
    let Some(asked) = asked else {
        return Ok(vec![None]);
    };
    at_most("netns", asked.netns.len(), MOST_NAMES)?;
    let mut names = asked.netns.clone();
    if asked.allnetns {
        // The directory exists only if a container has a namespace.
        let there = fs::read_dir(&paths.netns).into_iter().flatten().flatten();
        names.extend(there.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    }
    if let Some(bad) = names.iter().find(|name| !is_name(name)) {
        let text = format!("netns: {bad:?} is not the name of a network namespace");
        return Err(Status::invalid_argument(text));
    }
    names.sort();
    names.dedup();
    let host = asked.hostnetwork || asked.allnetns || names.is_empty();
    let host = host.then_some(None);
    Ok(host
        .into_iter()
        .chain(names.into_iter().map(Some))
        .collect())
}

/// Whether the name is a single path component, so that it cannot leave the directory.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// Sockets of the calling thread's network namespace.
fn sockets(
    proc: &Path,
    tables: &[&'static str],
    filter: Filter,
) -> io::Result<Vec<api::ConnectRecord>> {
    let mut records = Vec::new();
    for name in tables {
        let file = match File::open(proc.join("thread-self/net").join(name)) {
            Ok(file) => file,
            // The kernel lacks this protocol.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        table::read(
            name,
            file,
            MOST,
            |record| is_wanted(filter, record),
            &mut records,
        )?;
    }
    Ok(records)
}

/// Reads the sockets of a namespace on a temporary thread, because entering changes the thread's namespace.
fn inside(
    paths: &Paths,
    name: &str,
    tables: &[&'static str],
    filter: Filter,
) -> io::Result<Vec<api::ConnectRecord>> {
    let namespace = File::open(paths.netns.join(name))?;
    let enter_and_read = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        sockets(&paths.proc, tables, filter)
    };
    thread::scope(|scope| {
        let reader = thread::Builder::new().name("netns".to_owned());
        let reader = reader.spawn_scoped(scope, enter_and_read)?;
        reader
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("reading its sockets failed")))
    })
}

/// A socket without a peer counts as listening.
fn is_wanted(filter: Filter, record: &api::ConnectRecord) -> bool {
    let listens = record.remoteport == 0;
    match filter {
        Filter::All => true,
        Filter::Connected => !listens,
        Filter::Listening => listens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_without_a_protocol_lists_all_protocols() {
        assert_eq!(tables(None).len(), 8);
        assert_eq!(tables(Some(&L4proto::default())).len(), 8);
        let some = L4proto {
            udp6: true,
            tcp: true,
            ..L4proto::default()
        };
        assert_eq!(tables(Some(&some)), ["tcp", "udp6"]);
    }

    #[test]
    fn namespace_removed_during_the_listing_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        // Remains of a name before and after its removal.
        fs::write(directory.path().join("unmounted"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("removed")).unwrap();
        let paths = Paths {
            netns: directory.path().to_owned(),
            ..Paths::default()
        };
        let asked = |names: &[&str]| {
            let netns = NetNs {
                netns: names.iter().map(|&name| name.to_owned()).collect(),
                allnetns: true,
                ..NetNs::default()
            };
            let request = api::NetstatRequest {
                netns: Some(netns),
                ..api::NetstatRequest::default()
            };
            netstat(&paths, &request)
        };
        let found = asked(&[]).unwrap();
        let of_host = |record: &api::ConnectRecord| record.netns.is_empty();
        assert!(found.messages[0].connectrecord.iter().all(of_host));
        // A request for a named namespace reports the error.
        for name in ["unmounted", "removed"] {
            let refused = asked(&[name]).unwrap_err();
            assert!(refused.message().contains(name), "{refused}");
        }
    }

    #[test]
    fn namespaces_are_names_and_not_paths() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("cni-1"), "").unwrap();
        let paths = Paths {
            netns: directory.path().to_owned(),
            ..Paths::default()
        };
        let asked = |hostnetwork, allnetns, names: &[&str]| {
            let asked = NetNs {
                hostnetwork,
                netns: names.iter().map(|&name| name.to_owned()).collect(),
                allnetns,
            };
            namespaces(&paths, Some(&asked))
        };
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(namespaces(&paths, None).unwrap(), [None]);
        assert_eq!(asked(false, false, &[]).unwrap(), [None]);
        assert_eq!(
            asked(true, true, &["cni-1"]).unwrap(),
            [None, named("cni-1")]
        );
        assert_eq!(asked(false, false, &["x"]).unwrap(), [named("x")]);
        let many = vec!["x"; MOST_NAMES + 1];
        let refused = asked(false, false, &many).unwrap_err();
        assert!(refused.message().starts_with("netns: "), "{refused}");
        for bad in ["", ".", "..", "../cni-1", "/proc/1/ns/net", "a\0"] {
            let refused = asked(false, false, &[bad]).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{bad:?}");
        }
    }
}
