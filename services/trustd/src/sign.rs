//! The only method: signs a certificate request. Every call is logged.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use corten_api::securityapi::security_service_server::SecurityService;
use corten_api::securityapi::{CertificateRequest, CertificateResponse};
use corten_pki::{NODE_LIFETIME, PkiError};
use tonic::{Request, Response, Status, async_trait};

use crate::files::Trust;
use crate::limits::{Limits, Verdict};
use crate::names::Why;

/// Metadata key of the token.
const TOKEN: &str = "token";

/// The service of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Signer {
    pub(crate) peer: IpAddr,
    pub(crate) trust: Arc<Trust>,
    pub(crate) limits: Arc<Mutex<Limits>>,
}

#[async_trait]
impl SecurityService for Signer {
    async fn certificate(
        &self,
        request: Request<CertificateRequest>,
    ) -> Result<Response<CertificateResponse>, Status> {
        self.check_rate()?;
        let shown = request.metadata().get(TOKEN);
        let shown = shown.map(|token| token.as_encoded_bytes());
        if !shown.is_some_and(|shown| self.trust.token.is(shown)) {
            let what = if shown.is_some() { "wrong" } else { "missing" };
            self.tell_refusal(&format!("its token is {what}"));
            return Err(Status::unauthenticated(format!(
                "the token is {what}: machine.token must be the control plane's"
            )));
        }
        match self.sign(&request.get_ref().csr, SystemTime::now()) {
            Ok(crt) => Ok(Response::new(CertificateResponse {
                ca: self.trust.cas.clone().into_bytes(),
                crt: crt.into_bytes(),
            })),
            Err(error) => {
                let text = error.to_string();
                self.tell_refusal(&text);
                Err(Status::invalid_argument(text))
            }
        }
    }
}

impl Signer {
    fn check_rate(&self) -> Result<(), Status> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        match limits.take(self.peer, Instant::now()) {
            Verdict::Admitted => return Ok(()),
            Verdict::Refused { first: true } => self.tell_refusal("it sends too many requests"),
            Verdict::Refused { first: false } => {}
        }
        Err(Status::resource_exhausted(
            "too many requests: try again later",
        ))
    }

    fn sign(&self, csr: &[u8], now: SystemTime) -> Result<String, PkiError> {
        let request = corten_pki::ServerRequest::from_pem(csr)?;
        let mut names = Vec::new();
        let mut left_out: Vec<(&String, Why)> = Vec::new();
        for name in &request.names {
            match self.trust.names.left_out(name, self.peer) {
                None => names.push(name.clone()),
                Some(why) => left_out.push((name, why)),
            }
        }
        if names.is_empty() {
            return Err(PkiError::BadRequest(
                "has only names of the control plane, or foreign addresses",
            ));
        }
        let crt = self
            .trust
            .ca
            .sign_server(&request, &names, now, NODE_LIFETIME)?;
        // Debug formatting: a peer's text cannot begin a new line.
        let mut line = format!("certificate for {:?}, names {names:?}", request.common_name);
        for why in [Why::ControlPlane, Why::Elsewhere] {
            let names = left_out.iter().filter(|(_, reason)| *reason == why);
            let names: Vec<&&String> = names.map(|(name, _)| name).collect();
            if !names.is_empty() {
                let _ = write!(line, ", left out as {}: {names:?}", why.text());
            }
        }
        println!("trustd: {}: {line}", self.peer.to_canonical());
        Ok(crt)
    }

    fn tell_refusal(&self, why: &str) {
        eprintln!("trustd: {}: refused: {why}", self.peer.to_canonical());
    }
}
