use dhcproto::v4::{Decodable as _, DhcpOption, Message, OptionCode};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Asking;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 50);
const S: Duration = Duration::from_secs(1);

/// A message that the client sent.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    kind: MessageType,
    xid: u32,
    own: Ipv4Addr,
    requested: Option<Ipv4Addr>,
    server: Option<Ipv4Addr>,
    /// Destination, unless it is everybody.
    to: Option<Ipv4Addr>,
}

struct Client {
    machine: Machine,
    now: Duration,
}

impl Client {
    fn new(former: Option<Ipv4Addr>) -> Client {
        let identity = Identity::new(&Asking::default(), MAC);
        let now = S * 100;
        Client {
            machine: Machine::new(identity, Random::of(1), former, None, now),
            now,
        }
    }

    /// A client with a lease of an hour, and the lease's begin.
    fn bound() -> (Client, Duration) {
        let mut client = Client::new(None);
        client.step();
        client.says(Kind::Offer, lease());
        let given = client.now;
        client.says(Kind::Ack, lease());
        client.probes();
        (client, given)
    }

    /// Lets time pass until the next step.
    fn step(&mut self) -> Vec<Action> {
        self.now = self.machine.deadline();
        self.machine.handle(Event::Timer, self.now)
    }

    /// An answer to the last message.
    fn says(&mut self, kind: Kind, lease: Lease) -> Vec<Action> {
        self.answers(kind, lease, self.machine.xid, false)
    }

    fn answers(&mut self, kind: Kind, lease: Lease, xid: u32, is_rapid: bool) -> Vec<Action> {
        let answer = Answer {
            kind,
            xid,
            is_rapid,
            lease,
        };
        self.machine
            .handle(Event::Answer(Box::new(answer)), self.now)
    }

    /// Ends the probes, the first of which is sent; returns what the client does then.
    fn probes(&mut self) -> Vec<Action> {
        for _ in 1..PROBES {
            assert_eq!(self.step(), [Action::Probe(OWN)]);
        }
        self.step()
    }

    fn held(&self) -> Option<Ipv4Addr> {
        self.machine.held.as_ref().map(|lease| lease.address)
    }
}

fn lease() -> Lease {
    Lease {
        time: Some(3600),
        ..Lease::new(OWN, SERVER)
    }
}

fn by(server: Ipv4Addr) -> Lease {
    Lease { server, ..lease() }
}

/// The only message among the actions.
fn sent(actions: &[Action]) -> Sent {
    let mut found = actions.iter().filter_map(|action| match action {
        Action::Broadcast { from, message } => Some((*from, None, message)),
        Action::Unicast { from, to, message } => Some((*from, Some(*to), message)),
        _ => None,
    });
    let (from, to, bytes) = found.next().unwrap_or_else(|| panic!("{actions:?}"));
    assert_eq!(found.next(), None);
    let message = Message::from_bytes(bytes).unwrap();
    assert_eq!((message.chaddr(), message.ciaddr()), (&MAC[..], from));
    let address = |code| match message.opts().get(code)? {
        DhcpOption::RequestedIpAddress(address) | DhcpOption::ServerIdentifier(address) => {
            Some(*address)
        }
        other => panic!("{other:?}"),
    };
    Sent {
        kind: message.opts().msg_type().unwrap(),
        xid: message.xid(),
        own: from,
        requested: address(OptionCode::RequestedIpAddress),
        server: address(OptionCode::ServerIdentifier),
        to,
    }
}

fn told(actions: &[Action]) -> Vec<&News<Lease>> {
    let told = actions.iter().filter_map(|action| match action {
        Action::Tell(news) => Some(news),
        _ => None,
    });
    told.collect()
}

fn is_discover(actions: &[Action]) -> bool {
    sent(actions).kind == MessageType::Discover
}

/// Whether the time differs from the wanted one by this part at most.
fn about(time: Duration, wanted: Duration, spread: Duration) -> bool {
    time >= wanted.saturating_sub(spread) && time <= wanted + spread
}

#[test]
fn lease_is_selected_requested_probed_and_taken() {
    let mut client = Client::new(None);
    assert_eq!(client.machine.listens(), Listens::Nothing);
    let discover = sent(&client.step());
    assert_eq!(client.now, S * 100);
    let wanted = Sent {
        kind: MessageType::Discover,
        xid: discover.xid,
        own: Ipv4Addr::UNSPECIFIED,
        requested: None,
        server: None,
        to: None,
    };
    assert_eq!(discover, wanted);
    assert_eq!(client.machine.listens(), Listens::Answers);
    let request = sent(&client.says(Kind::Offer, lease()));
    let wanted = Sent {
        kind: MessageType::Request,
        requested: Some(OWN),
        server: Some(SERVER),
        ..wanted
    };
    assert_eq!(request, wanted);
    let given = client.now;
    client.now += S;
    assert_eq!(client.says(Kind::Ack, lease()), [Action::Probe(OWN)]);
    assert_eq!(client.machine.listens(), Listens::Claims(OWN));
    let end = given + S * 3600;
    let news = News::Lease(Box::new(lease()), end);
    assert_eq!(client.probes(), [Action::Tell(news)]);
    assert!(client.now - given < S * 2);
    assert_eq!(client.machine.listens(), Listens::Nothing);
    assert!(about(client.machine.deadline(), given + S * 1800, S * 45));
}

#[test]
fn unanswered_client_asks_ever_less_often_and_says_so() {
    let mut client = Client::new(Some(OWN));
    client.machine.state = State::Waiting(None);
    let mut complaints = 0;
    for wait in [4, 8, 16, 32, 64, 64, 64] {
        let actions = client.step();
        assert_eq!(sent(&actions).requested, Some(OWN));
        complaints += told(&actions).len();
        assert!(about(client.machine.deadline() - client.now, S * wait, S));
    }
    assert_eq!(complaints, 1);
    // A server that is gone after its offer.
    client.says(Kind::Offer, lease());
    for _ in 1..REQUESTS {
        assert_eq!(sent(&client.step()).kind, MessageType::Request);
    }
    assert!(is_discover(&client.step()));
}

#[test]
fn former_address_is_requested_first() {
    let reboot = || {
        let mut client = Client::new(Some(OWN));
        let request = sent(&client.step());
        assert_eq!(request.kind, MessageType::Request);
        assert_eq!((request.requested, request.server), (Some(OWN), None));
        assert_eq!((request.own, request.to), (Ipv4Addr::UNSPECIFIED, None));
        client
    };
    let mut client = reboot();
    assert_eq!(client.says(Kind::Ack, lease()), [Action::Probe(OWN)]);
    client.probes();
    assert_eq!(client.held(), Some(OWN));

    // Silence: any address, preferably the former one.
    let mut client = reboot();
    let began = client.now;
    assert_eq!(sent(&client.step()).kind, MessageType::Request);
    let discover = sent(&client.step());
    assert_eq!(
        (discover.kind, discover.requested),
        (MessageType::Discover, Some(OWN))
    );
    assert!(client.now - began <= S * 5);

    // A refusal: any address.
    let mut client = reboot();
    assert_eq!(client.says(Kind::Nak, lease()), []);
    let discover = sent(&client.step());
    assert_eq!(
        (discover.kind, discover.requested),
        (MessageType::Discover, None)
    );
}

#[test]
fn rapid_commit_skips_the_request() {
    let mut client = Client::new(None);
    let xid = sent(&client.step()).xid;
    assert_eq!(client.answers(Kind::Ack, lease(), xid, false), []);
    assert_eq!(
        client.answers(Kind::Ack, lease(), xid, true),
        [Action::Probe(OWN)]
    );
}

#[test]
fn lease_is_renewed_with_its_server_then_with_any_and_ends() {
    let (mut client, given) = Client::bound();
    let renewal = sent(&client.step());
    assert!(about(client.now, given + S * 1800, S * 45));
    assert_eq!(
        (renewal.kind, renewal.to),
        (MessageType::Request, Some(SERVER))
    );
    assert_eq!(
        (renewal.own, renewal.requested, renewal.server),
        (OWN, None, None)
    );
    let wait = client.machine.deadline() - client.now;
    assert!(about(wait, S * 675, S * 70), "{wait:?}");
    loop {
        let again = sent(&client.step());
        if again.to.is_none() {
            break;
        }
        assert_eq!(again, renewal);
    }
    assert!(about(client.now, given + S * 3150, S * 80));
    assert_eq!(client.machine.state, State::Rebinding);
    let mut rebinds = 0;
    while client.held().is_some() {
        let actions = client.step();
        match told(&actions).as_slice() {
            [] => {
                let rebind = sent(&actions);
                assert_eq!(
                    (rebind.kind, rebind.to, rebind.own),
                    (MessageType::Request, None, OWN)
                );
                assert_eq!((rebind.requested, rebind.server), (None, None));
                rebinds += 1;
            }
            news => assert_eq!(news, [&News::Over(Over::Expired)]),
        }
    }
    assert!(rebinds > 0);
    assert_eq!(client.now, given + S * 3600);
    let discover = sent(&client.step());
    assert_eq!(
        (discover.kind, discover.requested),
        (MessageType::Discover, Some(OWN))
    );
}

#[test]
fn only_the_server_of_the_lease_renews_it_and_any_server_rebinds_it() {
    let (mut client, _) = Client::bound();
    client.step();
    assert_eq!(client.says(Kind::Ack, by(OTHER)), []);
    let news = client.says(Kind::Ack, lease());
    let end = client.now + S * 3600;
    assert_eq!(news, [Action::Tell(News::Lease(Box::new(lease()), end))]);
    while client.machine.state != State::Rebinding {
        client.step();
    }
    let end = client.now + S * 3600;
    let news = client.says(Kind::Ack, by(OTHER));
    assert_eq!(news, [Action::Tell(News::Lease(Box::new(by(OTHER)), end))]);
    client.step();
    assert_eq!(client.says(Kind::Ack, lease()), []);
}

#[test]
fn only_the_server_of_the_lease_revokes_it() {
    let revoked = [Action::Tell(News::Over(Over::Revoked))];
    let (mut client, _) = Client::bound();
    client.step();
    assert_eq!(client.says(Kind::Nak, by(OTHER)), []);
    assert_eq!(client.machine.state, State::Renewing);
    assert_eq!(client.says(Kind::Nak, lease()), revoked);
    assert!(is_discover(&client.step()));

    // Another server gives a lease of its own before this one ends.
    let (mut client, given) = Client::bound();
    while client.machine.state != State::Rebinding {
        client.step();
    }
    assert_eq!(client.says(Kind::Nak, by(OTHER)), []);
    assert!(is_discover(&client.step()));
    assert_eq!(
        (client.held(), client.machine.end),
        (Some(OWN), Some(given + S * 3600))
    );
    while client.held().is_some() {
        client.step();
    }
    assert_eq!(client.now, given + S * 3600);
}

#[test]
fn refused_requests_are_repeated_ever_less_often() {
    let mut client = Client::new(None);
    for wait in [3, 6, 12, 24, 48, 64, 64] {
        assert!(is_discover(&client.step()));
        client.says(Kind::Offer, lease());
        // Of another server than the chosen one.
        assert_eq!(client.says(Kind::Nak, by(OTHER)), []);
        assert_eq!(client.says(Kind::Ack, by(OTHER)), []);
        assert_eq!(client.machine.listens(), Listens::Answers);
        assert_eq!(client.says(Kind::Nak, lease()), []);
        assert!(about(
            client.machine.deadline() - client.now,
            S * wait,
            MOST_DELAY
        ));
    }
}

#[test]
fn answers_to_other_exchanges_are_ignored() {
    let mut client = Client::new(None);
    let xid = sent(&client.step()).xid;
    for kind in [Kind::Offer, Kind::Ack, Kind::Nak] {
        assert_eq!(client.answers(kind, lease(), xid ^ 1, true), []);
    }
    client.says(Kind::Offer, lease());
    client.says(Kind::Ack, lease());
    client.probes();
    let renewal = sent(&client.step());
    assert_ne!(renewal.xid, xid);
    assert_eq!(client.answers(Kind::Nak, lease(), xid, false), []);
    assert_eq!(client.held(), Some(OWN));
}

#[test]
fn address_of_another_host_is_declined() {
    let mut client = Client::new(Some(OWN));
    let mut waits = Vec::new();
    for _ in 0..4 {
        client.step();
        if let State::Selecting = client.machine.state {
            client.says(Kind::Offer, lease());
        }
        client.says(Kind::Ack, lease());
        client.step();
        let actions = client.machine.handle(Event::Claim(OTHER_MAC), client.now);
        let decline = sent(&actions);
        assert_eq!(decline.kind, MessageType::Decline);
        assert_eq!(
            (decline.requested, decline.server),
            (Some(OWN), Some(SERVER))
        );
        assert_eq!((decline.own, decline.to), (Ipv4Addr::UNSPECIFIED, None));
        let [News::Complaint(what)] = &*told(&actions) else {
            panic!("{actions:?}");
        };
        assert!(
            what.contains("02:00:00:00:00:09 has the address 10.0.0.50"),
            "{what}"
        );
        assert_eq!((client.held(), client.machine.former), (None, None));
        waits.push((client.machine.deadline() - client.now).as_secs());
    }
    assert_eq!(waits, [10, 10, 12, 24]);
}

#[test]
fn lease_without_a_time_gets_a_default_that_is_told_once() {
    let timeless = || Lease::new(OWN, SERVER);
    for time in [None, Some(0)] {
        let mut client = Client::new(None);
        client.step();
        client.says(Kind::Offer, timeless());
        let given = client.now;
        client.says(Kind::Ack, Lease { time, ..timeless() });
        let actions = client.probes();
        let [News::Complaint(what), News::Lease(_, end)] = &*told(&actions) else {
            panic!("{actions:?}");
        };
        assert!(what.contains("the server 10.0.0.1 has no lifetime; the node assumes 30 minutes"));
        assert_eq!(*end, given + S * 1800);
        client.step();
        let renewed = client.says(Kind::Ack, Lease { time, ..timeless() });
        assert_eq!(told(&renewed).len(), 1);
    }
}

/// T1, T2 and end of a lease, in seconds from its begin.
fn times(time: u32, renew: Option<u32>, rebind: Option<u32>) -> [f64; 3] {
    let mut client = Client::new(None);
    client.step();
    client.says(Kind::Offer, lease());
    let given = client.now;
    let time = Some(time);
    client.says(
        Kind::Ack,
        Lease {
            time,
            renew,
            rebind,
            ..lease()
        },
    );
    client.probes();
    let end = client.machine.end.unwrap();
    [client.machine.timer, client.machine.rebind, end].map(|time| (time - given).as_secs_f64())
}

#[test]
fn times_of_a_lease_are_in_order_and_vary() {
    for (time, renew, rebind, wanted) in [
        (800, None, None, [400.0, 700.0]),
        (800, Some(100), None, [100.0, 700.0]),
        (800, Some(100), Some(200), [100.0, 200.0]),
        (800, None, Some(200), [200.0, 200.0]),
        // Nonsense of the server.
        (800, Some(0), Some(0), [400.0, 700.0]),
        (800, Some(750), Some(900), [400.0, 700.0]),
        (800, Some(300), Some(200), [200.0, 200.0]),
    ] {
        let [t1, t2, end] = times(time, renew, rebind);
        for (time, wanted) in [t1, t2].into_iter().zip(wanted) {
            assert!((time - wanted).abs() <= wanted / 40.0, "{time} {wanted}");
        }
        assert!(t1 <= t2 && t2 <= end, "{t1} {t2} {end}");
        assert!((end - 800.0).abs() < 0.001);
    }
    // A server cannot keep the node busy.
    assert!(times(2, Some(1), None)[0] >= 1.0);
    let [t1, t2, end] = times(FOR_EVER, None, None);
    assert!(
        [t1, t2, end].iter().all(|time| *time > 1e9),
        "{t1} {t2} {end}"
    );
    let [t1, _, end] = times(FOR_EVER, Some(600), None);
    assert!(t1 < 700.0 && end > 1e9);
}

#[test]
fn endless_lease_is_renewed_when_the_server_says_so() {
    let mut client = Client::new(None);
    client.step();
    client.says(Kind::Offer, lease());
    let endless = Lease {
        time: Some(FOR_EVER),
        renew: Some(60),
        ..lease()
    };
    client.says(Kind::Ack, endless);
    client.probes();
    for _ in 0..5 {
        assert_eq!(sent(&client.step()).to, Some(SERVER));
        assert!(client.machine.deadline() - client.now < S * 3700);
    }
}

#[test]
fn new_carrier_asks_whether_the_lease_holds() {
    let (mut client, given) = Client::bound();
    assert_eq!(client.machine.handle(Event::Carrier, client.now), []);
    let request = sent(&client.step());
    assert_eq!(
        (request.kind, request.requested),
        (MessageType::Request, Some(OWN))
    );
    assert_eq!(
        (request.own, request.server, request.to),
        (Ipv4Addr::UNSPECIFIED, None, None)
    );
    // The address is in use here and needs no probe.
    let end = client.now + S * 3600;
    let news = client.says(Kind::Ack, by(OTHER));
    assert_eq!(news, [Action::Tell(News::Lease(Box::new(by(OTHER)), end))]);

    // In a network whose server refuses the address, the lease holds until there is another.
    let _ = given;
    client.machine.handle(Event::Carrier, client.now);
    client.step();
    assert_eq!(client.says(Kind::Nak, lease()), []);
    assert_eq!(client.held(), Some(OWN));
    assert!(is_discover(&client.step()));
    let other = Lease {
        address: Ipv4Addr::new(10, 9, 0, 7),
        ..lease()
    };
    client.says(Kind::Offer, other.clone());
    client.says(Kind::Ack, other.clone());
    for _ in 0..PROBES {
        client.step();
    }
    assert_eq!(client.held(), Some(other.address));
}

#[test]
fn useless_addresses_are_refused_and_told_once() {
    let useless = || Lease {
        address: Ipv4Addr::LOCALHOST,
        ..lease()
    };
    let mut client = Client::new(None);
    client.step();
    let actions = client.says(Kind::Offer, useless());
    let [News::Complaint(what)] = &*told(&actions) else {
        panic!("{actions:?}");
    };
    assert_eq!(
        what,
        "a server offers 127.0.0.1, which is not a valid host address"
    );
    assert_eq!(client.says(Kind::Offer, useless()), []);
    assert_eq!(
        sent(&client.says(Kind::Offer, lease())).requested,
        Some(OWN)
    );

    let (mut client, _) = Client::bound();
    client.step();
    assert_eq!(told(&client.says(Kind::Ack, useless())).len(), 1);
    assert_eq!(client.held(), Some(OWN));
    assert!(is_discover(&client.step()));
    client.says(Kind::Offer, lease());
    let news = client.says(Kind::Ack, lease());
    assert!(matches!(&*told(&news), [News::Lease(..)]), "{news:?}");
}

#[test]
fn lease_of_an_earlier_client_expires() {
    let identity = Identity::new(&Asking::default(), MAC);
    let mut machine = Machine::new(identity, Random::of(1), None, Some(S), Duration::ZERO);
    let mut actions = Vec::new();
    while machine.end.is_some() {
        actions.extend(machine.handle(Event::Timer, machine.deadline()));
    }
    assert!(is_discover(&actions));
    assert_eq!(told(&actions), [&News::Over(Over::Expired)]);
}

fn named(name: &str) -> Lease {
    Lease {
        hostname: Some(name.to_owned()),
        ..lease()
    }
}

/// The name that the only message among the actions tells.
fn name(actions: &[Action]) -> Option<String> {
    let message = actions.iter().find_map(|action| match action {
        Action::Broadcast { message, .. } | Action::Unicast { message, .. } => Some(message),
        _ => None,
    });
    let message = Message::from_bytes(message.unwrap()).unwrap();
    match message.opts().get(OptionCode::Hostname) {
        Some(DhcpOption::Hostname(name)) => Some(name.clone()),
        _ => None,
    }
}

/// The name that the only lease among the actions gives the node.
fn given(actions: &[Action]) -> Option<String> {
    match &*told(actions) {
        [News::Lease(lease, _)] => lease.hostname.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn server_without_a_name_for_the_node_is_told_its_name() {
    let mut client = Client::new(None);
    client.machine.name.own = Some("n1".to_owned());
    assert_eq!(name(&client.step()), None);
    assert_eq!(name(&client.says(Kind::Offer, lease())).unwrap(), "n1");
    // A server that repeats the name has none of its own.
    client.says(Kind::Ack, named("n1.example.com"));
    assert_eq!(given(&client.probes()), None);
    assert!(client.machine.deadline() > client.now + TELL_WAIT);
    // A new name, and then one of the server, count from the next renewal.
    client.machine.name.own = Some("n2".to_owned());
    assert_eq!(name(&client.step()).unwrap(), "n2");
    assert_eq!(given(&client.says(Kind::Ack, named("n7"))).unwrap(), "n7");
    client.machine.name.own = Some("n7".to_owned());
    assert_eq!(name(&client.step()), None);
}

#[test]
fn name_of_the_server_is_not_told_back_until_another_one_wins() {
    let mut client = Client::new(None);
    client.machine.name.own = Some("generated".to_owned());
    client.step();
    assert_eq!(name(&client.says(Kind::Offer, named("n7"))), None);
    client.says(Kind::Ack, named("n7"));
    assert_eq!(given(&client.probes()).unwrap(), "n7");
    client.machine.name.own = Some("configured".to_owned());
    assert_eq!(name(&client.step()).unwrap(), "configured");
}

#[test]
fn client_that_ignores_names_tells_its_own() {
    let mut client = Client::new(None);
    client.machine.name = Name::new(true);
    client.machine.name.own = Some("n1".to_owned());
    client.step();
    assert_eq!(name(&client.says(Kind::Offer, named("n7"))).unwrap(), "n1");
    client.says(Kind::Ack, named("n7"));
    assert_eq!(given(&client.probes()), None);
}

#[test]
fn name_follows_soon_after_a_lease_without_an_offer() {
    let mut client = Client::new(Some(OWN));
    client.machine.name.own = Some("n1".to_owned());
    assert_eq!(name(&client.step()), None);
    client.says(Kind::Ack, lease());
    client.probes();
    assert_eq!(client.machine.deadline(), client.now + TELL_WAIT);
    assert_eq!(name(&client.step()).unwrap(), "n1");
    client.says(Kind::Ack, lease());
    assert!(client.machine.deadline() > client.now + TELL_WAIT);
}

fn event() -> impl Strategy<Value = (u8, Lease, bool)> {
    let address = prop_oneof![
        Just(OWN),
        Just(OTHER),
        Just(Ipv4Addr::UNSPECIFIED),
        any::<Ipv4Addr>()
    ];
    let server = prop_oneof![Just(SERVER), Just(OTHER)];
    let time = prop_oneof![
        Just(None),
        (0_u32..10).prop_map(Some),
        any::<u32>().prop_map(Some)
    ];
    let times = [time.clone(), time.clone(), time];
    (0_u8..9, address, server, times, any::<bool>()).prop_map(
        |(kind, address, server, [time, renew, rebind], is_rapid)| {
            let lease = Lease {
                time,
                renew,
                rebind,
                ..Lease::new(address, server)
            };
            (kind, lease, is_rapid)
        },
    )
}

proptest! {
    #[test]
    fn hostile_servers_neither_stop_the_client_nor_keep_it_busy(events in vec(event(), 0..60)) {
        let mut client = Client::new(None);
        let mut has_lease = false;
        for (kind, lease, is_rapid) in events {
            let xid = client.machine.xid;
            let actions = match kind {
                0 | 1 => client.answers(Kind::Offer, lease, xid, is_rapid),
                2 | 3 => client.answers(Kind::Ack, lease, xid, is_rapid),
                4 => client.answers(Kind::Nak, lease, xid, is_rapid),
                5 => client.machine.handle(Event::Claim(OTHER_MAC), client.now),
                6 => client.machine.handle(Event::Carrier, client.now),
                _ => client.step(),
            };
            prop_assert!(actions.len() <= 4, "{actions:?}");
            for news in told(&actions) {
                match news {
                    News::Lease(lease, end) => {
                        has_lease = true;
                        prop_assert!(useless(lease.address).is_none());
                        prop_assert!(*end > Duration::ZERO);
                    }
                    News::Over(_) => prop_assert!(mem::take(&mut has_lease)),
                    News::Complaint(_) => {}
                }
            }
            prop_assert_eq!(has_lease, client.machine.end.is_some());
            prop_assert!(client.machine.deadline() > client.now, "{:?}", client.machine);
            if client.machine.deadline() > Duration::from_secs(1 << 40) {
                // A lease without an end: only a new carrier changes something.
                client.machine.handle(Event::Carrier, client.now);
            }
        }
    }
}
