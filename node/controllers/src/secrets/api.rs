//! Keeps apid's certificates: signed locally on a control plane node, by a trustd for a worker, self-signed in
//! maintenance.

use std::time::{Duration, SystemTime};

use corten_base::console;
use corten_credentials::certificates::Held;
use corten_credentials::join::{Asked, Joined};
use corten_meta::Values;
use corten_persistence::meta;
use corten_pki::{Ca, CertificateAndKey, NODE_LIFETIME};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::supervisor::Conditions;
use corten_supervisor::{ApiMode, Condition};
use corten_types::clock::TimeStatus;
use corten_types::secrets::{
    ApiCertificates, CertSans, CertificateStatus, Endpoint, OsRoot, Pem, PemPair,
};
use corten_types::stage::Stage;
use tokio::sync::watch;

use super::{LOOK, Outside};

/// Role of a node that acts on behalf of its caller.
const IMPERSONATOR: &str = "os:impersonator";
/// First and longest delay between attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// Keeps apid's certificates.
#[derive(Debug, Clone)]
pub(crate) struct Api<O> {
    pub(crate) stage: watch::Receiver<Stage>,
    pub(crate) meta: watch::Receiver<Values>,
    pub(crate) conditions: Conditions,
    pub(crate) outside: O,
}

/// Inputs of the certificates; a change makes new ones.
#[derive(Debug, Clone, PartialEq)]
enum Wanted {
    /// No config: a self-signed certificate for the rest of the boot.
    Maintenance,
    /// The config is unavailable: a self-signed certificate, for the owner whose CAs META contains.
    Locked { owner: String },
    /// A certificate by the config's CA.
    Secure { root: Box<OsRoot>, sans: CertSans },
}

impl Wanted {
    /// Whether the certificate is self-signed, so that it is made once per boot.
    fn signs_itself(&self) -> bool {
        matches!(self, Wanted::Maintenance | Wanted::Locked { .. })
    }

    /// CAs of the owner from META.
    fn owners(&self) -> Vec<Pem> {
        match self {
            Wanted::Locked { owner } => vec![Pem { crt: owner.clone() }],
            Wanted::Maintenance | Wanted::Secure { .. } => Vec::new(),
        }
    }
}

impl<O: Outside> Controller for Api<O> {
    fn name(&self) -> &'static str {
        "secrets.APIController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<OsRoot>(Dependency::Weak).with_id(OsRoot::ID),
            Input::of::<CertSans>(Dependency::Weak).with_id(CertSans::ID),
            Input::of::<Endpoint>(Dependency::Weak),
            // After a clock change the certificate may be outside its validity.
            Input::of::<TimeStatus>(Dependency::Weak).with_id(TimeStatus::ID),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<ApiCertificates>(),
            Output::shared::<CertificateStatus>(),
        ]
    }

    async fn run(mut self, context: &mut Context) -> Result<(), Failure> {
        let mut held: Option<Held<Wanted>> = None;
        let mut failed: Option<Failed> = None;
        let mut status = CertificateStatus::default();
        context.event().await;
        loop {
            let mut next = LOOK;
            if let Some(wanted) = self.wanted(context)? {
                let now = self.outside.now();
                let failure = failed.as_ref().filter(|failed| failed.wanted == wanted);
                let time = match failure {
                    Some(failed) => failed.pause(now),
                    None => held.as_ref().and_then(|held| held.left(&wanted, now)),
                };
                let stays =
                    wanted.signs_itself() && held.as_ref().is_some_and(|held| held.is_for(&wanted));
                if let Some(time) = time {
                    next = next.min(time);
                } else if !stays {
                    next = Duration::ZERO;
                    let (error, longest) = match self.certify(context, &wanted).await {
                        Ok(new) => {
                            status.issuer = new.issuer;
                            status.not_after = new.held.not_after();
                            held = Some(new.held);
                            (new.objection.unwrap_or_default(), LOOK)
                        }
                        Err(error) => {
                            self.tell_apid(context, &error)?;
                            (error, LONGEST_PAUSE)
                        }
                    };
                    if error.is_empty() {
                        failed = None;
                    } else {
                        let now = self.outside.now();
                        failed = Some(Failed::again(failed, wanted, now, longest));
                        if status.error != error {
                            console::warn(&format!("the API's certificate: {error}; trying again"));
                        }
                    }
                    status.error = error;
                    context.put(Draft::new(ApiCertificates::ID, status.clone()))?;
                }
            }
            tokio::select! {
                () = context.event() => {}
                () = self.outside.sleep(next) => {}
                changed = self.stage.changed() => if changed.is_err() {
                    return Ok(());
                },
            }
        }
    }
}

/// A new certificate.
#[derive(Debug)]
struct Issued {
    held: Held<Wanted>,
    issuer: String,
    /// Reason to request another one, although this one is in use.
    objection: Option<String>,
}

/// A failed attempt and the delay until the next one.
#[derive(Debug)]
struct Failed {
    wanted: Wanted,
    at: SystemTime,
    pause: Duration,
}

impl Failed {
    /// The next failure, with twice the delay of the one before, up to `longest`.
    fn again(before: Option<Failed>, wanted: Wanted, now: SystemTime, longest: Duration) -> Failed {
        let before = before.filter(|before| before.wanted == wanted);
        let pause = before.map_or(FIRST_PAUSE, |before| {
            before.pause.saturating_mul(2).min(longest)
        });
        Failed {
            wanted,
            at: now,
            pause,
        }
    }

    /// Remaining delay; `None` if it is over or the clock was set.
    fn pause(&self, now: SystemTime) -> Option<Duration> {
        let since = now.duration_since(self.at).ok()?;
        let left = self.pause.checked_sub(since)?;
        (!left.is_zero()).then_some(left)
    }
}

impl<O: Outside> Api<O> {
    fn wanted(&mut self, context: &Context) -> Result<Option<Wanted>, Failure> {
        let stage = *self.stage.borrow_and_update();
        let sans = context.get::<CertSans>(CertSans::ID)?;
        let root = context.get::<OsRoot>(OsRoot::ID)?;
        Ok(match (root, sans) {
            // Without an address, the node can neither reach trustd nor name itself in a certificate.
            (Some(root), Some(sans)) if !root.signs() && sans.is_loopback() => {
                self.tell_apid(context, "the node has no address yet")?;
                None
            }
            (Some(root), Some(sans)) => Some(Wanted::Secure {
                root: Box::new((*root).clone()),
                sans: (*sans).clone(),
            }),
            (None, _) => match stage {
                Stage::Maintenance => Some(Wanted::Maintenance),
                // Without an owner in META, no client is served.
                Stage::Locked => {
                    meta::owner(&self.meta.borrow()).map(|owner| Wanted::Locked { owner })
                }
                _ => None,
            },
            _ => None,
        })
    }

    /// Issues or requests certificates, and takes them into use.
    async fn certify(&self, context: &mut Context, wanted: &Wanted) -> Result<Issued, String> {
        let text = |error: corten_pki::PkiError| corten_resources::controller::with_causes(&error);
        let now = self.outside.now();
        let mut client = None;
        let mut objection = None;
        let (server, accepted_cas, issuer) = match wanted {
            Wanted::Maintenance | Wanted::Locked { .. } => {
                let sans = context.get::<CertSans>(CertSans::ID);
                let sans = sans.map_err(|error| error.to_string())?;
                let names = sans.map(|sans| sans.names()).unwrap_or_default();
                let server = corten_pki::maintenance(&names, now).map_err(text)?;
                say_fingerprint(&server).map_err(text)?;
                (server, wanted.owners(), "itself".to_owned())
            }
            Wanted::Secure { root, sans } if root.signs() => {
                let ca = Ca::from_pem(&root.issuing_ca.crt, root.issuing_ca.key.expose())
                    .map_err(text)?;
                let server = ca
                    .control_plane_server(&sans.fqdn, &sans.names(), now, NODE_LIFETIME)
                    .map_err(text)?;
                let own = ca
                    .control_plane_client(IMPERSONATOR, now, NODE_LIFETIME)
                    .map_err(text)?;
                client = Some(PemPair::from(&own));
                (server, root.accepted_cas.clone(), "machine.ca".to_owned())
            }
            Wanted::Secure { root, sans } => {
                let joined = self.outside.ask(&asked(context, root, sans)?).await?;
                objection = other_ca(root, &joined, now);
                (joined.issued, root.accepted_cas.clone(), joined.endpoint)
            }
        };
        let held = Held::new(&server, wanted.clone(), now).map_err(text)?;
        let certificates = ApiCertificates {
            client,
            server: PemPair::from(&server),
            accepted_cas,
            skip_verifying_client_cert: *wanted == Wanted::Maintenance,
        };
        context
            .put(Draft::new(ApiCertificates::ID, certificates))
            .map_err(|error| error.to_string())?;
        Ok(Issued {
            held,
            issuer,
            objection,
        })
    }

    /// Shows the reason in apid's history while apid waits for its files.
    fn tell_apid(&self, context: &Context, why: &str) -> Result<(), Failure> {
        let certificates = context.get::<ApiCertificates>(ApiCertificates::ID)?;
        if certificates.is_none_or(|found| found.skip_verifying_client_cert) {
            let condition = Condition::ApiFiles(ApiMode::Secure);
            self.conditions.set(condition, Err(why.to_owned()));
        }
        Ok(())
    }
}

/// Whether another accepted CA than `machine.ca` signed the certificate. During a rotation of the CA, trustd may answer
/// before it has the new one: the rotation must not remove the old CA while certificates of it are in use.
fn other_ca(root: &OsRoot, joined: &Joined, now: SystemTime) -> Option<String> {
    let cas = corten_pki::certificates_from_pem(root.issuing_ca.crt.as_bytes()).ok()?;
    corten_pki::verify_issued(&joined.issued, &cas, now).err()?;
    Some(format!(
        "trustd at {} signs with another CA than machine.ca of this node: both need the same one",
        joined.endpoint
    ))
}

fn asked(context: &Context, root: &OsRoot, sans: &CertSans) -> Result<Asked, String> {
    let endpoints = context
        .list::<Endpoint>()
        .map_err(|error| error.to_string())?;
    let hosts = endpoints
        .iter()
        .flat_map(|endpoint| endpoint.addresses.iter().chain(&endpoint.hosts));
    Ok(Asked {
        endpoints: hosts.cloned().collect(),
        port: corten_api::TRUST_PORT,
        cas: root.trusted_cas(),
        token: root.token.clone(),
        common_name: sans.fqdn.clone(),
        // trustd signs no more names; a node exceeds the limit only with addresses of its pods and services.
        names: sans
            .names()
            .into_iter()
            .take(corten_pki::MAX_NAMES)
            .collect(),
    })
}

/// Logs the fingerprint that an operator compares: base64 of the SHA-256 of the certificate's public key.
fn say_fingerprint(server: &CertificateAndKey) -> Result<(), corten_pki::PkiError> {
    let chain = corten_pki::certificates_from_pem(server.crt.as_bytes())?;
    let leaf = chain.first().ok_or(corten_pki::PkiError::NotACertificate)?;
    let fingerprint = corten_pki::fingerprint(leaf)?;
    console::say(&format!(
        "maintenance certificate fingerprint: {fingerprint}"
    ));
    Ok(())
}
