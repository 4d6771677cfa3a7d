//! apid's audit log: one line per call that needs more than the reader role, also for refused calls.
//!
//! A line never contains a request. The lines are in apid's own log; machined trusts no line of apid.

use std::fmt;
use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use corten_api::metadata::{CERTIFICATE, NODE, NODES, PROXY_FROM};
use corten_api::roles::{Role, is_listed, needs_more_than_reader};
use http::HeaderMap;
use tonic::{Code, Status};

use crate::caller::{Caller, STRANGER, serial_of};
use crate::refusals::{Key, Refusals};

/// Limit in bytes of the list of nodes in a line: for an executed call, and for a refused one.
const NODES_SHOWN: (usize, usize) = (1024, 64);
/// Limits in bytes of a node's name (RFC 1035, section 2.3.4) and of other text from a caller.
const NAME_SHOWN: usize = 253;
const TEXT_SHOWN: usize = 64;
/// Limit in bytes of a method's path. Known methods have up to 60.
const PATH_SHOWN: usize = 96;

/// The destination of the lines.
#[derive(Clone)]
pub(crate) struct Audit(Arc<Log>);

/// `audit: method=/machine.MachineService/Reboot roles=os:admin serial=0a1b from=10.0.0.9:4711 via=-
/// nodes=10.0.0.5,10.0.0.6 result=Ok failed=1/2`. A call that another node forwarded also has the original caller's
/// serial number: `for=1c2d`. Repeated refused calls share a line: `repeated=17` (`refusals.rs`). All refused calls
/// that one node forwards share lines.
struct Log {
    say: Box<dyn Fn(&str) + Send + Sync>,
    refusals: Mutex<Refusals>,
}

impl Log {
    /// Logs the lines that `of` returns.
    fn say_of_refused(&self, of: impl FnOnce(&mut Refusals) -> Vec<String>) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        for line in of(&mut refusals) {
            (self.say)(&line);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.say_of_refused(Refusals::end);
    }
}

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

impl Audit {
    pub(crate) fn to(say: impl Fn(&str) + Send + Sync + 'static) -> Audit {
        Audit(Arc::new(Log {
            say: Box::new(say),
            refusals: Mutex::default(),
        }))
    }

    /// Writes to apid's log.
    pub(crate) fn log() -> Audit {
        Audit::to(|line| {
            let _ = writeln!(std::io::stdout(), "apid: {line}");
        })
    }

    /// Logs the repeated refusals that are due.
    pub(crate) fn tell_repeated(&self, now: Instant) {
        self.0.say_of_refused(|refusals| refusals.due(now));
    }

    /// Begins the line of a call that needs one. The line is written when the call ends.
    pub(crate) fn begin(
        &self,
        path: &str,
        headers: &HeaderMap,
        roles: &[Role],
        caller: &Caller,
    ) -> Option<Line> {
        if !needs_more_than_reader(path) {
            return None;
        }
        // There are unlimited unknown methods, so they share one key.
        let counted = if is_listed(path) { path } else { "" };
        Some(Line {
            audit: self.clone(),
            // The original caller's serial number is not part of the key: it is not verified yet, so a forwarding node
            // could invent one per call.
            key: (caller.serial.clone(), counted.to_owned()),
            handed_on: false,
            method: shown(path.as_bytes(), PATH_SHOWN),
            who: who(headers, roles, caller),
            named: named(headers, NODES_SHOWN.0),
            named_if_refused: named(headers, NODES_SHOWN.1),
            result: None,
            nodes: Nodes::default(),
        })
    }
}

/// Serial number of the original caller of a forwarded call, unverified. machined verifies the certificate before it
/// acts.
fn behind(headers: &HeaderMap, caller: &Caller) -> Option<String> {
    if !caller.roles.contains(&Role::Impersonator) {
        return None;
    }
    let serial = headers.get(CERTIFICATE).and_then(serial_of);
    Some(serial.map_or_else(
        || "-".to_owned(),
        |serial| shown(serial.as_bytes(), TEXT_SHOWN),
    ))
}

/// The nodes a call names, up to `room` bytes, and the number of the rest.
fn named(headers: &HeaderMap, room: usize) -> String {
    let (mut text, mut more) = (String::new(), 0);
    let values = headers.get_all(NODES).iter().chain(headers.get_all(NODE));
    for node in values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')) {
        let node = shown(node.trim_ascii(), NAME_SHOWN);
        if more > 0 || text.len() + node.len() >= room {
            more += 1;
        } else {
            let comma = if text.is_empty() { "" } else { "," };
            text.push_str(&format!("{comma}{node}"));
        }
    }
    match more {
        0 if text.is_empty() => "-".to_owned(),
        0 => text,
        more => format!("{text}+{more}"),
    }
}

/// The caller: `roles=... serial=... from=... via=...`, and the original caller of a forwarded call: `for=...`.
fn who(headers: &HeaderMap, roles: &[Role], caller: &Caller) -> String {
    let roles = list(roles.iter().map(|role| role.name()));
    let via = headers.get(PROXY_FROM).map_or_else(
        || "-".to_owned(),
        |value| shown(value.as_bytes(), TEXT_SHOWN),
    );
    let Caller { serial, from, .. } = caller;
    let behind = behind(headers, caller);
    let behind = behind.map_or_else(String::new, |behind| format!(" for={behind}"));
    format!("roles={roles} serial={serial} from={from} via={via}{behind}")
}

fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        "-".to_owned()
    } else {
        items.join(",")
    }
}

/// A caller's text as one printable word of at most `most` bytes.
fn shown(text: &[u8], most: usize) -> String {
    let plain = |byte: &u8| match byte {
        b'!'..=b'~' if *byte != b'=' => char::from(*byte),
        _ => '?',
    };
    text.iter().take(most).map(plain).collect()
}

/// Number of nodes asked by one call, and of failures among them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Nodes(Arc<(AtomicUsize, AtomicUsize)>);

impl Nodes {
    pub(crate) fn asked(&self, nodes: usize) {
        self.0.0.store(nodes, Ordering::Relaxed);
    }

    pub(crate) fn one_failed(&self) {
        self.0.1.fetch_add(1, Ordering::Relaxed);
    }
}

/// A line not written yet.
#[derive(Debug)]
pub(crate) struct Line {
    audit: Audit,
    key: Key,
    method: String,
    who: String,
    /// The list of nodes for an executed call, and for a refused one.
    named: String,
    named_if_refused: String,
    handed_on: bool,
    result: Option<Code>,
    pub(crate) nodes: Nodes,
}

impl Line {
    /// The caller, as the line describes it.
    pub(crate) fn who(&self) -> &str {
        &self.who
    }

    /// Records the result. Without it, the caller went away first.
    pub(crate) fn ended(&mut self, status: &Status) {
        self.result = Some(status.code());
    }

    /// From now on an answerer may have acted.
    pub(crate) fn is_handed_on(&mut self) {
        self.handed_on = true;
    }

    /// Whether the whole call was refused, so that it changed nothing. A stranger's failed call in maintenance mode
    /// counts as refused: a peer without a certificate can make thousands of them.
    fn is_refused(&self, result: Code, asked: usize) -> bool {
        let refused = matches!(
            result,
            Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented
        );
        let strangers = self.key.0 == STRANGER && result != Code::Ok;
        !self.handed_on || (asked == 0 && (refused || strangers))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let result = self.result.unwrap_or(Code::Cancelled);
        let asked = self.nodes.0.0.load(Ordering::Relaxed);
        let failed = self.nodes.0.1.load(Ordering::Relaxed);
        let is_refused = self.is_refused(result, asked);
        let named = match is_refused {
            true => &self.named_if_refused,
            false => &self.named,
        };
        let Line { method, who, .. } = self;
        let mut line = format!("audit: method={method} {who} nodes={named} result={result:?}");
        if asked > 0 {
            line.push_str(&format!(" failed={failed}/{asked}"));
        }
        if is_refused {
            let key = std::mem::take(&mut self.key);
            let log = &self.audit.0;
            log.say_of_refused(|refusals| refusals.note(key, line, Instant::now()));
        } else {
            (self.audit.0.say)(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_caller_stays_one_bounded_word() {
        assert_eq!(shown(b"a b\nresult=OK\xff", 99), "a?b?result?OK?");
        assert_eq!(shown(&[b'x'; 1000], TEXT_SHOWN).len(), TEXT_SHOWN);
    }

    #[test]
    fn hostile_node_lists_are_bounded_in_the_audit_log() {
        let mut headers = HeaderMap::new();
        assert_eq!(named(&headers, 64), "-");
        headers.append(NODES, "10.0.0.5, 10.0.0.6".parse().unwrap());
        headers.append(NODES, "cp-1".parse().unwrap());
        assert_eq!(named(&headers, 64), "10.0.0.5,10.0.0.6,cp-1");
        assert_eq!(named(&headers, 18), "10.0.0.5,10.0.0.6+1");
        let long = vec!["x".repeat(300); 300].join(",");
        headers.append(NODES, long.parse().unwrap());
        for (room, more) in [(NODES_SHOWN.0, 297), (NODES_SHOWN.1, 300)] {
            let named = named(&headers, room);
            assert!(
                named.len() < room + 8 && named.ends_with(&format!("+{more}")),
                "{named}"
            );
        }
    }
}
