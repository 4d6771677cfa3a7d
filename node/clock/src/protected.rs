//! Authenticated queries (NTS, RFC 8915): a key exchange over TLS, then NTP packets with a proof of origin.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use corten_base::bulkhead::Bulkhead;
use corten_base::trusted_roots::CA_FILE;
use corten_nts::{BadFields, Session, Trust, exchange};
use corten_pki::certificates_from_pem;
use tokio::time::{Instant, timeout};

use super::ask::{Answer, Resting, addresses, connect, random};
use super::error::{AskError, EXCHANGE, PATIENCE, ProofError};
use super::sntp::{self, Sample, moved};

/// Pause after a failed key exchange, doubled each time (RFC 8915, section 4.2)...
const REST: Duration = Duration::from_secs(10);
/// ...up to a factor of 2^6.
const LONGEST_REST: u32 = 6;
/// Buffer size in bytes, enough for an answer with eight cookies.
const PACKET: usize = 2048;

/// State of one server.
#[derive(Debug, Default)]
struct Kept {
    session: Option<(Session, SocketAddr)>,
    /// End of the pause, and the consecutive failed key exchanges.
    rest: Option<(Instant, u32)>,
}

/// NTS sessions, by server name.
#[derive(Debug)]
pub struct Proofs {
    /// File with the trusted CA certificates.
    ca_file: PathBuf,
    /// Lower bound of the current time.
    earliest: SystemTime,
    kept: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<Kept>>>>,
}

impl Proofs {
    /// Trusts the CA certificates of the image and the config.
    pub fn new(earliest: SystemTime) -> Proofs {
        Proofs {
            ca_file: CA_FILE.into(),
            earliest,
            kept: Mutex::default(),
        }
    }

    /// Queries a server by name or address; a port is that of the key exchange. A session lasts until the server
    /// forgets its keys. `resting` has the addresses to skip.
    ///
    /// # Errors
    /// There is no answer, or no proof of its origin.
    pub async fn ask(
        &self,
        server: &str,
        names: &Bulkhead,
        resting: &Resting,
    ) -> Result<Answer, AskError> {
        let kept = {
            let mut all = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry(server.to_owned()).or_default().clone()
        };
        // Cancel-safe: the state stays as it is while a caller waits.
        let mut kept = kept.lock().await;
        if kept
            .session
            .as_ref()
            .is_none_or(|(session, _)| !session.can_ask())
        {
            self.begin(server, names, &mut kept).await?;
        }
        let Some((session, address)) = &mut kept.session else {
            return Err(ProofError::Question.into());
        };
        let address = *address;
        if resting.rests(address) {
            return Err(AskError::Rests);
        }
        let asked = question(session, address).await.and_then(|sample| {
            let said = moved(SystemTime::now(), sample.offset);
            if said.is_some_and(|said| session.is_valid_at(said)) {
                return Ok(sample);
            }
            Err(ProofError::Validity.into())
        });
        match &asked {
            Ok(_) => resting.forget(address),
            Err(AskError::Bad(bad)) => resting.leave(address, bad),
            // The next query exchanges new keys, because the server may have a new certificate.
            Err(AskError::Proof(_)) => kept.session = None,
            Err(_) => {}
        }
        let from = Some(address.ip());
        asked.map(|sample| Answer { sample, from })
    }

    /// Exchanges keys.
    async fn begin(&self, server: &str, names: &Bulkhead, kept: &mut Kept) -> Result<(), AskError> {
        kept.session = None;
        let times = kept.rest.map_or(0, |(_, times)| times);
        if kept.rest.is_some_and(|(until, _)| until > Instant::now()) {
            return Err(AskError::Rests);
        }
        let found = addresses(server, corten_nts::PORT, names).await?;
        match self.exchange(server, found).await {
            Ok((session, peer)) => {
                let port = session.port().unwrap_or(sntp::PORT);
                let address = match session.server() {
                    Some(other) => addresses(other, port, names).await?.into_iter().next(),
                    None => Some(SocketAddr::new(peer.ip(), port)),
                };
                let none = || AskError::Name(io::ErrorKind::NotFound.into());
                let mut address = address.ok_or_else(none)?;
                address.set_port(port);
                kept.session = Some((session, address));
                kept.rest = None;
                Ok(())
            }
            Err(error) => {
                // An unreachable server may be up soon; one that fails the exchange will fail again.
                if !matches!(error, ProofError::Connection(_)) {
                    let span = REST.saturating_mul(1 << times.min(LONGEST_REST));
                    kept.rest = Some((Instant::now() + span, times.saturating_add(1)));
                }
                Err(error.into())
            }
        }
    }

    async fn exchange(
        &self,
        server: &str,
        found: Vec<SocketAddr>,
    ) -> Result<(Session, SocketAddr), ProofError> {
        // Read each time, because the config may have changed the file.
        let pem = fs::read(&self.ca_file);
        let pem = pem.map_err(|error| ProofError::Cas(error.to_string()))?;
        let trust = Trust::new(certificates_from_pem(&pem)?, self.earliest)?;
        let connected = corten_dial::one_of(found, EXCHANGE).await;
        let stream = connected.map_err(ProofError::Connection)?;
        let peer = stream.peer_addr().map_err(ProofError::Connection)?;
        let name = match server.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_string(),
            Err(_) => server.to_owned(),
        };
        let exchanged = timeout(EXCHANGE, exchange(stream, &name, &trust)).await;
        let session = exchanged.map_err(|_| ProofError::Silent)??;
        Ok((session, peer))
    }
}

/// Queries an address once.
async fn question(session: &mut Session, server: SocketAddr) -> Result<Sample, AskError> {
    let socket = connect(server).await?;
    let cookie = random()?;
    let header = sntp::question(cookie);
    let question = session.question(&header).ok_or(ProofError::Question)?;
    let left = SystemTime::now();
    socket.send(&question.packet).await?;
    let answered = async {
        loop {
            let mut packet = [0; PACKET];
            let length = socket.recv(&mut packet).await?;
            let came = SystemTime::now();
            let packet = packet.get(..length).unwrap_or_default();
            match session.answer(packet, &question) {
                Ok(header) => return Ok(sntp::answer(&header, cookie, left, came)?),
                Err(nak @ BadFields::Nak) => return Err(ProofError::Packet(nak).into()),
                // These may be forged; the server's own answer may still arrive.
                Err(_) => {}
            }
        }
    };
    timeout(PATIENCE, answered)
        .await
        .unwrap_or(Err(AskError::Silent))
}

#[cfg(test)]
#[path = "protected_tests.rs"]
pub(crate) mod tests;
