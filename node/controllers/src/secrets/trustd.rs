//! Keeps trustd's certificate on nodes with the CA's key, once the time and an address are known. A certificate signed
//! at a wrong time is invalid at the right one, and a joining node cannot tell why.

use corten_credentials::certificates::Held;
use corten_pki::{Ca, NODE_LIFETIME};
use corten_resources::Draft;
use corten_resources::controller::{Context, Controller, Dependency, Failure, Input, Output};
use corten_supervisor::Condition;
use corten_supervisor::supervisor::Conditions;
use corten_types::clock::TimeStatus;
use corten_types::network::NodeAddress;
use corten_types::secrets::{
    CertSans, CertificateStatus, Endpoint, OsRoot, PemPair, TrustdCertificates,
};

use super::{LOOK, Outside};

/// Keeps trustd's certificate.
#[derive(Debug, Clone)]
pub(crate) struct Trustd<O> {
    pub(crate) conditions: Conditions,
    pub(crate) outside: O,
}

impl<O: Outside> Controller for Trustd<O> {
    fn name(&self) -> &'static str {
        "secrets.TrustdController"
    }

    fn inputs(&self) -> Vec<Input> {
        vec![
            Input::of::<OsRoot>(Dependency::Weak).with_id(OsRoot::ID),
            Input::of::<CertSans>(Dependency::Weak).with_id(CertSans::ID),
            Input::of::<Endpoint>(Dependency::Weak).with_id(Endpoint::STATIC),
            Input::of::<TimeStatus>(Dependency::Weak).with_id(TimeStatus::ID),
            Input::of::<NodeAddress>(Dependency::Weak).with_id(NodeAddress::CURRENT),
        ]
    }

    fn outputs(&self) -> Vec<Output> {
        vec![
            Output::exclusive::<TrustdCertificates>(),
            Output::shared::<CertificateStatus>(),
        ]
    }

    async fn run(self, context: &mut Context) -> Result<(), Failure> {
        let mut held: Option<Held<(OsRoot, Vec<String>)>> = None;
        context.event().await;
        loop {
            let mut next = LOOK;
            match ready(context)? {
                Ok(wanted) => {
                    let now = self.outside.now();
                    if let Some(left) = held.as_ref().and_then(|held| held.left(&wanted, now)) {
                        next = next.min(left);
                    } else {
                        let (root, names) = &wanted;
                        let ca = Ca::from_pem(&root.issuing_ca.crt, root.issuing_ca.key.expose())?;
                        let server = ca.server("", names, now, NODE_LIFETIME)?;
                        let certificates = TrustdCertificates {
                            server: PemPair::from(&server),
                        };
                        context.put(Draft::new(TrustdCertificates::ID, certificates))?;
                        let new = Held::new(&server, wanted, now)?;
                        let status = CertificateStatus {
                            issuer: "machine.ca".to_owned(),
                            not_after: new.not_after(),
                            error: String::new(),
                        };
                        context.put(Draft::new(TrustdCertificates::ID, status))?;
                        held = Some(new);
                        continue;
                    }
                }
                // trustd keeps its certificate: an address that disappears briefly has no effect.
                Err(why) if held.is_none() => self.conditions.set(Condition::TrustdFiles, Err(why)),
                Err(_) => {}
            }
            tokio::select! {
                () = context.event() => {}
                () = self.outside.sleep(next) => {}
            }
        }
    }
}

/// The CA and the names of the certificate, or the reason why they are incomplete.
fn ready(context: &Context) -> Result<Result<(OsRoot, Vec<String>), String>, Failure> {
    let root = context
        .get::<OsRoot>(OsRoot::ID)?
        .filter(|root| root.signs());
    let Some(root) = root else {
        return Ok(Err("this node has no key of machine.ca".to_owned()));
    };
    let time = context.get::<TimeStatus>(TimeStatus::ID)?;
    if !time.is_some_and(|time| time.synced) {
        return Ok(Err("the time is not known yet".to_owned()));
    }
    let addresses = context.get::<NodeAddress>(NodeAddress::CURRENT)?;
    if addresses.is_none_or(|found| found.addresses.is_empty()) {
        return Ok(Err("the node has no address yet".to_owned()));
    }
    let Some(sans) = context.get::<CertSans>(CertSans::ID)? else {
        return Ok(Err("the node has no name yet".to_owned()));
    };
    let mut names = sans.names();
    // Names by which other nodes reach it.
    if let Some(endpoint) = context.get::<Endpoint>(Endpoint::STATIC)? {
        names.extend(endpoint.addresses.iter().chain(&endpoint.hosts).cloned());
    }
    names.sort();
    names.dedup();
    Ok(Ok(((*root).clone(), names)))
}
