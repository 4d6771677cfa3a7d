//! Tests authenticated queries against a local NTS server, and against forged answers.

use std::net::Ipv4Addr;
use std::time::UNIX_EPOCH;

use corten_nts::testing::Server;
use corten_pki::{Algorithm, Ca, private_key_from_pem};
use tempfile::TempDir;
use tokio::net::{TcpListener, UdpSocket};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

/// Behavior of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// Authenticated, and this many seconds ahead of this machine's clock.
    Ahead(i64),
    /// Without a proof.
    Unproved,
}

/// A server with a certificate from a test CA.
pub struct World {
    pub server: Server,
    /// Address of the key exchange.
    pub name: String,
    directory: TempDir,
}

impl World {
    /// `name` is the name in the certificate, which is valid for a week.
    pub async fn new(name: &str, answers: Answers) -> World {
        let now = SystemTime::now();
        let ca = Ca::generate(Algorithm::EcdsaP256, "", "time", now).unwrap();
        let leaf = ca.server("", &[name.to_owned()], now, DAY * 7).unwrap();
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("ca.crt"), &ca.pem().crt).unwrap();
        let ntp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = ntp.local_addr().unwrap().port();
        let server = Server::new(
            certificates_from_pem(leaf.crt.as_bytes()).unwrap(),
            private_key_from_pem(leaf.key.as_bytes()).unwrap(),
            &[b"ntske/1"],
            Some((Ipv4Addr::LOCALHOST.to_string(), port)),
        );
        let keys = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let name = keys.local_addr().unwrap().to_string();
        let exchanges = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = keys.accept().await {
                exchanges.exchange(stream).await;
            }
        });
        let proves = server.clone();
        tokio::spawn(async move {
            let mut packet = [0; PACKET];
            while let Ok((length, from)) = ntp.recv_from(&mut packet).await {
                let asked = &packet[..length];
                let answer = match answers {
                    Answers::Ahead(seconds) => {
                        proves.answer(asked, |header| header_at(header, seconds))
                    }
                    Answers::Unproved => Some(header_at(asked.first_chunk().unwrap(), 0).to_vec()),
                };
                if let Some(answer) = answer {
                    ntp.send_to(&answer, from).await.unwrap();
                }
            }
        });
        World {
            server,
            name,
            directory,
        }
    }

    pub fn proofs(&self, earliest: SystemTime) -> Proofs {
        Proofs {
            ca_file: self.directory.path().join("ca.crt"),
            ..Proofs::new(earliest)
        }
    }
}

/// An answer this many seconds ahead of this machine's clock.
pub fn header_at(question: &[u8; sntp::SIZE], seconds: i64) -> [u8; sntp::SIZE] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let second = now.as_secs().strict_add(2_208_988_800);
    let second = u32::try_from(second.strict_add_signed(seconds) & 0xffff_ffff).unwrap();
    let part = u32::try_from((u64::from(now.subsec_nanos()) << 32) / 1_000_000_000).unwrap();
    let mut answer = [0; sntp::SIZE];
    answer[..2].copy_from_slice(&[0x24, 2]);
    answer[24..32].copy_from_slice(&question[40..48]);
    for place in [32, 40] {
        answer[place..place + 4].copy_from_slice(&second.to_be_bytes());
        answer[place + 4..place + 8].copy_from_slice(&part.to_be_bytes());
    }
    answer
}

async fn ask(proofs: &Proofs, server: &str) -> Result<Answer, AskError> {
    let names = Bulkhead::new(1, PATIENCE);
    proofs.ask(server, &names, &Resting::default()).await
}

#[tokio::test]
async fn nts_keys_are_reused_until_the_server_answers_with_a_nak() {
    let world = World::new("127.0.0.1", Answers::Ahead(3600)).await;
    // The image is long older than the certificate.
    let proofs = world.proofs(UNIX_EPOCH + DAY);
    for _ in 0..10 {
        let answer = ask(&proofs, &world.name).await.unwrap();
        let error = answer.sample.offset - 3_600_000_000_000;
        assert!(error.abs() < 5_000_000_000, "{answer:?}");
        assert_eq!(answer.from, Some(Ipv4Addr::LOCALHOST.into()));
    }
    // Two cookies of the key exchange, seven with the first answer, one with each further answer.
    assert_eq!(world.server.given(), 2 + 7 + 9);
    world.server.forget();
    let forgotten = ask(&proofs, &world.name).await.unwrap_err();
    assert!(
        matches!(
            forgotten,
            AskError::Proof(ProofError::Packet(BadFields::Nak))
        ),
        "{forgotten}"
    );
    ask(&proofs, &world.name).await.unwrap();
}

#[tokio::test]
async fn unauthenticated_answer_is_ignored() {
    let world = World::new("127.0.0.1", Answers::Unproved).await;
    let proofs = world.proofs(UNIX_EPOCH + DAY);
    let silent = ask(&proofs, &world.name).await;
    assert!(matches!(silent, Err(AskError::Silent)), "{silent:?}");
}

#[tokio::test]
async fn server_with_a_wrong_name_or_ca_is_refused_and_rests() {
    let other = World::new("192.0.2.1", Answers::Ahead(0)).await;
    let proofs = other.proofs(UNIX_EPOCH + DAY);
    let refused = ask(&proofs, &other.name).await.unwrap_err();
    assert!(
        refused.to_string().starts_with("no NTS keys: "),
        "{refused}"
    );
    let again = ask(&proofs, &other.name).await.unwrap_err();
    assert!(matches!(again, AskError::Rests), "{again}");
    let world = World::new("127.0.0.1", Answers::Ahead(0)).await;
    let proofs = other.proofs(UNIX_EPOCH + DAY);
    let refused = ask(&proofs, &world.name).await.unwrap_err();
    assert!(
        refused.to_string().starts_with("no NTS keys: "),
        "{refused}"
    );
    let nobody = Proofs {
        ca_file: "/no/such/file".into(),
        ..other.proofs(UNIX_EPOCH)
    };
    let refused = ask(&nobody, &world.name).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("its certificate cannot be verified"),
        "{refused}"
    );
}

#[tokio::test]
async fn authenticated_time_outside_certificate_validity_is_refused() {
    let year = 366 * 86_400;
    for seconds in [-year, year] {
        let world = World::new("127.0.0.1", Answers::Ahead(seconds)).await;
        let proofs = world.proofs(UNIX_EPOCH + DAY);
        let refused = ask(&proofs, &world.name).await.unwrap_err();
        assert!(
            matches!(refused, AskError::Proof(ProofError::Validity)),
            "{refused}"
        );
    }
    let world = World::new("127.0.0.1", Answers::Ahead(0)).await;
    let proofs = world.proofs(SystemTime::now() + DAY * 30);
    let refused = ask(&proofs, &world.name).await.unwrap_err();
    assert!(refused.to_string().contains("xpired"), "{refused}");
}

#[tokio::test]
async fn unreachable_server_is_queried_again_at_once() {
    let world = World::new("127.0.0.1", Answers::Ahead(0)).await;
    let proofs = world.proofs(UNIX_EPOCH + DAY);
    for _ in 0..2 {
        let refused = ask(&proofs, "127.0.0.1:1").await.unwrap_err();
        assert!(
            matches!(refused, AskError::Proof(ProofError::Connection(_))),
            "{refused}"
        );
    }
}
