//! A forwarded call: its metadata, and the description of its caller.

use corten_api::metadata::{self, LARGEST_CHAIN, LARGEST_OWN};
use corten_api::roles::Role;
use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use tonic::Status;

use crate::answerer::Answerer;
use crate::caller::{self, Caller};
use crate::local;
use crate::reply::Body;

/// A call as its answerer gets it.
#[derive(Debug, Clone)]
pub(crate) struct Forward {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    /// The caller's name for this node. Tells the next node through which node the call comes.
    from: HeaderValue,
    /// The caller as its audit line describes it, for machined; only for an audited call.
    who: Option<HeaderValue>,
    /// Certificates of the node that forwarded the call to this one, for machined.
    by: Vec<HeaderValue>,
}

impl Forward {
    /// The call as received. `who` describes the caller as its audit line does, if it has one.
    pub(crate) fn of(
        head: &Parts,
        roles: &[Role],
        caller: &Caller,
        who: Option<&str>,
    ) -> Result<Forward, Status> {
        let authority = head.uri.authority().map(http::uri::Authority::as_str);
        let reached = caller.reached.to_string();
        let from = HeaderValue::from_str(authority.unwrap_or(&reached));
        Ok(Forward {
            path: head.uri.path().to_owned(),
            who: who.and_then(|who| HeaderValue::from_str(who).ok()),
            by: match caller.roles.contains(&Role::Impersonator) {
                true => caller.shown.clone(),
                false => Vec::new(),
            },
            headers: forwarded(&head.headers, roles, caller)?,
            from: from.unwrap_or_else(|_| HeaderValue::from_static("apid")),
        })
    }

    pub(crate) fn request(&self, answerer: &Answerer, body: Body) -> Result<Request<Body>, Status> {
        let (scheme, authority) = match answerer {
            Answerer::Here => ("http", "machined".to_owned()),
            Answerer::Node(node, _) => ("https", authority(node)),
        };
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(authority)
            .path_and_query(self.path.as_str())
            .build()
            .map_err(|_| {
                Status::invalid_argument("the method's path or the node's name is invalid")
            })?;
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        let (name, value) = match answerer {
            Answerer::Node(..) => (metadata::PROXY_FROM, Some(&self.from)),
            Answerer::Here => (metadata::CALLER, self.who.as_ref()),
        };
        if matches!(answerer, Answerer::Here) {
            for value in &self.by {
                let name = HeaderName::from_static(metadata::FORWARDER);
                request.headers_mut().append(name, value.clone());
            }
        }
        if let Some(value) = value {
            let name = HeaderName::from_static(name);
            request.headers_mut().insert(name, value.clone());
        }
        Ok(request)
    }
}

/// A node as the authority of a URI (RFC 3986, 3.2.2).
fn authority(node: &str) -> String {
    let bare = local::bare(node);
    if bare.contains(':') {
        format!("[{bare}]:{}", corten_api::PORT)
    } else {
        format!("{bare}:{}", corten_api::PORT)
    }
}

/// Headers that apid consumes or sets itself.
const OWN: [&str; 8] = [
    metadata::ROLE,
    metadata::FORWARDER,
    metadata::CALLER,
    metadata::NODE,
    metadata::NODES,
    metadata::PROXY_FROM,
    "host",
    "content-length",
];

/// The caller's headers with apid's own statement of roles and certificates instead of the caller's. A forwarding node
/// brings the original caller's certificates.
fn forwarded(all: &HeaderMap, roles: &[Role], caller: &Caller) -> Result<HeaderMap, Status> {
    let speaks_for_others = caller.roles.contains(&Role::Impersonator);
    let is_ours = |name: &HeaderName| {
        OWN.contains(&name.as_str())
            || (name.as_str() == metadata::CERTIFICATE && !speaks_for_others)
    };
    let too_much = || {
        Status::resource_exhausted(format!(
            "metadata exceeds {} KiB, not counting the nodes: remove headers",
            LARGEST_OWN / 1024
        ))
    };
    let mut headers = HeaderMap::new();
    let mut length = 0;
    let mut shown = 0;
    for (name, value) in all.iter().filter(|(name, _)| !is_ours(name)) {
        // Sizes count as in HTTP/2 (RFC 9113, section 10.5.1).
        if name.as_str() == metadata::CERTIFICATE {
            shown += caller::size(value);
        } else {
            length += name.as_str().len() + value.len() + 32;
        }
        if length > LARGEST_OWN || shown > LARGEST_CHAIN {
            return Err(too_much());
        }
        // A clone would share the memory of all headers of the request, and so keep all of it alive.
        let copy = HeaderName::from_bytes(name.as_str().as_bytes())
            .ok()
            .zip(HeaderValue::from_bytes(value.as_bytes()).ok());
        let (name, mut copy) = copy.ok_or_else(too_much)?;
        copy.set_sensitive(value.is_sensitive());
        headers.try_append(name, copy).map_err(|_| too_much())?;
    }
    if !speaks_for_others {
        // These clones share the memory of the connection.
        for value in &caller.shown {
            let name = HeaderName::from_static(metadata::CERTIFICATE);
            headers
                .try_append(name, value.clone())
                .map_err(|_| too_much())?;
        }
    }
    let name = HeaderName::from_static(metadata::ROLE);
    for role in roles {
        let value = HeaderValue::from_static(role.name());
        headers
            .try_append(name.clone(), value)
            .map_err(|_| too_much())?;
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use bytes::Bytes;
    use http_body_util::BodyExt as _;
    use tonic::metadata::MetadataMap;

    use super::*;
    use crate::identity::Identity;
    use crate::tests::support::{Cluster, write_identity};

    #[test]
    fn node_names_are_valid_uri_hosts() {
        for (node, uri) in [
            ("node1", "node1:50000"),
            ("10.0.0.5", "10.0.0.5:50000"),
            ("fd00::5", "[fd00::5]:50000"),
            ("[fe80::1%eth0]", "[fe80::1]:50000"),
        ] {
            assert_eq!(authority(node), uri);
            uri.parse::<http::uri::Authority>().unwrap();
        }
    }

    #[test]
    fn forwarded_headers_do_not_retain_the_original_buffer() {
        let block = Bytes::from(vec![b'x'; 100 << 10]);
        let mut headers = HeaderMap::new();
        let value = HeaderValue::from_maybe_shared(block.slice(..4)).unwrap();
        headers.append("x-small", value);
        headers.append("host", HeaderValue::from_static("node"));
        let caller = caller(&["os:reader"]);
        let kept = forwarded(&headers, &[Role::Reader], &caller).unwrap();
        drop(headers);
        assert!(block.is_unique());
        assert_eq!(kept["x-small"], "xxxx");
        assert_eq!(kept["talos-role"], "os:reader");
        assert_eq!(kept[metadata::CERTIFICATE], caller.shown[0]);
        assert_eq!(kept.len(), 3);
    }

    /// A caller whose certificate has these roles.
    fn caller(roles: &[&str]) -> Caller {
        let cluster = Cluster::new();
        let directory = tempfile::tempdir().unwrap();
        write_identity(directory.path(), &cluster.ca, "node", true);
        let identity = Identity::load(directory.path().into(), false).unwrap();
        let own = cluster.certificate(roles);
        let chain = corten_pki::certificates_from_pem(own.crt.as_bytes()).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 1));
        Caller::new(Some(&chain), identity.current(), here, here.ip()).unwrap()
    }

    #[test]
    fn certificate_in_the_metadata_is_used_only_from_impersonators() {
        let mut headers = HeaderMap::new();
        let anothers = HeaderValue::from_static("YW5vdGhlcidz");
        headers.append(metadata::CERTIFICATE, anothers.clone());
        let values = |kept: &HeaderMap| {
            let kept = kept.get_all(metadata::CERTIFICATE).iter().cloned();
            kept.collect::<Vec<_>>()
        };
        for roles in [&["os:admin"][..], &["os:reader", "os:operator"], &[]] {
            let caller = caller(roles);
            let kept = forwarded(&headers, &caller.roles, &caller).unwrap();
            assert_eq!(values(&kept), caller.shown);
            // gRPC's decoder reads back the certificate.
            let read = MetadataMap::from_headers(kept);
            let der = read.get_bin(metadata::CERTIFICATE).unwrap().to_bytes();
            let names = corten_pki::organizations(&der.unwrap()).unwrap();
            assert_eq!(names, roles);
        }
        let speaker = caller(&["os:impersonator"]);
        let kept = forwarded(&headers, &[Role::Reader], &speaker).unwrap();
        assert_eq!(values(&kept), [anothers]);
        // A forwarding node without a caller's certificate speaks for no caller.
        let none = forwarded(&HeaderMap::new(), &[Role::Reader], &speaker).unwrap();
        assert!(values(&none).is_empty());
        let long = HeaderValue::from_bytes(&[b'A'; LARGEST_CHAIN + 1]).unwrap();
        headers.append(metadata::CERTIFICATE, long);
        forwarded(&headers, &[Role::Reader], &speaker).unwrap_err();
    }

    #[test]
    fn forwarder_metadata_is_set_by_apid_and_cannot_be_forged() {
        let mut head = Request::new(()).into_parts().0;
        let forged = HeaderValue::from_static("Zm9yZ2Vk");
        head.headers.append(metadata::FORWARDER, forged);
        head.headers
            .append(metadata::CERTIFICATE, HeaderValue::from_static("Y2FsbGVy"));
        let told = |roles: &[&str], answerer: &Answerer| {
            let caller = caller(roles);
            let forward = Forward::of(&head, &[Role::Reader], &caller, None).unwrap();
            let body = http_body_util::Empty::new().map_err(|never| match never {});
            let request = forward.request(answerer, body.boxed_unsync()).unwrap();
            let told = request
                .headers()
                .get_all(metadata::FORWARDER)
                .iter()
                .cloned();
            (told.collect::<Vec<_>>(), caller.shown)
        };
        let (told_of_node, shown) = told(&["os:impersonator"], &Answerer::Here);
        assert_eq!(told_of_node, shown);
        assert_eq!(told_of_node.len(), 1);
        assert!(told(&["os:admin"], &Answerer::Here).0.is_empty());
    }
}
