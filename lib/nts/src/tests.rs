//! Client and server together, over an in-memory stream.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::duplex;

use crate::testing::Server;
use crate::{BadFields, BadRecords, ExchangeError, HEADER, Session, Trust, exchange};

const NAME: &str = "time.example.com";

fn year(number: i32) -> SystemTime {
    let years = u64::try_from(number - 1970).unwrap();
    // Accurate enough for years.
    UNIX_EPOCH + Duration::from_secs(years * 365 * 86_400 + years / 4 * 86_400 + 86_400)
}

struct World {
    root: CertificateDer<'static>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

/// A long-lived CA, and a server certificate that is valid from one year to another.
fn world(name: &str, from: i32, until: i32) -> World {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    params.not_after = rcgen::date_time_ymd(2099, 1, 1);
    let root = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let leaf = params.signed_by(&key, &root).unwrap();
    World {
        root: root.der().clone(),
        chain: vec![leaf.der().clone()],
        key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
    }
}

impl World {
    fn server(&self, protocols: &[&[u8]]) -> Server {
        let chain = self.chain.clone();
        Server::new(chain, self.key.clone_key(), protocols, None)
    }

    fn trust(&self, earliest: SystemTime) -> Trust {
        Trust::new([self.root.clone()], earliest).unwrap()
    }
}

async fn meet(server: &Server, trust: &Trust) -> Result<Session, ExchangeError> {
    let (ours, theirs) = duplex(1024);
    let (session, ()) = tokio::join!(exchange(ours, NAME, trust), server.exchange(theirs));
    session
}

fn ask(session: &mut Session, server: &Server) -> Result<[u8; HEADER], BadFields> {
    let question = session.question(&[0x23; HEADER]).unwrap();
    assert!(question.packet.len() <= 1200);
    let answer = server.answer(&question.packet, |_| [0x24; HEADER]).unwrap();
    session.answer(&answer, &question)
}

#[tokio::test]
async fn server_authenticates_answers_and_replaces_cookies() {
    let world = world(NAME, 2025, 2027);
    let server = world.server(&[b"ntske/1"]);
    let mut session = meet(&server, &world.trust(year(2026))).await.unwrap();
    for number in 0..20 {
        assert_eq!(ask(&mut session, &server), Ok([0x24; HEADER]), "{number}");
    }
    // Two from the exchange, eight after the first response, then one per response.
    assert_eq!(server.given(), 2 + 7 + 19);
    assert!(session.server().is_none() && session.port().is_none());
    assert!(!format!("{session:?}").contains("keys"));
}

#[tokio::test]
async fn unanswered_requests_use_up_the_cookies() {
    let world = world(NAME, 2025, 2027);
    let server = world.server(&[b"ntske/1"]);
    let mut session = meet(&server, &world.trust(year(2026))).await.unwrap();
    let [one, other] = [(); 2].map(|()| session.question(&[0; HEADER]).unwrap());
    assert_ne!(one.packet[HEADER..], other.packet[HEADER..]);
    assert!(!session.can_ask() && session.question(&[0; HEADER]).is_none());
    // The response to one request does not answer another one.
    let answer = server.answer(&one.packet, |_| [0; HEADER]).unwrap();
    assert_eq!(session.answer(&answer, &other), Err(BadFields::NotOurs));
    session.answer(&answer, &one).unwrap();
    assert!(session.can_ask());
}

#[tokio::test]
async fn server_without_the_keys_answers_with_a_nak() {
    let world = world(NAME, 2025, 2027);
    let server = world.server(&[b"ntske/1"]);
    let mut session = meet(&server, &world.trust(year(2026))).await.unwrap();
    server.forget();
    assert_eq!(ask(&mut session, &server), Err(BadFields::Nak));
}

#[tokio::test]
async fn certificate_is_checked_at_the_earliest_time_and_bounds_the_answer() {
    let world = world(NAME, 2030, 2032);
    let server = world.server(&[b"ntske/1"]);
    // A certificate issued long after the image was built; this machine's clock has no effect.
    for earliest in [1971, 2026, 2031] {
        let session = meet(&server, &world.trust(year(earliest))).await.unwrap();
        let valid = [2029, 2031, 2033].map(|at| session.is_valid_at(year(at)));
        assert_eq!(valid, [false, true, false]);
    }
    let expired = meet(&server, &world.trust(year(2033))).await.unwrap_err();
    assert!(expired.to_string().contains("xpired"), "{expired}");
}

#[tokio::test]
async fn untrusted_servers_and_other_names_and_protocols_are_refused() {
    let world = world(NAME, 2025, 2027);
    let other = self::world("other.example.com", 2025, 2027);
    let trust = world.trust(year(2026));
    let stranger = meet(&other.server(&[b"ntske/1"]), &trust).await;
    assert!(
        matches!(stranger, Err(ExchangeError::Io(_))),
        "{stranger:?}"
    );
    let trust_of_other = other.trust(year(2026));
    let misnamed = meet(&other.server(&[b"ntske/1"]), &trust_of_other).await;
    assert!(
        matches!(misnamed, Err(ExchangeError::Io(_))),
        "{misnamed:?}"
    );
    let silent = meet(&world.server(&[]), &trust).await;
    assert!(matches!(silent, Err(ExchangeError::Protocol)), "{silent:?}");
    Trust::new([], year(2026)).unwrap_err();
}

#[tokio::test]
async fn cut_off_and_invalid_connections_are_errors() {
    let world = world(NAME, 2025, 2027);
    let trust = world.trust(year(2026));
    let (ours, theirs) = duplex(1024);
    drop(theirs);
    let error = exchange(ours, NAME, &trust).await.unwrap_err();
    assert!(matches!(error, ExchangeError::Io(_)), "{error}");
    let (ours, _theirs) = duplex(1024);
    let error = exchange(ours, "no name", &trust).await.unwrap_err();
    assert!(matches!(error, ExchangeError::Name(_)), "{error}");
    assert_eq!(BadRecords::CutOff.to_string(), "its answer is truncated");
}
