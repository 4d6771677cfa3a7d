//! Tests of a member that leaves, against two fake members.

use std::time::Duration;

use tonic::Status;

use crate::client::Client;
use crate::error::{Attempt, EtcdError};
use crate::fake::{Fake, Script};
use crate::leave::{LeaveError, Leaver, Times, leave_within};
use crate::wire::etcdserverpb as pb;

const OWN: &str = "127.0.0.1:2379";
const OTHER: &str = "10.0.0.1:2379";
const SOON: Times = Times {
    all: Duration::from_secs(30),
    pause: Duration::from_millis(1),
};

fn member(id: u64, name: &str, host: &str) -> pb::Member {
    pb::Member {
        id,
        name: name.to_owned(),
        peer_ur_ls: vec![format!("https://{host}:2380")],
        client_ur_ls: vec![format!("https://{host}:2379")],
        is_learner: false,
    }
}

/// The cluster of the tests: this node has the member 2, another one the member 1.
fn script() -> Script {
    Script {
        members: vec![member(1, "cp-1", "10.0.0.1"), member(2, "cp-2", "10.0.0.2")],
        status: pb::StatusResponse {
            header: Some(pb::ResponseHeader {
                member_id: 2,
                ..Default::default()
            }),
            leader: 1,
            ..Default::default()
        },
        ..Default::default()
    }
}

fn leaver() -> Leaver {
    Leaver {
        endpoint: OWN.to_owned(),
        others: vec![OTHER.to_owned()],
        name: "cp-2".to_owned(),
        peer_urls: vec!["https://10.0.0.2:2380".to_owned()],
    }
}

/// Leaves a cluster whose members answer at these endpoints.
async fn leaves(
    times: Times,
    known: &[(&str, &Client)],
    leaver: &Leaver,
) -> Result<(), LeaveError> {
    let connect = |endpoints: Vec<String>| {
        let found = endpoints.iter().find_map(|endpoint| {
            let mut known = known.iter();
            known
                .find(|(at, _)| at == endpoint)
                .map(|(_, client)| *client)
        });
        let refused = Attempt {
            endpoint: endpoints.join(", "),
            why: "connection refused".to_owned(),
            is_refused: true,
        };
        let answer = found.cloned().ok_or(EtcdError::Connect(vec![refused]));
        async { answer }
    };
    leave_within(times, connect, leaver).await
}

fn removals(fake: &Fake) -> usize {
    fake.asked(|asked| {
        let calls = asked.calls.iter();
        calls.filter(|call| *call == "remove 2").count()
    })
}

#[tokio::test]
async fn another_member_removes_the_one_that_leaves() {
    let (own, own_client) = Fake::start(script()).await;
    let (other, other_client) = Fake::start(script()).await;
    let known = [(OWN, &own_client), (OTHER, &other_client)];
    leaves(SOON, &known, &leaver()).await.unwrap();
    assert_eq!((removals(&own), removals(&other)), (0, 1));
}

#[tokio::test]
async fn removal_is_repeated_while_etcd_is_unhealthy_or_ends() {
    let refused = ["unhealthy cluster", "server stopped"];
    let refused = refused.map(|text| Status::unavailable(format!("etcdserver: {text}")));
    let (other, other_client) = Fake::start(Script {
        removals: refused.into(),
        ..script()
    })
    .await;
    let known = [(OWN, &other_client), (OTHER, &other_client)];
    leaves(SOON, &known, &leaver()).await.unwrap();
    assert_eq!(removals(&other), 3);
}

#[tokio::test]
async fn refused_removal_is_not_repeated() {
    let text = "etcdserver: re-configuration failed due to not enough started members";
    let (other, client) = Fake::start(Script {
        removals: vec![Status::failed_precondition(text)],
        ..script()
    })
    .await;
    let known = [(OWN, &client), (OTHER, &client)];
    let error = leaves(SOON, &known, &leaver()).await.unwrap_err();
    assert!(error.to_string().contains("not enough started"), "{error}");
    assert_eq!(removals(&other), 1);
}

#[tokio::test]
async fn attempts_end_with_their_time() {
    let (other, client) = Fake::start(Script {
        removals: vec![Status::unavailable("etcdserver: unhealthy cluster"); 100],
        ..script()
    })
    .await;
    let known = [(OWN, &client), (OTHER, &client)];
    let once = Times {
        all: Duration::ZERO,
        pause: Duration::from_secs(60),
    };
    let error = leaves(once, &known, &leaver()).await.unwrap_err();
    assert!(error.to_string().contains("unhealthy cluster"), "{error}");
    assert_eq!(removals(&other), 1);
}

#[tokio::test]
async fn member_that_was_removed_already_has_left() {
    // Its own etcd does not answer any more, and the others do not list it.
    let (other, client) = Fake::start(Script {
        members: vec![member(1, "cp-1", "10.0.0.1"), member(3, "cp-3", "10.0.0.3")],
        ..script()
    })
    .await;
    leaves(SOON, &[(OTHER, &client)], &leaver()).await.unwrap();
    assert_eq!(removals(&other), 0);
    let (_, client) = Fake::start(Script {
        removals: vec![Status::not_found("etcdserver: member not found")],
        ..script()
    })
    .await;
    let known = [(OWN, &client), (OTHER, &client)];
    leaves(SOON, &known, &leaver()).await.unwrap();
}

#[tokio::test]
async fn member_that_does_not_answer_is_found_by_its_url_and_never_by_its_name() {
    let (other, client) = Fake::start(script()).await;
    leaves(SOON, &[(OTHER, &client)], &leaver()).await.unwrap();
    assert_eq!(removals(&other), 1);
    let moved = Leaver {
        peer_urls: vec!["https://10.0.0.9:2380".to_owned()],
        ..leaver()
    };
    let error = leaves(SOON, &[(OTHER, &client)], &moved).await.unwrap_err();
    assert!(matches!(error, LeaveError::Unclear(2, _)), "{error}");
    assert_eq!(removals(&other), 1);
}

#[tokio::test]
async fn member_that_is_silent_and_alone_is_given_up_at_once() {
    let alone = Leaver {
        others: Vec::new(),
        ..leaver()
    };
    let error = leaves(SOON, &[], &alone).await.unwrap_err();
    assert!(matches!(error, LeaveError::Alone(_)), "{error}");
}

#[tokio::test]
async fn last_member_stays() {
    let (own, client) = Fake::start(Script {
        members: vec![member(2, "cp-2", "10.0.0.2")],
        ..script()
    })
    .await;
    let error = leaves(SOON, &[(OWN, &client)], &leaver())
        .await
        .unwrap_err();
    assert!(matches!(error, LeaveError::Last), "{error}");
    assert_eq!(removals(&own), 0);
}

#[tokio::test]
async fn member_advertises_other_urls_only_when_they_differ() {
    let (fake, client) = Fake::start(script()).await;
    let urls = |hosts: &[&str]| -> Vec<String> {
        let hosts = hosts.iter();
        hosts.map(|host| format!("https://{host}:2380")).collect()
    };
    assert!(!client.advertise(&urls(&["10.0.0.2"])).await.unwrap());
    assert!(
        client
            .advertise(&urls(&["10.0.0.9", "10.0.0.2"]))
            .await
            .unwrap()
    );
    let updates = fake.asked(|asked| {
        let calls = asked.calls.iter();
        let updates = calls.filter(|call| call.starts_with("update"));
        updates.cloned().collect::<Vec<_>>()
    });
    let expected = r#"update 2 ["https://10.0.0.9:2380", "https://10.0.0.2:2380"]"#;
    assert_eq!(updates, [expected]);
}

#[test]
fn current_addresses_of_a_member_come_before_published_ones() {
    let moved = pb::Member {
        peer_ur_ls: vec!["https://10.0.0.9:2380".to_owned()],
        ..member(1, "cp-1", "10.0.0.1")
    };
    let hosts = crate::Member::from(moved).hosts().into_iter();
    let hosts: Vec<String> = hosts.map(|host| host.to_string()).collect();
    assert_eq!(hosts, ["10.0.0.9", "10.0.0.1"]);
    let same = crate::Member::from(member(1, "cp-1", "[fd00::1]"));
    assert_eq!(
        same.hosts(),
        ["fd00::1".parse::<std::net::IpAddr>().unwrap()]
    );
}
