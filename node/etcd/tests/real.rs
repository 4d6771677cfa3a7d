//! Tests the client against a real etcd, over mutual TLS.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step is a failing test"
)]

use std::fs::{self, File};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use corten_etcd::{Action, Client, EtcdError, Member, Refusal, Tls, verify_snapshot};
use futures_util::TryStreamExt as _;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

const TIMEOUT: Duration = Duration::from_secs(5);

/// Test CA.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    crt: String,
}

impl Ca {
    fn new() -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let crt = params.self_signed(&key).unwrap().pem();
        Ca {
            issuer: Issuer::new(params, key),
            crt,
        }
    }

    /// A certificate for a local member, also used by its client.
    fn tls(&self) -> Tls {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        Tls {
            ca: self.crt.clone(),
            crt: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }
}

/// An etcd process that is killed when the test ends.
struct Etcd {
    child: Child,
    endpoint: String,
    peer: String,
    log: PathBuf,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// Free local addresses.
fn free<const N: usize>() -> [String; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().to_string())
}

impl Etcd {
    fn start(directory: &Path, tls: &Tls) -> Etcd {
        let program = std::env::var_os("CORTEN_KUBERNETES").unwrap();
        let program = Path::new(&program).join("etcd");
        let [endpoint, peer] = free();
        let [ca, crt, key] = ["ca.crt", "etcd.crt", "etcd.key"].map(|name| directory.join(name));
        fs::write(&ca, &tls.ca).unwrap();
        fs::write(&crt, &tls.crt).unwrap();
        fs::write(&key, &tls.key).unwrap();
        let log = directory.join("log");
        let (client_url, peer_url) = (format!("https://{endpoint}"), format!("https://{peer}"));
        let child = Command::new(&program)
            .args([
                "--name=one",
                "--client-cert-auth",
                "--peer-client-cert-auth",
            ])
            .arg(format!("--data-dir={}", directory.join("data").display()))
            .arg(format!("--listen-client-urls={client_url}"))
            .arg(format!("--advertise-client-urls={client_url}"))
            .arg(format!("--listen-peer-urls={peer_url}"))
            .arg(format!("--initial-advertise-peer-urls={peer_url}"))
            .arg(format!("--initial-cluster=one={peer_url}"))
            .arg(format!("--trusted-ca-file={}", ca.display()))
            .arg(format!("--cert-file={}", crt.display()))
            .arg(format!("--key-file={}", key.display()))
            .arg(format!("--peer-trusted-ca-file={}", ca.display()))
            .arg(format!("--peer-cert-file={}", crt.display()))
            .arg(format!("--peer-key-file={}", key.display()))
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Etcd {
            child,
            endpoint,
            peer,
            log,
        }
    }

    /// A client, once the cluster answers.
    async fn client(&self, tls: &Tls) -> Client {
        let [nobody] = free();
        let endpoints = [nobody, self.endpoint.clone()];
        let mut last = String::new();
        for _ in 0..120 {
            match Client::connect(&endpoints, tls, TIMEOUT).await {
                Ok(client) if client.health().await.is_ok() => return client,
                Ok(_) => {}
                Err(error) => last = error.to_string(),
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        panic!("etcd does not answer: {last}");
    }
}

/// Tests membership with one running member and one that never starts.
async fn members_come_and_go(client: &Client, etcd: &Etcd, member: u64) {
    let members = client.members().await.unwrap();
    assert_eq!(client.local_members().await.unwrap(), members);
    let [one] = members.as_slice() else {
        panic!("{members:?}");
    };
    let wanted = Member {
        id: member,
        name: "one".to_owned(),
        peer_urls: vec![format!("https://{}", etcd.peer)],
        client_urls: vec![format!("https://{}", etcd.endpoint)],
        is_learner: false,
    };
    assert_eq!(*one, wanted);

    let [first, second] = free().map(|address| vec![format!("https://{address}")]);
    let added = client.add_learner(&first).await.unwrap();
    assert_eq!((added.members.len(), added.member.is_learner), (2, true));
    assert_eq!(added.member.peer_urls, first);
    let id = added.member.id;
    let again = client.add_learner(&first).await.unwrap_err();
    assert!(again.is_already_member(), "{again}");
    let too_many = client.add_learner(&second).await.unwrap_err();
    assert_eq!(
        too_many.refusal(),
        Some(Refusal::TooManyLearners),
        "{too_many}"
    );
    let early = client.promote(id).await.unwrap_err();
    assert!(early.is_not_in_sync() && early.is_temporary(), "{early}");
    let voter = client.promote(member).await.unwrap_err();
    assert!(voter.is_not_a_learner(), "{voter}");
    let updated = client.update(id, &second).await.unwrap();
    assert!(
        updated
            .iter()
            .any(|other| other.id == id && other.peer_urls == second)
    );
    assert_eq!(client.remove(id).await.unwrap(), members);
    let gone = client.remove(id).await.unwrap_err();
    assert!(gone.is_member_not_found(), "{gone}");
}

async fn keys_hold_what_was_put(client: &Client) {
    assert_eq!(client.get(b"key").await.unwrap(), None);
    client.put(b"key", b"one").await.unwrap();
    client.put(b"key", b"two").await.unwrap();
    let entry = client.get(b"key").await.unwrap().unwrap();
    assert_eq!((entry.value.as_slice(), entry.version), (&b"two"[..], 2));
    assert!(entry.created < entry.modified);
    assert!(client.delete(b"key").await.unwrap());
    assert!(!client.delete(b"key").await.unwrap());
    let empty = client.put(b"", b"").await.unwrap_err();
    assert_eq!(empty.refusal(), Some(Refusal::Other), "{empty}");
}

async fn one_holds_a_lock(client: &Client) {
    let short = Duration::from_secs(2);
    let lock = client.lock("vip", short, TIMEOUT).await.unwrap();
    assert!(client.get(lock.key()).await.unwrap().is_some());
    // The wait exceeds the TTL, so the lease is renewed.
    let other = client.lock("vip", short, short * 2).await.unwrap_err();
    assert!(matches!(other, EtcdError::LockHeld { .. }), "{other}");
    assert!(lock.is_held());
    let waiting = client.lock("vip", short, TIMEOUT * 6);
    let (unlocked, waited) = tokio::join!(lock.unlock(), waiting);
    unlocked.unwrap();
    let mut lock = waited.unwrap();
    // The holder learns that its lease is gone; dropping a guard revokes its lease at once.
    let lost = tokio::time::timeout(short, lock.lost()).await;
    assert!(lost.is_err());
    drop(lock);
    let lock = client.lock("vip", Duration::from_secs(600), TIMEOUT).await;
    lock.unwrap().unlock().await.unwrap();
}

async fn a_snapshot_is_whole(client: &Client, directory: &Path) {
    let path = directory.join("snapshot");
    let mut file = File::create(&path).unwrap();
    let mut stream = client.snapshot();
    while let Some(piece) = stream.try_next().await.unwrap() {
        file.write_all(&piece).unwrap();
    }
    let size = file.metadata().unwrap().len();
    verify_snapshot(File::open(&path).unwrap()).unwrap();
    assert_eq!(size % 512, 32);
    let cut = File::options().write(true).open(&path).unwrap();
    cut.set_len(size - 512).unwrap();
    let why = verify_snapshot(File::open(&path).unwrap()).unwrap_err();
    assert!(why.to_string().contains("damaged"), "{why}");
}

async fn upkeep_is_done(client: &Client, member: u64) {
    assert_eq!(client.alarms().await.unwrap(), []);
    assert_eq!(client.disarm_all().await.unwrap(), []);
    client.defragment(TIMEOUT * 6).await.unwrap();
    client.move_leader(member).await.unwrap();
    let nobody = client.move_leader(1).await.unwrap_err();
    assert_eq!(nobody.refusal(), Some(Refusal::BadTransferee), "{nobody}");
    let bad = client.downgrade(Action::Validate, "x").await.unwrap_err();
    assert_eq!(bad.refusal(), Some(Refusal::BadVersion), "{bad}");
    for (action, version) in [
        (Action::Validate, "3.6.0"),
        (Action::Enable, "3.6.0"),
        (Action::Cancel, ""),
        // etcd only logs that no downgrade is in progress.
        (Action::Cancel, ""),
    ] {
        let cluster = client.downgrade(action, version).await.unwrap();
        assert!(cluster.starts_with("3."), "{action:?}: {cluster}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs etcd: CORTEN_KUBERNETES"]
async fn client_talks_to_a_real_etcd() {
    let directory = tempfile::tempdir().unwrap();
    let ca = Ca::new();
    let etcd = Etcd::start(directory.path(), &ca.tls());
    let tls = ca.tls();
    let client = etcd.client(&tls).await;
    assert_eq!(client.endpoint(), etcd.endpoint);

    let stranger = Tls {
        ca: tls.ca.clone(),
        ..Ca::new().tls()
    };
    let endpoint = [etcd.endpoint.clone()];
    let refused = Client::connect(&endpoint, &stranger, TIMEOUT)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains(&etcd.endpoint), "{refused}");
    let impostor = Client::connect(&endpoint, &Ca::new().tls(), TIMEOUT).await;
    assert!(
        matches!(impostor, Err(EtcdError::Connect(_))),
        "{impostor:?}"
    );

    let status = client.status().await.unwrap();
    assert_eq!(status.leader, status.member_id);
    assert!(
        status.version.starts_with("3.") && status.cluster_id != 0,
        "{status:?}"
    );
    assert!(status.db_size >= status.db_size_in_use && status.db_size_in_use > 0);
    assert!(status.raft_term > 0 && status.raft_applied_index <= status.raft_index);
    assert!(status.errors.is_empty() && !status.is_learner, "{status:?}");

    keys_hold_what_was_put(&client).await;
    members_come_and_go(&client, &etcd, status.member_id).await;
    one_holds_a_lock(&client).await;
    a_snapshot_is_whole(&client, directory.path()).await;
    upkeep_is_done(&client, status.member_id).await;
}
