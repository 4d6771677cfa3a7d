//! Identifies the caller behind apid: the roles are those of the caller's certificate, which machined verifies itself.
//!
//! apid also sends the roles in `talos-role`, which can only remove some. So an attacker who controls apid can pose as
//! callers whose certificates apid has seen, but cannot invent a caller.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use corten_api::metadata::{CERTIFICATE, FORWARDER, LARGEST_CHAIN};
use corten_api::roles::Role;
use corten_config::Document;
use corten_config::kinds::Forwarding;
use corten_pki::{
    certificate_from_der, certificates_from_pem, is_control_planes, serial, validity, verify_client,
};
use corten_resources::Store;
use corten_types::secrets::{ApiCertificates, Pem, joined};
use http::{HeaderMap, HeaderValue};
use tonic::Extensions;

use super::forwarded;

/// Limit of cached verifications.
const KEPT: usize = 256;
/// Lifetime of a cached verification: the clock may be set, and the CA may expire.
const GOOD_FOR: Duration = Duration::from_secs(30);

/// Error for a forwarding node without the control plane mark.
const UNMARKED: &str = "the forwarding node shows no certificate of a Corten control plane node; update it or, if it \
    is a node of the reference, give this node a ForwardingConfig with referenceNodes: accept";

/// The caller of a call, passed to its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    pub(super) roles: Vec<Role>,
    /// Serial number of the caller's certificate. `None` for a caller on the node itself, or while the node asks for no
    /// certificate.
    pub(super) serial: Option<String>,
}

impl Caller {
    /// Whether the caller has `os:admin`.
    pub(super) fn is_admin(extensions: &Extensions) -> bool {
        let caller = extensions.get::<Caller>();
        caller.is_some_and(|caller| caller.roles.contains(&Role::Admin))
    }

    /// Serial number of the caller's certificate.
    pub(super) fn serial(extensions: &Extensions) -> Option<String> {
        extensions.get::<Caller>()?.serial.clone()
    }
}

/// Cache of verified certificates.
#[derive(Default)]
pub(super) struct Callers(Mutex<Verified>);

#[derive(Default)]
struct Verified {
    by: Vec<Pem>,
    /// By the encoded chain.
    of: HashMap<Vec<u8>, Known>,
}

#[derive(Clone)]
struct Known {
    caller: Caller,
    /// Whether the certificate has the control plane mark.
    is_marked: bool,
    until: SystemTime,
    at: Instant,
}

impl Callers {
    /// The caller whose certificate is in the metadata; a reader while the node asks for no certificates. A forwarded
    /// call must come from a control plane node.
    ///
    /// # Errors
    /// The reason of the refusal.
    pub(super) fn caller(
        &self,
        store: &Store,
        headers: &HeaderMap,
        config: impl FnOnce() -> Option<Document>,
    ) -> Result<Caller, String> {
        let accepted = store.get_as::<ApiCertificates>(ApiCertificates::ID);
        let accepted = accepted.ok_or("the node has no CA yet")?;
        if accepted.skip_verifying_client_cert {
            return Ok(Caller {
                roles: vec![Role::Reader],
                serial: None,
            });
        }
        if headers.contains_key(FORWARDER) {
            let by = self.known(&accepted, headers, FORWARDER)?;
            if !by.caller.roles.contains(&Role::Impersonator) {
                return Err("the forwarder of the call is not a node".to_owned());
            }
            if !by.is_marked {
                let config = forwarded::config(config().as_ref());
                if config.reference_nodes == Forwarding::Refuse {
                    return Err(UNMARKED.to_owned());
                }
                if !headers.contains_key(CERTIFICATE) {
                    // Accepted risk of this setting: the node claims the roles without proof.
                    let mut roles = Role::ALL.to_vec();
                    roles.retain(|role| *role != Role::Impersonator);
                    let serial = by.caller.serial;
                    return Ok(Caller { roles, serial });
                }
            }
        }
        let known = self.known(&accepted, headers, CERTIFICATE)?;
        Ok(known.caller)
    }

    /// The verified certificate in the metadata key `name`.
    fn known(
        &self,
        accepted: &ApiCertificates,
        headers: &HeaderMap,
        name: &str,
    ) -> Result<Known, String> {
        let shown = headers.get_all(name).iter();
        let shown: Vec<&[u8]> = shown.map(HeaderValue::as_bytes).collect();
        if shown.is_empty() {
            return Err("the call came without the caller's certificate".to_owned());
        }
        if shown.iter().map(|one| one.len()).sum::<usize>() > LARGEST_CHAIN {
            return Err(format!(
                "the caller's certificates are more than {LARGEST_CHAIN} bytes"
            ));
        }
        let key = shown.join(&b","[..]);
        let (now, at) = (SystemTime::now(), Instant::now());
        let mut verified = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.by != accepted.accepted_cas {
            verified.by.clone_from(&accepted.accepted_cas);
            verified.of.clear();
        }
        if let Some(known) = verified.of.get(&key)
            && now <= known.until
            && at.saturating_duration_since(known.at) < GOOD_FOR
        {
            return Ok(known.clone());
        }
        let known = verify(&shown, &verified.by, now, at)?;
        // With more callers than the limit, some are verified again.
        if verified.of.len() >= KEPT {
            verified.of.clear();
        }
        verified.of.insert(key, known.clone());
        Ok(known)
    }
}

fn verify(shown: &[&[u8]], by: &[Pem], now: SystemTime, at: Instant) -> Result<Known, String> {
    let chain = shown.iter().map(|text| STANDARD_NO_PAD.decode(text));
    let chain: Result<Vec<_>, _> = chain.map(|der| der.map(certificate_from_der)).collect();
    let chain =
        chain.map_err(|error| format!("the caller's certificate is not valid base64: {error}"))?;
    let why = |error: corten_pki::PkiError| {
        format!(
            "the caller's certificate: {}",
            corten_resources::controller::with_causes(&error)
        )
    };
    let cas = certificates_from_pem(joined(by).as_bytes()).map_err(why)?;
    let names = verify_client(&chain, &cas, now).map_err(why)?;
    let leaf = chain
        .first()
        .ok_or("the call came without the caller's certificate")?;
    let (_, until) = validity(leaf).map_err(why)?;
    let caller = Caller {
        roles: names.iter().filter_map(|name| Role::parse(name)).collect(),
        serial: Some(serial(leaf).map_err(why)?),
    };
    Ok(Known {
        caller,
        is_marked: is_control_planes(leaf).map_err(why)?,
        until,
        at,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use corten_pki::{Algorithm, Ca, CertificateAndKey, NODE_LIFETIME};
    use corten_resources::Draft;
    use corten_types::secrets::PemPair;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    pub(crate) fn new_ca() -> Ca {
        Ca::generate(
            Algorithm::Ed25519,
            "talos",
            "",
            SystemTime::now() - 100 * HOUR,
        )
        .unwrap()
    }

    /// Makes the node accept certificates of these CAs; with none, any caller.
    pub(crate) fn accepting(store: &Store, cas: &[&Ca]) {
        let pem = |ca: &&Ca| Pem {
            crt: ca.pem().crt.clone(),
        };
        let nobodys = CertificateAndKey {
            crt: String::new(),
            key: String::new(),
        };
        let certificates = ApiCertificates {
            client: None,
            server: PemPair::from(&nobodys),
            accepted_cas: cas.iter().map(pem).collect(),
            skip_verifying_client_cert: cas.is_empty(),
        };
        let _known = store.register::<ApiCertificates>();
        let draft = Draft::new(ApiCertificates::ID, certificates);
        store.put(draft, "").unwrap();
    }

    /// The metadata that apid adds for a caller with this certificate.
    pub(crate) fn shown(certificate: &CertificateAndKey) -> HeaderMap {
        let chain = certificates_from_pem(certificate.crt.as_bytes()).unwrap();
        let mut headers = HeaderMap::new();
        for der in chain {
            let value = HeaderValue::try_from(STANDARD_NO_PAD.encode(der)).unwrap();
            headers.append(CERTIFICATE, value);
        }
        headers
    }

    fn client(ca: &Ca, roles: &[&str]) -> HeaderMap {
        shown(&ca.client(roles, SystemTime::now(), HOUR).unwrap())
    }

    #[test]
    fn roles_come_from_a_certificate_of_an_accepted_ca() {
        let (ca, other) = (new_ca(), new_ca());
        let store = Store::new();
        let callers = Callers::default();
        let roles = |headers: &HeaderMap| {
            callers
                .caller(&store, headers, || None)
                .map(|caller| caller.roles)
        };
        let admin = client(&ca, &["os:admin"]);
        roles(&admin).unwrap_err();
        accepting(&store, &[&ca]);
        assert_eq!(roles(&admin).unwrap(), [Role::Admin]);
        assert_eq!(roles(&admin).unwrap(), [Role::Admin]);
        let two = client(&ca, &["os:reader", "os:etcd:backup"]);
        assert_eq!(roles(&two).unwrap(), [Role::Reader, Role::EtcdBackup]);
        assert_eq!(roles(&client(&ca, &["os:root"])).unwrap(), []);
        // After the CA is withdrawn, the cached verification is invalid.
        accepting(&store, &[&other]);
        roles(&admin).unwrap_err();
        accepting(&store, &[&other, &ca]);
        assert_eq!(roles(&admin).unwrap(), [Role::Admin]);
    }

    #[test]
    fn hostile_certificates_give_no_role() {
        let (ca, other) = (new_ca(), new_ca());
        let store = Store::new();
        accepting(&store, &[&ca]);
        let now = SystemTime::now();
        let names = ["node".to_owned()];
        let server = ca.server("node", &names, now, NODE_LIFETIME).unwrap();
        let expired = ca.client(&["os:admin"], now - 10 * HOUR, HOUR).unwrap();
        let own = CertificateAndKey {
            crt: ca.pem().crt.clone(),
            key: String::new(),
        };
        let value = |text: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.append(CERTIFICATE, HeaderValue::from_bytes(text).unwrap());
            headers
        };
        let mut long = client(&ca, &["os:admin"]);
        for _ in 0..LARGEST_CHAIN / 256 {
            let one = long[CERTIFICATE].clone();
            long.append(CERTIFICATE, one);
        }
        let callers = Callers::default();
        for (headers, word) in [
            (HeaderMap::new(), "without"),
            (client(&other, &["os:admin"]), "certificate: "),
            (shown(&server), "certificate: "),
            (shown(&expired), "certificate: "),
            (shown(&own), "certificate: "),
            (value(b""), "certificate: "),
            (value(b"AAAA"), "certificate: "),
            (value(b"*"), "not valid base64"),
            (value(&[0xff; 9]), "not valid base64"),
            (value(&[b'A'; LARGEST_CHAIN + 1]), "more than"),
            (long, "more than"),
        ] {
            let why = callers.caller(&store, &headers, || None).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        assert!(callers.0.lock().unwrap().of.is_empty());
    }

    #[test]
    fn caller_cache_is_bounded() {
        let ca = new_ca();
        let store = Store::new();
        accepting(&store, &[&ca]);
        let callers = Callers::default();
        for _ in 0..KEPT + 10 {
            callers
                .caller(&store, &client(&ca, &["os:reader"]), || None)
                .unwrap();
        }
        let kept = callers.0.lock().unwrap().of.len();
        assert!((1..=KEPT).contains(&kept), "{kept}");
    }

    #[test]
    fn a_node_without_a_config_has_readers_only() {
        let store = Store::new();
        accepting(&store, &[]);
        let caller = Callers::default().caller(&store, &HeaderMap::new(), || None);
        let reader = Caller {
            roles: vec![Role::Reader],
            serial: None,
        };
        assert_eq!(caller.unwrap(), reader);
    }

    fn forwarded(by: &CertificateAndKey, mut headers: HeaderMap) -> HeaderMap {
        for value in shown(by).get_all(CERTIFICATE) {
            headers.append(FORWARDER, value.clone());
        }
        headers
    }

    fn config(forwarding: &str) -> Option<Document> {
        let text = format!(
            "{}---\napiVersion: v1alpha1\nkind: ForwardingConfig\n{forwarding}\n",
            crate::tests::config_text()
        );
        Some(Document::parse(text.as_bytes()).unwrap_or_else(|problems| panic!("{problems}")))
    }

    #[test]
    fn only_control_plane_nodes_may_forward_calls() {
        let (ca, other) = (new_ca(), new_ca());
        let store = Store::new();
        accepting(&store, &[&ca]);
        let callers = Callers::default();
        let now = SystemTime::now();
        let node = |ca: &Ca| {
            ca.control_plane_client("os:impersonator", now, HOUR)
                .unwrap()
        };
        let unmarked = ca.client(&["os:impersonator"], now, HOUR).unwrap();
        let admin = ca.client(&["os:admin"], now, HOUR).unwrap();
        let call = client(&ca, &["os:admin"]);
        let roles = |headers: &HeaderMap, document: Option<Document>| {
            let caller = callers.caller(&store, headers, || document);
            caller.map(|caller| caller.roles)
        };
        let by_node = forwarded(&node(&ca), call.clone());
        assert_eq!(roles(&by_node, None).unwrap(), [Role::Admin]);
        // A forwarded call needs its caller's certificate.
        let alone = forwarded(&node(&ca), HeaderMap::new());
        let open = || config("referenceNodes: accept");
        roles(&alone, None).unwrap_err();
        roles(&alone, open()).unwrap_err();
        for hostile in [&admin, &node(&other)] {
            roles(&forwarded(hostile, call.clone()), open()).unwrap_err();
        }
        let by_reference = forwarded(&unmarked, HeaderMap::new());
        for document in [None, config("secrets: accept")] {
            let why = roles(&by_reference, document.clone()).unwrap_err();
            assert!(why.contains("referenceNodes: accept"), "{why}");
            roles(&forwarded(&unmarked, call.clone()), document).unwrap_err();
        }
        let said = roles(&by_reference, open()).unwrap();
        assert!(said.contains(&Role::Admin) && !said.contains(&Role::Impersonator));
    }
}
