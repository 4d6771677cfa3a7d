//! Routing of a call: the metadata `node`, `nodes`, `proxyfrom`.

use std::net::Ipv6Addr;

use corten_api::metadata::{NODE, NODES, PROXY_FROM};
use http::HeaderMap;
use tonic::Status;

use crate::local;
use crate::replies::{self, Reply};

/// Limit of targets in one call.
const MOST: usize = 1024;

/// The nodes of a call.
#[derive(Debug)]
pub(crate) enum Targets {
    /// This node; its answer is passed on unchanged.
    Here,
    /// One node; its answer is passed on unchanged.
    One(String),
    /// Several nodes, or one whose answer is labelled; with the method's kind of answer.
    Many(Vec<String>, Reply),
}

/// Reads the routing metadata of a call to `path`, in the order of the contract.
pub(crate) fn of(headers: &HeaderMap, path: &str, maintenance: bool) -> Result<Targets, Status> {
    if maintenance || headers.contains_key(PROXY_FROM) {
        return Ok(Targets::Here);
    }
    let nodes = values(headers, NODES)?;
    if !nodes.is_empty() {
        let reply = replies::of(path).ok_or_else(|| {
            Status::invalid_argument(format!("{path} cannot be called on several nodes at once"))
        })?;
        if nodes.len() > MOST {
            return Err(Status::invalid_argument(format!(
                "nodes: {} given, at most {MOST} a call: split the call",
                nodes.len()
            )));
        }
        return Ok(Targets::Many(nodes, reply));
    }
    let mut node = values(headers, NODE)?;
    match (node.pop(), node.is_empty()) {
        (None, _) => Ok(Targets::Here),
        (Some(one), true) => Ok(Targets::One(one)),
        (Some(_), false) => Err(Status::invalid_argument(
            "node metadata must be a single value",
        )),
    }
}

fn values(headers: &HeaderMap, key: &str) -> Result<Vec<String>, Status> {
    let mut found = Vec::new();
    for value in headers.get_all(key) {
        let text = value.to_str().map_err(|_| invalid(key))?;
        // One header may hold several values (RFC 9110, 5.3).
        for part in text.split(',').map(str::trim) {
            if !is_host(part) {
                return Err(invalid(key));
            }
            found.push(part.to_owned());
        }
    }
    Ok(found)
}

/// A host name, or an IP address, possibly with brackets and a zone; never a port.
fn is_host(text: &str) -> bool {
    if text.contains([':', '[', ']', '%']) {
        return local::bare(text).parse::<Ipv6Addr>().is_ok();
    }
    let usual = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !text.is_empty() && text.len() <= 253 && text.chars().all(usual)
}

fn invalid(key: &str) -> Status {
    Status::invalid_argument(format!(
        "{key} metadata must be host names or IP addresses, without a port"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const MEMORY: &str = "/machine.MachineService/Memory";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (key, value) in pairs {
            map.append(*key, HeaderValue::from_static(value));
        }
        map
    }

    #[test]
    fn routing_metadata_follows_the_precedence_of_the_contract() {
        let both = headers(&[("nodes", "a"), ("nodes", "b,c"), ("node", "x")]);
        let found = of(&both, MEMORY, false).unwrap();
        assert!(
            matches!(&found, Targets::Many(nodes, Reply::One(_)) if nodes == &["a", "b", "c"]),
            "{found:?}"
        );
        let from = headers(&[("nodes", "a"), ("proxyfrom", "b")]);
        let none = headers(&[]);
        for (headers, maintenance) in [(&both, true), (&from, false), (&none, false)] {
            let found = of(headers, MEMORY, maintenance).unwrap();
            assert!(matches!(found, Targets::Here), "{found:?}");
        }
        let found = of(&headers(&[("node", "x")]), MEMORY, false).unwrap();
        assert!(
            matches!(&found, Targets::One(node) if node == "x"),
            "{found:?}"
        );
    }

    #[test]
    fn malformed_targets_are_refused() {
        for bad in [
            headers(&[("node", "a"), ("node", "b")]),
            headers(&[("node", "")]),
            headers(&[("node", "a b")]),
            headers(&[("nodes", "https://x")]),
            headers(&[("nodes", "a:50000")]),
            headers(&[("nodes", "10.0.0.1:50000")]),
            headers(&[("nodes", "[fd00::1]:50000")]),
            headers(&[("nodes", "a,,b")]),
            headers(&[("nodes", "[a]")]),
            headers(&[("nodes", "fe80::1%eth0%")]),
        ] {
            let status = of(&bad, MEMORY, false).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument);
        }
        for good in [
            "node_1.example",
            "10.0.0.1",
            "fd00::1",
            "[fd00::1]",
            "fe80::1%eth0.1",
        ] {
            assert!(is_host(good), "{good}");
        }
        let image = "/machine.ImageService/List";
        of(&headers(&[("nodes", "a")]), image, false).unwrap_err();
        of(&headers(&[("node", "a")]), image, false).unwrap();
    }
}
