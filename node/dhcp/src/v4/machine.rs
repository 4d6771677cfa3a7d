//! The states of a DHCPv4 client (RFC 2131, section 4.4), as a pure function: an event and the time give actions.

use std::mem;
use std::net::Ipv4Addr;
use std::time::Duration;

use dhcproto::v4::MessageType;

use super::message::{Answer, Identity, Kind, Lease, Question};
use super::name::{Name, Occasion};
use crate::random::{Random, back_off};
use crate::{FOR_EVER, News, Over, RETRY, SOONEST_RENEWAL, seconds, useless};

/// Limit of the random delay before a client starts over, so that machines whose switch returns spread their requests.
/// The first message of a boot has none: the machines' own starts differ by more.
const MOST_DELAY: Duration = Duration::from_millis(200);
/// Delays before a message is sent again, doubled each time, and their spread (RFC 2131, section 4.1).
const FIRST_WAIT: Duration = Duration::from_secs(4);
const LONGEST_WAIT: Duration = Duration::from_secs(64);
const SPREAD: Duration = Duration::from_secs(1);
/// Requests to the server that made an offer; then all servers are asked again.
const REQUESTS: u32 = 3;
/// Requests for the former address, and the delay behind each. A server that knows the address answers at once, and one
/// that does not may be silent; a boot waits for this.
const REBOOTS: u32 = 2;
const REBOOT_WAIT: Duration = Duration::from_secs(2);
/// Unanswered messages to all servers before the console names the silence: about half a minute.
const SILENT: u32 = 4;
/// The shortest delay between two requests to renew a lease (RFC 2131, section 4.4.5).
const RENEW_WAIT: Duration = Duration::from_secs(60);
/// The longest delay between them, for leases of days or without an end.
const LONGEST_RENEW_WAIT: Duration = Duration::from_secs(3600);
/// Probes for an address that another host may have, and the longest delay between them. The RFC's seconds (RFC 5227,
/// section 1.1) are long for a node that boots. A host on the same link answers within milliseconds, and the server
/// looks before it offers one (RFC 2131, section 3.1).
const PROBES: u32 = 3;
const PROBE_WAIT: Duration = Duration::from_millis(60);
/// The shortest delay after an address was declined (RFC 2131, section 3.1, point 5).
const DECLINE_WAIT: Duration = Duration::from_secs(10);
/// The delay before a new lease is renewed to tell the node's name, if none was told: the name settles meanwhile.
const TELL_WAIT: Duration = Duration::from_secs(10);
/// Lifetime of a lease whose server names none, as in the reference.
const DEFAULT_TIME: u32 = 30 * 60;

/// An event of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Time has passed.
    Timer,
    /// The link has a carrier again: maybe of another network.
    Carrier,
    Answer(Box<Answer>),
    /// The host with this hardware address has the probed address.
    Claim([u8; 6]),
}

/// An action of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Send a message to all servers.
    Broadcast {
        from: Ipv4Addr,
        message: Vec<u8>,
    },
    /// Send a message to one server.
    Unicast {
        from: Ipv4Addr,
        to: Ipv4Addr,
        message: Vec<u8>,
    },
    /// Ask all hosts for this address.
    Probe(Ipv4Addr),
    Tell(News<Lease>),
}

/// The packets that a client receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listens {
    Nothing,
    Answers,
    /// Claims of this address by other hosts.
    Claims(Ipv4Addr),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Pauses, then requests this address again or asks for any (INIT).
    Waiting(Option<Ipv4Addr>),
    /// Has requested an address of earlier (REBOOTING).
    Rebooting(Ipv4Addr),
    Selecting,
    Requesting {
        address: Ipv4Addr,
        server: Ipv4Addr,
    },
    /// Asks whether another host has the address of a lease, given at this time.
    Probing {
        lease: Box<Lease>,
        given: Duration,
        probes: u32,
    },
    Bound,
    Renewing,
    Rebinding,
}

/// A DHCPv4 client.
#[derive(Debug)]
pub(super) struct Machine {
    identity: Identity,
    random: Random,
    state: State,
    /// Time of the next step.
    timer: Duration,
    /// Transaction id of the current exchange.
    xid: u32,
    /// When the client began to ask, and when it last sent a message.
    began: Duration,
    last: Duration,
    /// Messages of the current state, and whether it complained about a useless answer.
    sent: u32,
    complained: bool,
    /// Messages to all servers since the client began to ask.
    discovers: u32,
    /// Failed attempts since the last lease.
    failures: u32,
    /// Address to ask for.
    former: Option<Ipv4Addr>,
    held: Option<Lease>,
    /// The node's name towards the server.
    pub name: Name,
    /// T2 and end of the held lease. An earlier client may have reported the end.
    rebind: Duration,
    end: Option<Duration>,
}

impl Machine {
    /// A client that begins at this time with its `former` address. `end`: of the lease that an earlier client has
    /// reported.
    pub fn new(
        identity: Identity,
        mut random: Random,
        former: Option<Ipv4Addr>,
        end: Option<Duration>,
        now: Duration,
    ) -> Machine {
        Machine {
            timer: now,
            xid: random.number(),
            identity,
            random,
            state: State::Waiting(former),
            began: now,
            last: now,
            sent: 0,
            complained: false,
            discovers: 0,
            failures: 0,
            former,
            held: None,
            name: Name::default(),
            rebind: now,
            end,
        }
    }

    /// When the next [`Event::Timer`] is due.
    pub fn deadline(&self) -> Duration {
        self.end.map_or(self.timer, |end| end.min(self.timer))
    }

    pub fn listens(&self) -> Listens {
        match &self.state {
            State::Waiting(_) | State::Bound => Listens::Nothing,
            State::Probing { lease, .. } => Listens::Claims(lease.address),
            _ => Listens::Answers,
        }
    }

    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.end.is_some_and(|end| now >= end) {
            self.lose(Over::Expired, &mut actions);
            if matches!(
                self.state,
                State::Bound | State::Renewing | State::Rebinding
            ) {
                self.begin(None, now);
            }
        }
        match event {
            Event::Timer => {}
            Event::Carrier => {
                let held = self.held.as_ref().map(|lease| lease.address);
                self.failures = 0;
                self.begin(held.or(self.former), now);
            }
            Event::Answer(answer) if answer.xid == self.xid => {
                self.answer(*answer, now, &mut actions);
            }
            Event::Answer(_) => {}
            Event::Claim(by) => self.decline(by, now, &mut actions),
        }
        if now >= self.timer {
            self.act(now, &mut actions);
        }
        actions
    }

    /// Starts anew, with this address if there is one.
    fn begin(&mut self, address: Option<Ipv4Addr>, now: Duration) {
        (self.began, self.discovers) = (now, 0);
        self.pause(address, Duration::ZERO, now);
    }

    fn pause(&mut self, address: Option<Ipv4Addr>, pause: Duration, now: Duration) {
        self.state = State::Waiting(address);
        self.timer = now + pause + self.random.up_to(MOST_DELAY);
    }

    /// Starts over after a failed attempt. The pause grows with their number.
    fn fail(&mut self, least: Duration, now: Duration) {
        let pause = back_off(RETRY, LONGEST_WAIT, self.failures).max(least);
        self.failures = self.failures.saturating_add(1);
        self.pause(None, pause, now);
    }

    fn lose(&mut self, over: Over, actions: &mut Vec<Action>) {
        (self.held, self.end) = (None, None);
        actions.push(Action::Tell(News::Over(over)));
    }

    /// Enters a state that begins an exchange.
    fn enter(&mut self, state: State) {
        self.xid = self.random.number();
        (self.state, self.sent, self.complained) = (state, 0, false);
    }

    /// The step that is due.
    fn act(&mut self, now: Duration, actions: &mut Vec<Action>) {
        match &mut self.state {
            State::Waiting(Some(address)) => {
                let address = *address;
                self.enter(State::Rebooting(address));
            }
            State::Waiting(None) => self.enter(State::Selecting),
            State::Rebooting(_) if self.sent >= REBOOTS => self.enter(State::Selecting),
            State::Requesting { .. } if self.sent >= REQUESTS => self.enter(State::Selecting),
            State::Bound => {
                self.began = now;
                // A very short lease may have passed T2 before its first renewal.
                self.enter(match now < self.rebind {
                    true => State::Renewing,
                    false => State::Rebinding,
                });
            }
            State::Renewing if now >= self.rebind => self.enter(State::Rebinding),
            State::Probing { lease, probes, .. } if *probes > 0 => {
                *probes -= 1;
                actions.push(Action::Probe(lease.address));
                self.timer = now + self.random.within(PROBE_WAIT * 3 / 4, PROBE_WAIT / 4);
                return;
            }
            State::Probing { .. } => return self.bind(now, actions),
            State::Rebooting(_)
            | State::Selecting
            | State::Requesting { .. }
            | State::Renewing
            | State::Rebinding => {}
        }
        self.send(now, actions);
    }

    /// Sends the message of the current state and sets the time to send it again.
    fn send(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let since = now.saturating_sub(self.began).as_secs();
        let mut question = Question::new(MessageType::Request, self.xid);
        question.seconds = u16::try_from(since).unwrap_or(u16::MAX);
        let (mut to, mut occasion) = (None, Occasion::Start);
        let mut wait = back_off(FIRST_WAIT, LONGEST_WAIT, self.sent);
        let held = self
            .held
            .as_ref()
            .map(|lease| (lease.address, lease.server));
        match self.state {
            State::Rebooting(address) => {
                question.requested = Some(address);
                wait = REBOOT_WAIT;
            }
            State::Requesting { address, server } => {
                (question.requested, question.server) = (Some(address), Some(server));
                occasion = Occasion::Offer;
            }
            State::Renewing => {
                question.own = held.map(|(own, _)| own);
                occasion = Occasion::Renewal;
                to = held.map(|(_, server)| server);
                wait = until(self.rebind, now);
            }
            State::Rebinding => {
                question.own = held.map(|(own, _)| own);
                occasion = Occasion::Renewal;
                wait = until(self.end.unwrap_or(now), now);
            }
            _ => {
                question.kind = MessageType::Discover;
                question.requested = self.former;
                self.discovers = self.discovers.saturating_add(1);
                if self.discovers == SILENT {
                    let what = "no server answers; the node continues to ask".to_owned();
                    actions.push(Action::Tell(News::Complaint(what)));
                }
            }
        }
        question.name = self.name.tell(occasion);
        let from = question.own.unwrap_or(Ipv4Addr::UNSPECIFIED);
        let message = question.bytes(&self.identity);
        actions.push(match to {
            Some(to) => Action::Unicast { from, to, message },
            None => Action::Broadcast { from, message },
        });
        (self.sent, self.last) = (self.sent.saturating_add(1), now);
        self.timer = now + self.random.within(wait, SPREAD.min(wait / 4));
        if self.state == State::Renewing {
            self.timer = self.timer.min(self.rebind);
        }
    }

    /// An answer of the current exchange.
    fn answer(&mut self, answer: Answer, now: Duration, actions: &mut Vec<Action>) {
        let mut lease = answer.lease;
        let is_holder = self
            .held
            .as_ref()
            .is_some_and(|held| held.server == lease.server);
        if let Some(what) = useless(lease.address).filter(|_| answer.kind != Kind::Nak) {
            if !mem::replace(&mut self.complained, true) {
                actions.push(Action::Tell(News::Complaint(what)));
            }
            // Other servers may have a better answer; for a renewal they are asked anew.
            if self.state == State::Renewing && is_holder {
                self.fail(RETRY, now);
            }
            return;
        }
        match (&self.state, answer.kind) {
            (State::Selecting, Kind::Offer) => {
                self.name.hear(&mut lease);
                let (address, server) = (lease.address, lease.server);
                // The exchange continues with its transaction id.
                (self.state, self.sent) = (State::Requesting { address, server }, 0);
                self.send(now, actions);
            }
            (State::Selecting, Kind::Ack) if answer.is_rapid => self.take(lease, now),
            (State::Rebooting(address), Kind::Ack) if lease.address == *address => {
                self.take(lease, now);
            }
            (State::Requesting { server, .. }, Kind::Ack) if lease.server == *server => {
                self.take(lease, now);
            }
            (State::Renewing, Kind::Ack) if is_holder => self.take(lease, now),
            (State::Rebinding, Kind::Ack) => self.take(lease, now),
            (State::Requesting { server, .. }, Kind::Nak) if lease.server == *server => {
                self.fail(RETRY, now);
            }
            // Another server may not know the lease. It can give one of its own, and this one holds until then.
            (State::Renewing | State::Rebinding | State::Rebooting(_), Kind::Nak)
                if is_holder || self.state != State::Renewing =>
            {
                self.former = None;
                if is_holder {
                    self.lose(Over::Revoked, actions);
                }
                self.begin(None, now);
            }
            _ => {}
        }
    }

    /// Takes an acknowledged lease: at once if its address is in use here, otherwise after a probe.
    fn take(&mut self, mut lease: Lease, now: Duration) {
        self.name.hear(&mut lease);
        let is_held = self
            .held
            .as_ref()
            .is_some_and(|held| held.address == lease.address);
        self.state = State::Probing {
            lease: Box::new(lease),
            given: self.last,
            probes: if is_held { 0 } else { PROBES },
        };
        // The first step follows in the same call.
        self.timer = now;
    }

    /// The probed lease begins or continues.
    fn bind(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let State::Probing {
            mut lease, given, ..
        } = mem::replace(&mut self.state, State::Bound)
        else {
            return;
        };
        lease.time = lease.time.filter(|time| *time > 0);
        let time = lease.time;
        // Said once, not with each renewal.
        if time.is_none() && self.held.as_ref().is_none_or(|held| held.time.is_some()) {
            let server = lease.server;
            let what = format!(
                "the lease of the server {server} has no lifetime; the node assumes {} minutes",
                DEFAULT_TIME / 60
            );
            actions.push(Action::Tell(News::Complaint(what)));
        }
        let time = lifetime(time.unwrap_or(DEFAULT_TIME));
        let rebind = given_time(lease.rebind, time).unwrap_or(match time {
            Duration::MAX => time,
            _ => time / 8 * 7,
        });
        let renew = given_time(lease.renew, rebind).unwrap_or_else(|| rebind.min(time / 2));
        let end = given.saturating_add(time);
        // Fuzz, so that machines which got their leases together do not renew them together.
        let mut fuzzed = |time: Duration| self.random.within(time, time / 40);
        let (renew, rebind) = (fuzzed(renew), fuzzed(rebind));
        self.rebind = given.saturating_add(rebind).min(end);
        let soonest = now + SOONEST_RENEWAL;
        self.timer = given.saturating_add(renew).min(self.rebind).max(soonest);
        if self.held.is_none() && self.name.is_untold() {
            self.timer = self.timer.min(now + TELL_WAIT);
        }
        self.end = Some(end);
        self.former = Some(lease.address);
        self.failures = 0;
        self.held = Some((*lease).clone());
        actions.push(Action::Tell(News::Lease(lease, end)));
    }

    /// Declines a lease whose address another host has.
    fn decline(&mut self, by: [u8; 6], now: Duration, actions: &mut Vec<Action>) {
        let State::Probing { lease, .. } = &self.state else {
            return;
        };
        let (address, server) = (lease.address, lease.server);
        let [a, b, c, d, e, f] = by;
        let what = format!(
            "the host {a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x} has the address {address}, which the server \
             {server} gives; the node declines it"
        );
        actions.push(Action::Tell(News::Complaint(what)));
        self.xid = self.random.number();
        let question = Question {
            requested: Some(address),
            server: Some(server),
            ..Question::new(MessageType::Decline, self.xid)
        };
        actions.push(Action::Broadcast {
            from: Ipv4Addr::UNSPECIFIED,
            message: question.bytes(&self.identity),
        });
        self.former = self.former.filter(|former| *former != address);
        self.fail(DECLINE_WAIT, now);
    }
}

/// The delay before the next request to renew a lease: half of the time that remains (RFC 2131, section 4.4.5).
fn until(limit: Duration, now: Duration) -> Duration {
    let half = limit.saturating_sub(now) / 2;
    half.clamp(RENEW_WAIT, LONGEST_RENEW_WAIT)
}

fn lifetime(time: u32) -> Duration {
    if time == FOR_EVER {
        Duration::MAX
    } else {
        seconds(time)
    }
}

/// T1 or T2 of a server; `None` without a usable one, which lies before the next time of the lease.
fn given_time(time: Option<u32>, limit: Duration) -> Option<Duration> {
    let time = time.filter(|time| *time > 0).map(seconds)?;
    (time < limit).then_some(time)
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
