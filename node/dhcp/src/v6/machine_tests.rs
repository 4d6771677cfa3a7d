use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

static SERVER: [u8; 4] = [0, 3, 0, 1];
static OTHER: [u8; 4] = [0, 3, 0, 2];
const OWN: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0x50);
const S: Duration = Duration::from_secs(1);

struct Client {
    machine: Machine,
    now: Duration,
}

impl Client {
    fn new(former: Option<Ipv6Addr>) -> Client {
        let identity = Identity {
            duid: vec![0, 4, 7],
            iaid: 1,
        };
        let now = S * 100;
        Client {
            machine: Machine::new(identity, Random::of(1), former, None, now),
            now,
        }
    }

    /// A client with a lease, and the lease's begin.
    fn bound() -> (Client, Duration) {
        let mut client = Client::new(None);
        client.step();
        client.says(ADVERTISE, Some(lease()), &SERVER);
        let given = client.now;
        client.says(REPLY, Some(lease()), &SERVER);
        (client, given)
    }

    fn step(&mut self) -> Vec<Action> {
        self.now = self.machine.deadline();
        self.machine.handle(Event::Timer, self.now)
    }

    /// An answer to the last message.
    fn says(&mut self, kind: u8, lease: Option<Lease>, server: &[u8]) -> Vec<Action> {
        self.answers(kind, lease, server, &[])
    }

    fn answers(
        &mut self,
        kind: u8,
        lease: Option<Lease>,
        server: &[u8],
        withdrawn: &[Ipv6Addr],
    ) -> Vec<Action> {
        let answer = Answer {
            kind,
            id: self.machine.id,
            server: server.to_owned(),
            lease: lease.map(|lease| Lease {
                server: server.to_owned(),
                ..lease
            }),
            withdrawn: withdrawn.to_owned(),
        };
        self.machine
            .handle(Event::Answer(Box::new(answer)), self.now)
    }

    fn held(&self) -> Option<Ipv6Addr> {
        self.machine.held.as_ref().map(|lease| lease.address)
    }
}

fn lease() -> Lease {
    Lease {
        address: OWN,
        server: SERVER.to_vec(),
        renew: 0,
        rebind: 0,
        preferred: 1000,
        valid: 2000,
        name_servers: Vec::new(),
        search: Vec::new(),
        time_servers: Vec::new(),
    }
}

/// Type of the only message among the actions, whether it is for the server, and whether it requests the address.
fn sent(actions: &[Action]) -> (u8, bool, bool) {
    let found: Vec<_> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Send(message) => Some(message),
            Action::Tell(_) => None,
        })
        .collect();
    let [message] = found.as_slice() else {
        panic!("{actions:?}");
    };
    let has = |what: &[u8]| message.windows(what.len()).any(|found| found == what);
    (message[0], has(&SERVER), has(&OWN.octets()))
}

fn told(actions: &[Action]) -> Vec<&News<Lease>> {
    let told = actions.iter().filter_map(|action| match action {
        Action::Tell(news) => Some(news),
        Action::Send(_) => None,
    });
    told.collect()
}

fn about(time: Duration, wanted: Duration) -> bool {
    time >= wanted * 9 / 10 && time <= wanted * 11 / 10
}

#[test]
fn lease_is_solicited_and_requested() {
    let mut client = Client::new(None);
    assert!(!client.machine.listens());
    assert_eq!(sent(&client.step()), (SOLICIT, false, false));
    assert_eq!(client.says(REPLY, Some(lease()), &SERVER), []);
    assert_eq!(client.says(ADVERTISE, None, &SERVER), []);
    let actions = client.says(ADVERTISE, Some(lease()), &SERVER);
    assert_eq!(sent(&actions), (REQUEST, true, true));
    assert_eq!(client.says(REPLY, Some(lease()), &OTHER), []);
    assert!(client.machine.listens());
    let end = client.now + S * 2000;
    let news = client.says(REPLY, Some(lease()), &SERVER);
    assert_eq!(news, [Action::Tell(News::Lease(Box::new(lease()), end))]);
    assert!(!client.machine.listens());
    assert_eq!(client.machine.deadline(), client.now + S * 500);
    assert_eq!(client.machine.rebind, client.now + S * 800);

    let mut client = Client::new(Some(OWN));
    assert_eq!(sent(&client.step()), (SOLICIT, false, true));
}

#[test]
fn unanswered_client_asks_ever_less_often_and_says_so() {
    let mut client = Client::new(None);
    let mut complaints = 0;
    for wait in [1, 2, 4, 8, 16, 32, 64] {
        complaints += told(&client.step()).len();
        assert!(about(client.machine.deadline() - client.now, S * wait));
    }
    assert_eq!(complaints, 1);
    client.says(ADVERTISE, Some(lease()), &SERVER);
    for _ in 1..REQUESTS {
        assert_eq!(sent(&client.step()).0, REQUEST);
    }
    assert_eq!(sent(&client.step()).0, SOLICIT);
}

#[test]
fn lease_is_renewed_with_its_server_then_with_any_and_ends() {
    let (mut client, given) = Client::bound();
    assert_eq!(sent(&client.step()), (RENEW, true, true));
    assert_eq!(client.now, given + S * 500);
    assert!(about(client.machine.deadline() - client.now, S * 10));
    assert_eq!(client.says(REPLY, Some(lease()), &OTHER), []);
    while client.machine.state == State::Renewing {
        client.step();
    }
    assert_eq!(client.now, given + S * 800);
    assert_eq!(client.machine.state, State::Rebinding);
    assert_eq!(sent(&client.step()), (REBIND, false, true));
    let end = client.now + S * 2000;
    let other = || Lease {
        server: OTHER.to_vec(),
        ..lease()
    };
    let news = client.says(REPLY, Some(lease()), &OTHER);
    assert_eq!(news, [Action::Tell(News::Lease(Box::new(other()), end))]);
    while client.held().is_some() {
        client.step();
    }
    assert_eq!(client.now, end);
    assert_eq!(sent(&client.step()), (SOLICIT, false, true));
}

#[test]
fn only_the_server_of_the_lease_withdraws_it() {
    let (mut client, _) = Client::bound();
    client.step();
    assert_eq!(client.answers(REPLY, None, &OTHER, &[OWN]), []);
    assert_eq!(
        client.answers(REPLY, None, &SERVER, &[OWN]),
        [Action::Tell(News::Over(Over::Revoked))]
    );
    assert_eq!(sent(&client.step()).0, SOLICIT);

    // A server that lost the lease gives another one meanwhile.
    let (mut client, _) = Client::bound();
    client.step();
    assert_eq!(
        sent(&client.says(REPLY, None, &SERVER)),
        (SOLICIT, false, true)
    );
    assert_eq!(client.held(), Some(OWN));
}

#[test]
fn new_carrier_asks_whether_the_lease_holds() {
    let (mut client, given) = Client::bound();
    assert_eq!(client.machine.handle(Event::Carrier, client.now), []);
    let began = client.now;
    for _ in 0..CONFIRMS {
        assert_eq!(sent(&client.step()), (REBIND, false, true));
    }
    assert_eq!(sent(&client.step()), (SOLICIT, false, true));
    assert!(client.now - began < S * 13);
    assert_eq!(
        (client.held(), client.machine.end),
        (Some(OWN), Some(given + S * 2000))
    );
    client.machine.handle(Event::Carrier, client.now);
    client.step();
    let news = client.says(REPLY, Some(lease()), &OTHER);
    assert!(matches!(&*told(&news), [News::Lease(..)]), "{news:?}");
}

#[test]
fn endless_lease_is_never_renewed() {
    let mut client = Client::new(None);
    client.step();
    client.says(ADVERTISE, Some(lease()), &SERVER);
    let endless = Lease {
        preferred: FOR_EVER,
        valid: FOR_EVER,
        ..lease()
    };
    client.says(REPLY, Some(endless), &SERVER);
    assert!(client.machine.deadline() > S * u32::MAX);
}

#[test]
fn lease_of_an_earlier_client_expires() {
    let identity = Client::new(None).machine.identity;
    let mut machine = Machine::new(identity, Random::of(1), None, Some(S), Duration::ZERO);
    let mut actions = Vec::new();
    while machine.end.is_some() {
        actions.extend(machine.handle(Event::Timer, machine.deadline()));
    }
    assert_eq!(told(&actions), [&News::Over(Over::Expired)]);
    assert_eq!(
        sent(&machine.handle(Event::Timer, machine.deadline())).0,
        SOLICIT
    );
}

proptest! {
    #[test]
    fn hostile_servers_neither_stop_the_client_nor_keep_it_busy(
        events in vec((0_u8..7, any::<[u8; 3]>(), any::<[u32; 4]>()), 0..60),
    ) {
        let mut client = Client::new(None);
        let mut has_lease = false;
        for (kind, [server, given, gone], [a, b, c, d]) in events {
            let (valid, preferred) = (a >> (d & 31), b >> (d & 31));
            let found = Lease {
                valid: valid.max(1),
                preferred: preferred.clamp(1, valid.max(1)),
                renew: c >> (d & 31) >> 1,
                rebind: c >> (d & 31),
                ..lease()
            };
            let found = (given < 200).then_some(found);
            let server = if server < 200 { &SERVER } else { &OTHER };
            let withdrawn: &[Ipv6Addr] = if gone > 200 { &[OWN] } else { &[] };
            let actions = match kind {
                0 => client.answers(ADVERTISE, found, server, withdrawn),
                1..=3 => client.answers(REPLY, found, server, withdrawn),
                4 => client.machine.handle(Event::Carrier, client.now),
                _ => client.step(),
            };
            prop_assert!(actions.len() <= 3, "{actions:?}");
            for news in told(&actions) {
                match news {
                    News::Lease(..) => has_lease = true,
                    News::Over(_) => prop_assert!(std::mem::take(&mut has_lease)),
                    News::Complaint(_) => {}
                }
            }
            prop_assert_eq!(has_lease, client.machine.end.is_some());
            prop_assert!(client.machine.deadline() > client.now, "{:?}", client.machine);
            if client.machine.deadline() > Duration::from_secs(1 << 40) {
                client.machine.handle(Event::Carrier, client.now);
            }
        }
    }
}
