//! The states of a DHCPv6 client (RFC 8415, section 18.2), as a pure function: an event and the time give actions.

use std::net::Ipv6Addr;
use std::time::Duration;

use super::message::{
    ADVERTISE, Answer, Identity, Lease, Question, REBIND, RENEW, REPLY, REQUEST, SOLICIT,
};
use crate::random::{Random, back_off};
use crate::{FOR_EVER, News, Over, SOONEST_RENEWAL, seconds};

/// Limit of the random delay before the first message, so that machines which start together spread their requests. The
/// RFC's limit of one second is long for a node that boots.
const MOST_DELAY: Duration = Duration::from_millis(200);
/// Delays before a message is sent again: the first one, which doubles, and the longest (RFC 8415, section 7.6).
const SOLICIT_WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3600)];
const REQUEST_WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
const CONFIRM_WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
const RENEW_WAITS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(600)];
/// Requests to the server that made an offer, within 15 s; then all servers are solicited again.
const REQUESTS: u32 = 4;
/// Messages to confirm a lease, within 11 s; then all servers are solicited.
const CONFIRMS: u32 = 4;
/// Unanswered solicits before the console names the silence: about half a minute.
const SILENT: u32 = 6;

/// An event of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Time has passed.
    Timer,
    /// The link has a carrier again: maybe of another network.
    Carrier,
    Answer(Box<Answer>),
}

/// An action of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Send a message to all servers.
    Send(Vec<u8>),
    Tell(News<Lease>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Pauses, then asks.
    Waiting,
    Soliciting,
    Requesting {
        address: Ipv6Addr,
        server: Vec<u8>,
    },
    Bound,
    Renewing,
    Rebinding,
    /// Asks all servers whether the lease holds on this link: a rebind, which takes fewer messages than a new lease.
    Confirming,
}

/// A DHCPv6 client.
#[derive(Debug)]
pub(super) struct Machine {
    identity: Identity,
    random: Random,
    state: State,
    /// Time of the next step.
    timer: Duration,
    /// Transaction id of the current exchange, its begin, and the time and number of its messages.
    id: [u8; 3],
    began: Duration,
    last: Duration,
    sent: u32,
    /// Address to ask for.
    former: Option<Ipv6Addr>,
    held: Option<Lease>,
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
        former: Option<Ipv6Addr>,
        end: Option<Duration>,
        now: Duration,
    ) -> Machine {
        Machine {
            timer: now + random.up_to(MOST_DELAY),
            identity,
            random,
            state: State::Waiting,
            id: [0; 3],
            began: now,
            last: now,
            sent: 0,
            former,
            held: None,
            rebind: now,
            end,
        }
    }

    /// When the next [`Event::Timer`] is due.
    pub fn deadline(&self) -> Duration {
        self.end.map_or(self.timer, |end| end.min(self.timer))
    }

    /// Whether the client expects answers.
    pub fn listens(&self) -> bool {
        !matches!(self.state, State::Waiting | State::Bound)
    }

    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.end.is_some_and(|end| now >= end) {
            self.lose(Over::Expired, now, &mut actions);
        }
        match event {
            Event::Timer => {}
            Event::Carrier => self.begin(now),
            Event::Answer(answer) if answer.id == self.id => {
                self.answer(*answer, now, &mut actions);
            }
            Event::Answer(_) => {}
        }
        if now >= self.timer {
            self.act(now, &mut actions);
        }
        actions
    }

    fn begin(&mut self, now: Duration) {
        self.state = State::Waiting;
        self.timer = now + self.random.up_to(MOST_DELAY);
    }

    fn lose(&mut self, over: Over, now: Duration, actions: &mut Vec<Action>) {
        let had = self.held.take();
        self.end = None;
        actions.push(Action::Tell(News::Over(over)));
        if had.is_some() && !matches!(self.state, State::Soliciting | State::Requesting { .. }) {
            self.begin(now);
        }
    }

    /// Enters a state that begins an exchange, with its first message.
    fn enter(&mut self, state: State, now: Duration, actions: &mut Vec<Action>) {
        let [_, id @ ..] = self.random.number().to_be_bytes();
        (self.id, self.state, self.sent, self.began) = (id, state, 0, now);
        self.send(now, actions);
    }

    /// The step that is due.
    fn act(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let next = match &self.state {
            State::Waiting if self.held.is_some() => Some(State::Confirming),
            State::Waiting => Some(State::Soliciting),
            State::Requesting { .. } if self.sent >= REQUESTS => Some(State::Soliciting),
            State::Confirming if self.sent >= CONFIRMS => Some(State::Soliciting),
            State::Bound if now < self.rebind => Some(State::Renewing),
            // A very short lease may have passed T2 before its first renewal.
            State::Bound => Some(State::Rebinding),
            State::Renewing if now >= self.rebind => Some(State::Rebinding),
            _ => None,
        };
        match next {
            Some(state) => self.enter(state, now, actions),
            None => self.send(now, actions),
        }
    }

    /// Sends the message of the current state and sets the time to send it again.
    fn send(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let held = self.held.as_ref();
        let own = held.map(|lease| lease.address);
        let (kind, address, server, [first, longest]) = match &self.state {
            State::Requesting { address, server } => {
                (REQUEST, Some(*address), Some(&**server), REQUEST_WAITS)
            }
            State::Renewing => {
                let server = held.map(|lease| &*lease.server);
                (RENEW, own, server, RENEW_WAITS)
            }
            State::Rebinding => (REBIND, own, None, RENEW_WAITS),
            State::Confirming => (REBIND, own, None, CONFIRM_WAITS),
            State::Waiting | State::Soliciting | State::Bound => {
                (SOLICIT, self.former, None, SOLICIT_WAITS)
            }
        };
        let question = Question {
            kind,
            id: self.id,
            server,
            address,
            since: now.saturating_sub(self.began),
        };
        actions.push(Action::Send(question.bytes(&self.identity)));
        (self.sent, self.last) = (self.sent.saturating_add(1), now);
        if kind == SOLICIT && self.sent == SILENT {
            let what = "no server answers; the node continues to ask".to_owned();
            actions.push(Action::Tell(News::Complaint(what)));
        }
        let wait = back_off(first, longest, self.sent - 1);
        // The delay varies by 10 % either way (RFC 8415, section 15).
        self.timer = now + self.random.within(wait, wait / 10);
        if self.state == State::Renewing {
            self.timer = self.timer.min(self.rebind);
        }
    }

    /// An answer of the current exchange.
    fn answer(&mut self, answer: Answer, now: Duration, actions: &mut Vec<Action>) {
        let is_holder = self
            .held
            .as_ref()
            .is_some_and(|held| held.server == answer.server);
        let is_withdrawn = is_holder
            && self
                .held
                .as_ref()
                .is_some_and(|held| answer.withdrawn.contains(&held.address));
        match (&self.state, answer.kind, answer.lease) {
            (State::Soliciting, ADVERTISE, Some(lease)) => {
                let (address, server) = (lease.address, lease.server);
                self.enter(State::Requesting { address, server }, now, actions);
            }
            (State::Requesting { server, .. }, REPLY, Some(lease)) if *server == lease.server => {
                self.bind(lease, now, actions);
            }
            (State::Renewing, REPLY, Some(lease)) if is_holder => self.bind(lease, now, actions),
            (State::Rebinding | State::Confirming, REPLY, Some(lease)) => {
                self.bind(lease, now, actions);
            }
            (State::Renewing | State::Rebinding | State::Confirming, REPLY, None)
                if is_withdrawn =>
            {
                self.lose(Over::Revoked, now, actions);
            }
            // The server has lost the lease; it may give it again, and until then the lease holds.
            (State::Renewing, REPLY, None) if is_holder => {
                self.enter(State::Soliciting, now, actions);
            }
            _ => {}
        }
    }

    /// A lease begins or continues.
    fn bind(&mut self, lease: Lease, now: Duration, actions: &mut Vec<Action>) {
        let preferred = lifetime(lease.preferred);
        // The recommended parts of the preferred lifetime (RFC 8415, section 21.4).
        let rebind = given_time(lease.rebind).unwrap_or(match preferred {
            Duration::MAX => preferred,
            _ => preferred / 5 * 4,
        });
        let renew = given_time(lease.renew).unwrap_or(preferred / 2).min(rebind);
        let end = self.last.saturating_add(lifetime(lease.valid));
        self.rebind = self.last.saturating_add(rebind).min(end);
        let renew = self.last.saturating_add(renew).min(self.rebind);
        self.timer = renew.max(now + SOONEST_RENEWAL);
        self.state = State::Bound;
        self.end = Some(end);
        self.former = Some(lease.address);
        self.held = Some(lease.clone());
        actions.push(Action::Tell(News::Lease(Box::new(lease), end)));
    }
}

fn lifetime(time: u32) -> Duration {
    if time == FOR_EVER {
        Duration::MAX
    } else {
        seconds(time)
    }
}

/// T1 or T2 of a server; zero leaves the choice to the client.
fn given_time(time: u32) -> Option<Duration> {
    (time > 0).then(|| lifetime(time))
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
