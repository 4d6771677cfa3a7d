//! Tests rounds of queries to local servers.

use std::net::Ipv4Addr;

use tokio::net::UdpSocket;

use super::*;
use crate::ask::tests::serve;
use crate::protected::tests::{Answers, World, header_at};

const HOUR: i64 = 3600;
/// 2026-01-01.
const YEAR_2026: Duration = Duration::from_secs(1_767_225_600);
const YEAR_2031: Duration = Duration::from_secs(1_924_992_000);

fn at(date: Duration) -> Arc<Floor> {
    Arc::new(Floor::new(SystemTime::UNIX_EPOCH + date))
}

fn any_time() -> Arc<Floor> {
    at(Duration::ZERO)
}

/// A server at 127.0.0.`host` whose clock is this many seconds ahead of this machine's.
async fn ahead(host: u8, seconds: i64) -> String {
    let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0))
        .await
        .unwrap();
    let address = socket.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut question = [0; 64];
        while let Ok((_, from)) = socket.recv_from(&mut question).await {
            let answer = header_at(question.first_chunk().unwrap(), seconds);
            socket.send_to(&answer, from).await.unwrap();
        }
    });
    address
}

async fn servers(names: &[&String], floor: Arc<Floor>) -> Servers {
    let mut servers = Servers::new(floor);
    servers.take(names.iter().map(|name| (*name).clone()).collect(), false);
    servers
}

/// The server that an unset clock follows.
async fn followed(servers: &mut Servers) -> Option<String> {
    let mut clock = Discipline::default();
    let (name, _) = servers.round(&mut clock, Instant::now).await?;
    Some(name)
}

#[tokio::test]
async fn server_with_a_time_before_the_image_is_refused_and_another_is_followed() {
    // The server reports 2030.
    let early = serve(None).await.to_string();
    let mut alone = servers(&[&early], at(YEAR_2031)).await;
    assert_eq!(followed(&mut alone).await, None);
    let why = alone.refused().get(&early).unwrap();
    assert!(
        why.contains("before the date of this image (2031-"),
        "{why}"
    );

    let early = serve(None).await.to_string();
    // 2036.
    let (one, other) = (
        ahead(2, 10 * 365 * 24 * HOUR).await,
        ahead(3, 10 * 365 * 24 * HOUR).await,
    );
    let mut several = servers(&[&early, &one, &other], at(YEAR_2031)).await;
    let whose = followed(&mut several).await.unwrap();
    assert!(whose == one || whose == other, "{whose}");
}

#[tokio::test]
async fn time_before_the_known_time_is_refused_with_the_server_name() {
    let server = serve(None).await.to_string();
    let floor = at(YEAR_2026);
    floor.learn(SystemTime::UNIX_EPOCH + YEAR_2031);
    let mut servers = servers(&[&server], floor).await;
    assert_eq!(followed(&mut servers).await, None);
    let why = servers.refused().get(&server).unwrap();
    assert!(why.contains("before the last time this node knew"), "{why}");
    assert!(servers.waits_for().contains("not before the last time"));
}

#[tokio::test]
async fn first_offset_needs_a_majority_of_the_answering_servers() {
    let (liar, one, other) = (ahead(2, HOUR).await, ahead(3, 0).await, ahead(4, 0).await);
    let mut three = servers(&[&liar, &one, &other], any_time()).await;
    let whose = followed(&mut three).await.unwrap();
    assert!(whose == one || whose == other, "{whose}");

    let mut two = servers(&[&liar, &one], any_time()).await;
    assert_eq!(followed(&mut two).await, None);
    let expected = "more than half of the time servers to agree";
    assert_eq!(two.waits_for(), expected);
    let refused: Vec<&String> = two.refused().keys().collect();
    assert_eq!(refused, [&liar, &one]);
}

#[tokio::test]
async fn falseticker_is_named_in_the_status() {
    let (liar, good) = (ahead(2, HOUR).await, [ahead(3, 0).await, ahead(4, 0).await]);
    // The fourth server never answers, so the round waits for all others.
    let dead = "/dev/ptp_none".to_owned();
    let mut four = servers(&[&liar, &good[0], &good[1], &dead], any_time()).await;
    let whose = followed(&mut four).await.unwrap();
    assert!(good.contains(&whose), "{whose}");
    let why = four.refused().get(&liar).unwrap();
    assert!(
        why.starts_with("rejected: its time differs by 3") && why.contains(&whose),
        "{why}"
    );
}

#[tokio::test]
async fn single_answering_server_of_several_is_followed_after_a_bounded_wait() {
    let (good, dead) = (ahead(2, HOUR).await, "/dev/ptp_none".to_owned());
    let mut two = servers(&[&dead, &good], any_time()).await;
    let start = Instant::now();
    let mut clock = Discipline::default();
    for (seconds, is_followed) in [(0, false), (59, false), (60, true)] {
        let now = start + Duration::from_secs(seconds);
        let found = two.round(&mut clock, || now).await;
        assert_eq!(found.is_some(), is_followed, "after {seconds} s");
        if !is_followed {
            let waits_for = two.waits_for();
            assert!(
                waits_for.contains("a second time server to confirm 127.0.0.2"),
                "{waits_for}"
            );
        }
    }
    // Only this server is configured.
    let mut alone = servers(&[&good], any_time()).await;
    assert_eq!(followed(&mut alone).await, Some(good));
}

#[tokio::test]
async fn later_step_needs_a_majority_and_steering_does_not() {
    let (far, near) = (ahead(2, HOUR).await, ahead(3, 0).await);
    let mut clock = Discipline::default();
    clock.synced = true;
    let mut two = servers(&[&far, &near], any_time()).await;
    let (whose, _) = two.round(&mut clock, Instant::now).await.unwrap();
    assert_eq!(whose, near);
    let farther = ahead(4, 2 * HOUR).await;
    let mut two = servers(&[&far, &farther], any_time()).await;
    assert_eq!(two.round(&mut clock, Instant::now).await, None);
    let agreeing = ahead(5, HOUR).await;
    let mut three = servers(&[&far, &farther, &agreeing], any_time()).await;
    let (whose, _) = three.round(&mut clock, Instant::now).await.unwrap();
    assert!(whose == far || whose == agreeing, "{whose}");
}

#[test]
fn new_server_list_clears_refusals() {
    let mut servers = Servers::new(any_time());
    let list = vec!["a".to_owned()];
    assert!(servers.take(list.clone(), false));
    servers.complained.insert("a".to_owned());
    assert!(!servers.take(list, false));
    assert!(!servers.take(vec!["a".to_owned(), "a".to_owned()], false));
    assert!(servers.complained.contains("a"));
    assert!(servers.take(vec!["b".to_owned()], false));
    assert!(servers.complained.is_empty());
}

#[tokio::test]
async fn kiss_of_death_is_honoured_across_a_new_server_list() {
    let rate = serve(Some(b"RATE")).await.to_string();
    let mut servers = servers(&[&rate], any_time()).await;
    assert_eq!(followed(&mut servers).await, None);
    assert!(servers.take(vec![rate.clone(), "b".to_owned()], false));
    let again = ask(&rate, &NAMES, &servers.resting).await;
    assert!(matches!(again, Err(AskError::Rests)), "{again:?}");
}

#[tokio::test]
async fn refusal_of_one_server_does_not_affect_the_others() {
    let rate = serve(Some(b"RATE")).await.to_string();
    let good = [ahead(2, 0).await, ahead(3, 0).await];
    let mut servers = servers(&[&rate, &good[0], &good[1]], any_time()).await;
    let mut clock = Discipline::default();
    let (whose, _) = servers.round(&mut clock, Instant::now).await.unwrap();
    assert!(good.contains(&whose), "{whose}");
    // Two of four are no majority, so the round waits for the refusal.
    let rate = serve(Some(b"RATE")).await.to_string();
    let dead = "/dev/ptp_none".to_owned();
    servers.take(vec![rate, good[0].clone(), good[1].clone(), dead], false);
    let poll = clock.poll;
    servers.round(&mut clock, Instant::now).await.unwrap();
    assert_eq!(clock.poll, poll + 1);
}

#[tokio::test]
async fn server_configured_for_nts_is_followed_only_with_authenticated_answers() {
    let world = World::new("127.0.0.1", Answers::Ahead(HOUR)).await;
    let mut servers = Servers::new(any_time());
    assert!(servers.take(vec![world.name.clone()], true));
    assert!(!servers.take(vec![world.name.clone()], true));
    // Tests have no image with CA certificates.
    servers.proofs = Some(world.proofs(SystemTime::UNIX_EPOCH));
    assert_eq!(followed(&mut servers).await, Some(world.name.clone()));
    let plain = ahead(2, 0).await;
    servers.names = vec![plain];
    assert_eq!(followed(&mut servers).await, None);
    assert!(servers.take(vec![world.name], false) && servers.proofs.is_none());
}
