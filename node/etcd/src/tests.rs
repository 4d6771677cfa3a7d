//! Tests the client against a fake etcd in the same process.

use std::time::Duration;

use corten_corpus::hostile;
use futures_util::{StreamExt as _, TryStreamExt as _};
use proptest::prelude::proptest;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tonic::{Code, Status};

use crate::fake::{Fake, Garbage, LEASE, Script, client};
use crate::wire::etcdserverpb as pb;
use crate::wire::mvccpb::KeyValue;
use crate::{Alarm, AlarmKind, Client, EtcdError, Refusal, Tls, check_member};

const SECOND: Duration = Duration::from_secs(1);

fn refusing(code: Code, text: &str) -> Script {
    Script {
        refusal: Some(Status::new(code, text)),
        ..Default::default()
    }
}

/// A lock that is granted at once, with a lease of one second.
fn locking(renewals: usize) -> Script {
    Script {
        ttl: 1,
        renewals,
        lock: Some(b"/vip/7".to_vec()),
        ..Default::default()
    }
}

fn piece(blob: &[u8], remaining_bytes: u64) -> Result<pb::SnapshotResponse, Status> {
    Ok(pb::SnapshotResponse {
        blob: blob.to_vec(),
        remaining_bytes,
        header: None,
    })
}

#[tokio::test]
async fn etcd_errors_are_classified() {
    type Is = fn(&EtcdError) -> bool;
    let cases: &[(Code, &str, Is)] = &[
        (
            Code::FailedPrecondition,
            "etcdserver: can only promote a learner member which is in sync with leader",
            EtcdError::is_not_in_sync,
        ),
        (
            Code::FailedPrecondition,
            "etcdserver: can only promote a learner member",
            EtcdError::is_not_a_learner,
        ),
        (
            Code::NotFound,
            "etcdserver: member not found",
            EtcdError::is_member_not_found,
        ),
        (
            Code::FailedPrecondition,
            "etcdserver: Peer URLs already exists",
            EtcdError::is_already_member,
        ),
        (
            Code::FailedPrecondition,
            "etcdserver: re-configuration failed due to not enough started members",
            EtcdError::is_not_enough_started,
        ),
        (
            Code::Unavailable,
            "etcdserver: unhealthy cluster",
            EtcdError::is_unhealthy,
        ),
        (
            Code::FailedPrecondition,
            "etcdserver: not leader",
            EtcdError::is_not_leader,
        ),
        (
            Code::FailedPrecondition,
            "etcdserver: rpc not supported for learner",
            EtcdError::is_from_learner,
        ),
    ];
    for (index, (code, text, _)) in cases.iter().enumerate() {
        let (_, client) = Fake::start(refusing(*code, text)).await;
        let error = client.promote(1).await.unwrap_err();
        let found: Vec<bool> = cases.iter().map(|(_, _, is)| is(&error)).collect();
        let wanted: Vec<bool> = (0..cases.len()).map(|other| other == index).collect();
        assert_eq!(found, wanted, "{error}");
        let shown = error.to_string();
        assert!(
            shown.starts_with("cannot promote a member: etcd at 127.0.0.1:"),
            "{shown}"
        );
        assert!(shown.contains(text), "{shown}");
    }
}

#[tokio::test]
async fn temporary_etcd_errors_are_recognised() {
    for (text, refusal, temporary) in [
        ("etcdserver: no leader", Refusal::NoLeader, true),
        ("etcdserver: request timed out", Refusal::Busy, true),
        (
            "etcdserver: request timed out, possibly due to connection lost",
            Refusal::NoLeader,
            true,
        ),
        (
            "etcdserver: mvcc: database space exceeded",
            Refusal::NoSpace,
            false,
        ),
        (
            "rpc error: code = NotFound desc = etcdserver: requested lease not found",
            Refusal::LeaseNotFound,
            false,
        ),
        ("the node reports: member not found", Refusal::Other, false),
        ("", Refusal::Other, false),
    ] {
        let (_, client) = Fake::start(refusing(Code::Unknown, text)).await;
        let error = client.health().await.unwrap_err();
        assert_eq!(error.refusal(), Some(refusal), "{error}");
        assert_eq!(error.is_temporary(), temporary, "{error}");
    }
    let (_, client) = Fake::start(Script::default()).await;
    let error = client.move_leader(1).await.unwrap_err();
    assert_eq!(error.refusal(), Some(Refusal::Unknown), "{error}");
}

#[tokio::test]
async fn hostile_error_messages_stay_one_short_line() {
    let words = format!("a\nb\u{1b}[2J{}", "x".repeat(5000));
    let (_, client) = Fake::start(refusing(Code::Internal, &words)).await;
    let shown = client.health().await.unwrap_err().to_string();
    assert!(
        !shown.contains(char::is_control) && shown.len() < 800,
        "{shown}"
    );
}

#[tokio::test]
async fn unreachable_or_silent_member_is_reported_with_its_endpoint() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = gone.local_addr().unwrap().to_string();
    drop(gone);
    let error = client(&address).members().await.unwrap_err();
    assert!(
        matches!(error, EtcdError::Lost { .. }) && error.is_temporary(),
        "{error}"
    );
    assert!(error.to_string().contains(&address), "{error}");

    let script = Script {
        hangs: true,
        ..Default::default()
    };
    let (_, client) = Fake::start(script).await;
    let error = client.members().await.unwrap_err();
    assert!(
        matches!(error, EtcdError::Silent { .. }) && error.is_temporary(),
        "{error}"
    );
}

#[tokio::test]
async fn every_endpoint_that_failed_is_named_and_the_key_is_not() {
    let tls = Tls {
        ca: String::new(),
        crt: "no certificate".to_owned(),
        key: "hidden".to_owned(),
    };
    let none = Client::connect(&[], &tls, SECOND).await.unwrap_err();
    assert!(matches!(none, EtcdError::NoEndpoint), "{none}");
    let endpoints = ["127.0.0.1:1", "[::1]:1", "not a host"].map(str::to_owned);
    let error = Client::connect(&endpoints, &tls, SECOND).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    for endpoint in &endpoints {
        assert!(shown.contains(endpoint), "{shown}");
    }
    assert!(!shown.contains("hidden"), "{shown}");
}

/// Credentials of a member that is its own CA and administrator.
fn credentials() -> Tls {
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let mut own = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    own.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    let ca_crt = ca.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(ca, ca_key);
    Tls {
        ca: ca_crt,
        crt: own.signed_by(&key, &issuer).unwrap().pem(),
        key: key.serialize_pem(),
    }
}

#[tokio::test]
async fn member_is_healthy_when_it_reads_by_consensus_or_is_a_learner() {
    let directory = tempfile::tempdir().unwrap();
    let secrets = directory.path();
    let missing = check_member("127.0.0.1:1", secrets, SECOND).await;
    let missing = missing.unwrap_err();
    assert!(missing.to_string().contains("ca.crt"), "{missing}");
    assert!(!missing.is_temporary());
    let tls = credentials();
    for (name, text) in [
        ("ca.crt", &tls.ca),
        ("admin.crt", &tls.crt),
        ("admin.key", &tls.key),
    ] {
        std::fs::write(secrets.join(name), text).unwrap();
    }
    let check = async |unreadable: Option<Status>| {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = listener.local_addr().unwrap().to_string();
        let script = Script {
            unreadable,
            ..Default::default()
        };
        let fake = Fake::serve_tls(script, listener, &tls);
        let checked = check_member(&endpoint, secrets, SECOND * 60).await;
        (checked, fake.asked(|asked| asked.calls.clone()))
    };
    let (healthy, calls) = check(None).await;
    healthy.unwrap();
    // The read is linearizable.
    assert_eq!(calls, ["status", "read false"]);
    let learner = "etcdserver: rpc not supported for learner";
    let (learner, _) = check(Some(Status::unavailable(learner))).await;
    learner.unwrap();
    let alone = "etcdserver: request timed out";
    let (alone, _) = check(Some(Status::unavailable(alone))).await;
    let alone = alone.unwrap_err().to_string();
    assert!(alone.contains("request timed out"), "{alone}");
}

#[tokio::test]
async fn members_are_listed_with_and_without_a_quorum() {
    let member = pb::Member {
        id: u64::MAX,
        name: "a".to_owned(),
        peer_ur_ls: vec!["https://192.0.2.1:2380".to_owned()],
        client_ur_ls: Vec::new(),
        is_learner: true,
    };
    let script = Script {
        members: vec![member.clone()],
        added: Some(member),
        ..Default::default()
    };
    let (fake, client) = Fake::start(script).await;
    let members = client.members().await.unwrap();
    assert_eq!((members[0].id, members[0].is_learner), (u64::MAX, true));
    assert_eq!(client.local_members().await.unwrap(), members);
    let urls = vec!["https://192.0.2.1:2380".to_owned()];
    let added = client.add_learner(&urls).await.unwrap();
    assert_eq!((added.member, added.members), (members[0].clone(), members));
    let calls = fake.asked(|asked| asked.calls.clone());
    assert_eq!(
        calls,
        [
            "list true",
            "list false",
            "add [\"https://192.0.2.1:2380\"] true"
        ]
    );
}

#[tokio::test]
async fn hostile_answers_without_required_fields_are_refused() {
    let script = Script {
        status: pb::StatusResponse {
            db_size: -1,
            ..Default::default()
        },
        found: vec![KeyValue {
            key: b"other".to_vec(),
            ..Default::default()
        }],
        lock: Some(Vec::new()),
        ..Default::default()
    };
    let (_, client) = Fake::start(script.clone()).await;
    let errors = [
        client.status().await.unwrap_err(),
        client.members().await.unwrap_err(),
        client.add_learner(&[]).await.unwrap_err(),
        client.get(b"key").await.unwrap_err(),
        client.lock("vip", SECOND, SECOND).await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, EtcdError::Broken { .. }), "{error}");
        assert!(!error.is_temporary(), "{error}");
    }
    for ttl in [1, i64::MAX] {
        let script = Script {
            ttl,
            ..script.clone()
        };
        let (fake, client) = Fake::start(script).await;
        let error = client.lock("vip", SECOND, SECOND).await.unwrap_err();
        assert!(error.to_string().contains("lock's key"), "{error}");
        fake.until(&format!("revoke {LEASE}")).await;
    }
}

#[tokio::test]
async fn hostile_numbers_in_a_status_are_handled() {
    let script = Script {
        status: pb::StatusResponse {
            header: Some(pb::ResponseHeader {
                cluster_id: u64::MAX,
                member_id: 3,
                ..Default::default()
            }),
            db_size: i64::MIN,
            db_size_in_use: i64::MAX,
            ..Default::default()
        },
        alarms: vec![
            pb::AlarmMember {
                member_id: 3,
                alarm: 99,
            },
            pb::AlarmMember {
                member_id: 4,
                alarm: 1,
            },
        ],
        ..Default::default()
    };
    let (fake, client) = Fake::start(script).await;
    let status = client.status().await.unwrap();
    assert_eq!((status.cluster_id, status.member_id), (u64::MAX, 3));
    assert_eq!(
        (status.db_size, status.db_size_in_use),
        (0, i64::MAX as u64)
    );
    let alarms = client.alarms().await.unwrap();
    let kinds: Vec<AlarmKind> = alarms.iter().map(|alarm: &Alarm| alarm.kind).collect();
    assert_eq!(kinds, [AlarmKind::Other(99), AlarmKind::NoSpace]);
    assert_eq!(client.disarm_all().await.unwrap().len(), 4);
    let calls = fake.asked(|asked| asked.calls.clone());
    assert_eq!(
        calls,
        [
            "status",
            "alarm 0 0 0",
            "alarm 0 0 0",
            "alarm 2 3 99",
            "alarm 2 4 1"
        ]
    );
}

proptest! {
    #[test]
    fn hostile_answers_of_etcd_end_in_errors(body in hostile("etcd")) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let client = Garbage::start(&body).await;
            let _ = client.status().await;
            let _ = client.alarms().await;
            let _ = client.snapshot().try_collect::<Vec<_>>().await;
        });
    }
}

#[tokio::test]
async fn hostile_bytes_are_an_error() {
    // A frame is a flag, a four-byte length and a message (gRPC over HTTP/2, "Length-Prefixed-Message").
    let bodies: &[&[u8]] = &[
        b"",
        b"\0",
        b"\0\0\0\0\x05abc",
        b"\0\xff\xff\xff\xff",
        b"\x01\0\0\0\x01a",
        b"\x07\0\0\0\0",
        b"\0\0\0\0\x02\x0a\x7f",
        b"\0\0\0\0\x03\x12\x01\xff",
        b"\0\0\0\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0\0\0\0\0",
        b"HTTP/1.1 400 Bad Request",
    ];
    for body in bodies {
        let client = Garbage::start(body).await;
        let error = client.status().await.unwrap_err();
        assert!(!error.to_string().is_empty());
        let snapshot = client.snapshot().try_collect::<Vec<_>>().await;
        assert!(snapshot.is_err() || *body == b"\0\0\0\0\0", "{body:?}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(&[0xff; 4096]).await;
        }
    });
    let error = client(&address).health().await.unwrap_err();
    assert!(matches!(error, EtcdError::Lost { .. }), "{error}");
}

#[tokio::test]
async fn snapshot_is_streamed_in_pieces() {
    let script = Script {
        snapshot: vec![piece(b"ab", 1), piece(b"c", 0), piece(b"hash", 0)],
        ..Default::default()
    };
    let (_, client) = Fake::start(script).await;
    let stream = client.snapshot();
    drop(client);
    let pieces: Vec<_> = stream.try_collect().await.unwrap();
    assert_eq!(pieces, ["ab", "c", "hash"]);
}

#[tokio::test]
async fn truncated_snapshot_stream_ends_with_an_error() {
    let refused = Err(Status::unavailable("etcdserver: server stopped"));
    for (pieces, stalls, wanted) in [
        (vec![], false, "ended early"),
        (vec![piece(b"ab", 1)], false, "ended early"),
        (vec![piece(b"ab", 1), refused], false, "server stopped"),
        (vec![piece(b"ab", 0)], true, "did not answer within"),
    ] {
        let whole = pieces.iter().filter(|piece| piece.is_ok()).count();
        let script = Script {
            snapshot: pieces,
            stalls,
            ..Default::default()
        };
        let (_, client) = Fake::start(script).await;
        let mut items: Vec<_> = client.snapshot().collect().await;
        let error = items.pop().unwrap().unwrap_err();
        assert!(error.to_string().contains(wanted), "{error}");
        assert_eq!(items.len(), whole);
        assert!(items.iter().all(Result::is_ok));
    }
}

#[tokio::test]
async fn snapshot_stream_has_back_pressure() {
    const PIECES: usize = 4000;
    let script = Script {
        snapshot: vec![piece(&[7; 32 * 1024], 0)],
        repeated: PIECES,
        ..Default::default()
    };
    let (fake, client) = Fake::start(script).await;
    let mut stream = client.snapshot();
    stream.next().await.unwrap().unwrap();
    // Other calls share the connection, and the pieces in flight settle.
    for _ in 0..20 {
        client.alarms().await.unwrap();
    }
    let sent = fake.asked(|asked| asked.pieces);
    assert!(
        sent < PIECES / 4,
        "{sent} pieces are sent although one was read"
    );
}

#[tokio::test]
async fn lock_is_held_until_it_is_unlocked() {
    let (fake, client) = Fake::start(locking(usize::MAX)).await;
    let lock = client.lock("/vip", SECOND, SECOND).await.unwrap();
    assert_eq!(lock.key(), b"/vip/7");
    while fake.asked(|asked| asked.renewals) < 5 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(lock.is_held());
    lock.unlock().await.unwrap();
    let mut calls = fake.asked(|asked| asked.calls.clone());
    calls.retain(|call| *call != format!("renew {LEASE}"));
    assert_eq!(
        calls,
        ["grant 1", "lock /vip 7", "unlock /vip/7", "revoke 7"]
    );
}

#[tokio::test]
async fn lock_is_lost_when_its_lease_expires() {
    let (_, client) = Fake::start(locking(1)).await;
    let mut lock = client.lock("vip", SECOND, SECOND).await.unwrap();
    lock.lost().await;
    assert!(!lock.is_held());
    lock.unlock().await.unwrap();
}

#[tokio::test]
async fn dropped_lock_revokes_its_lease() {
    let (fake, client) = Fake::start(locking(usize::MAX)).await;
    drop(client.lock("vip", SECOND, SECOND).await.unwrap());
    fake.until(&format!("revoke {LEASE}")).await;
}

#[tokio::test]
async fn lock_timeout_or_cancellation_revokes_the_lease() {
    let script = Script {
        lock: None,
        ..locking(usize::MAX)
    };
    let (fake, client) = Fake::start(script.clone()).await;
    let error = client.lock("vip", SECOND, SECOND / 10).await.unwrap_err();
    assert!(matches!(error, EtcdError::LockHeld { .. }), "{error}");
    fake.until(&format!("revoke {LEASE}")).await;

    let (fake, client) = Fake::start(script).await;
    let waiting = tokio::spawn(async move { client.lock("vip", SECOND, SECOND * 60).await });
    fake.until("wait").await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    fake.until(&format!("revoke {LEASE}")).await;
}
