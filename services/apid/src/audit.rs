//! apid's part of the audit: a line for every call that a reader could not make, also for those refused.
//!
//! `audit: method=/machine.MachineService/Reboot roles=os:admin serial=0a1b from=10.0.0.9:4711 via=-
//! nodes=10.0.0.5,10.0.0.6 result=Ok failed=1/2`. A call that another node hands on has the serial number of whose it
//! is, too: `for=1c2d`. What a caller sent beside its metadata is never in it. Calls that were refused, and so changed
//! nothing, share lines when they repeat: `repeated=17` (`refusals.rs`); those that came through one node share theirs.
//!
//! They are in apid's own log. What was done on a node is in the log `audit` of its machined, which believes no line of
//! apid's.

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

/// Of a list of nodes, as many are named as have room in so many bytes: of a call that was made, and of one that was
/// refused.
const NODES_SHOWN: (usize, usize) = (1024, 64);
/// Of a node's name, so many bytes are shown (RFC 1035, section 2.3.4); of any other text from a caller, fewer.
const NAME_SHOWN: usize = 253;
const TEXT_SHOWN: usize = 64;
/// And of a method's path; those of the table have 60.
const PATH_SHOWN: usize = 96;

/// Where the lines go.
#[derive(Clone)]
pub(crate) struct Audit(Arc<Log>);

struct Log {
    say: Box<dyn Fn(&str) + Send + Sync>,
    refusals: Mutex<Refusals>,
}

impl Log {
    /// Says the lines that `of` gives of what was refused.
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

    /// To apid's log.
    pub(crate) fn log() -> Audit {
        Audit::to(|line| {
            let _ = writeln!(std::io::stdout(), "apid: {line}");
        })
    }

    /// Says how often calls were refused again, where it is time to.
    pub(crate) fn tell_repeated(&self, now: Instant) {
        self.0.say_of_refused(|refusals| refusals.due(now));
    }

    /// Begins the line of a call, if it is to have one. It is written when the call is over.
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
        // Names that nobody knows are many: they count as one.
        let counted = if is_listed(path) { path } else { "" };
        Some(Line {
            audit: self.clone(),
            // Not by whose it is: nobody has verified that yet, and there would be a line for each that is made up.
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

/// The serial number of whom a caller speaks for, by the certificate that he says is the other's: machined verifies it
/// before anything is done.
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

/// The nodes a call names, as far as they have room; of the others, how many there are.
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

/// Who calls: `roles=... serial=... from=... via=...`, and whose call it is when that is another's: `for=...`.
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

/// A caller's text as one word of at most so many bytes.
fn shown(text: &[u8], most: usize) -> String {
    let plain = |byte: &u8| match byte {
        b'!'..=b'~' if *byte != b'=' => char::from(*byte),
        _ => '?',
    };
    text.iter().take(most).map(plain).collect()
}

/// How many nodes were asked in one call, and how many of them failed.
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

/// A line not yet written.
#[derive(Debug)]
pub(crate) struct Line {
    audit: Audit,
    key: Key,
    method: String,
    who: String,
    /// The nodes the call names, in the words for one that was made, and for one that was refused.
    named: String,
    named_if_refused: String,
    handed_on: bool,
    result: Option<Code>,
    pub(crate) nodes: Nodes,
}

impl Line {
    /// Who calls, in the words of the line.
    pub(crate) fn who(&self) -> &str {
        &self.who
    }

    /// How the call ended. Without this, its caller went away before.
    pub(crate) fn ended(&mut self, status: &Status) {
        self.result = Some(status.code());
    }

    /// From now on somebody else may have done what was asked for.
    pub(crate) fn is_handed_on(&mut self) {
        self.handed_on = true;
    }

    /// Whether the call was refused as a whole, so that nothing can have changed by it. In maintenance a
    /// stranger's call that fails counts as refused: he needs no certificate to make thousands.
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
