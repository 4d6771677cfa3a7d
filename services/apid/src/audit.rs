//! The audit log: a line for every call that a reader could not make, also for those refused.
//!
//! `audit: method=/machine.MachineService/Reboot roles=os:admin serial=0a1b from=10.0.0.9:4711 via=-
//! nodes=10.0.0.5,10.0.0.6 result=Ok failed=1/2`. What a caller sent beside its metadata is never in it.

use std::fmt;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corten_api::metadata::{NODE, NODES, PROXY_FROM};
use corten_api::roles::{Role, needs_more_than_reader};
use http::HeaderMap;
use tonic::Status;

use crate::caller::Caller;

/// Of a list of nodes, so many are named.
const NODES_SHOWN: usize = 64;
/// Of a text from the caller, so many bytes are shown.
const TEXT_SHOWN: usize = 253;

/// Where the lines go.
#[derive(Clone)]
pub(crate) struct Audit(Arc<dyn Fn(&str) + Send + Sync>);

impl fmt::Debug for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Audit").finish_non_exhaustive()
    }
}

impl Audit {
    pub(crate) fn to(say: impl Fn(&str) + Send + Sync + 'static) -> Audit {
        Audit(Arc::new(say))
    }

    /// To apid's log.
    pub(crate) fn log() -> Audit {
        Audit::to(|line| {
            let _ = writeln!(std::io::stdout(), "apid: {line}");
        })
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
        let roles = list(roles.iter().map(|role| role.name()));
        let nodes = headers.get_all(NODES).iter().chain(headers.get_all(NODE));
        let nodes: Vec<String> = nodes.map(|value| shown(value.as_bytes())).collect();
        let named = list(nodes.iter().take(NODES_SHOWN).map(String::as_str));
        let more = match nodes.len().saturating_sub(NODES_SHOWN) {
            0 => String::new(),
            more => format!("+{more}"),
        };
        let via = headers
            .get(PROXY_FROM)
            .map_or_else(|| "-".to_owned(), |value| shown(value.as_bytes()));
        Some(Line {
            audit: self.clone(),
            text: format!(
                "audit: method={} roles={roles} serial={} from={} via={via} nodes={named}{more}",
                shown(path.as_bytes()),
                caller.serial,
                caller.from,
            ),
            result: None,
            nodes: Nodes::default(),
        })
    }
}

fn list<'a>(items: impl Iterator<Item = &'a str>) -> String {
    let items: Vec<_> = items.collect();
    if items.is_empty() {
        "-".to_owned()
    } else {
        items.join(",")
    }
}

/// A caller's text as one word.
fn shown(text: &[u8]) -> String {
    let plain = |byte: &u8| match byte {
        b'!'..=b'~' if *byte != b'=' => char::from(*byte),
        _ => '?',
    };
    text.iter().take(TEXT_SHOWN).map(plain).collect()
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
    text: String,
    result: Option<tonic::Code>,
    pub(crate) nodes: Nodes,
}

impl Line {
    /// How the call ended. Without this, its caller went away before.
    pub(crate) fn ended(&mut self, status: &Status) {
        self.result = Some(status.code());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let result = self.result.unwrap_or(tonic::Code::Cancelled);
        let asked = self.nodes.0.0.load(Ordering::Relaxed);
        let failed = self.nodes.0.1.load(Ordering::Relaxed);
        let line = if asked == 0 {
            format!("{} result={result:?}", self.text)
        } else {
            format!("{} result={result:?} failed={failed}/{asked}", self.text)
        };
        self.audit.0(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_text_stays_one_word() {
        assert_eq!(shown(b"a b\nresult=OK\xff"), "a?b?result?OK?");
        assert_eq!(shown(&[b'x'; 1000]).len(), TEXT_SHOWN);
    }
}
