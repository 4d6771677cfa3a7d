//! Events of the node for the API's event stream: a bounded history and live updates.
//!
//! Publishing never blocks. A reader that falls behind the whole history gets an error, and its stream ends.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corten_api::machine as api;
use data_encoding::BASE32HEX_NOPAD;
use prost::Message;
use prost_types::Any;
use tokio::sync::watch;

/// Number of events to keep (the reference's number).
const HISTORY: usize = 1000;

/// A message that an event may carry.
pub trait Payload: Message {
    /// Name of the message in the API.
    const NAME: &'static str;
}

macro_rules! payloads {
    ($($name:ident)*) => {$(
        impl Payload for api::$name {
            const NAME: &'static str = stringify!($name);
        }
    )*};
}

payloads! { SequenceEvent PhaseEvent TaskEvent ServiceStateEvent ConfigLoadErrorEvent
ConfigValidationErrorEvent AddressEvent MachineStatusEvent }

/// An event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Id; ids sort by time unless the clock is set back.
    pub id: Id,
    /// Id of the operation that caused the event, as in its answer; empty without one.
    pub actor: String,
    /// Message of the API.
    pub data: Any,
}

/// Id of an event: an xid of 12 bytes (<https://github.com/rs/xid>). It consists of seconds since 1970, machine and
/// process (here random, chosen once), and a counter, each big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id([u8; 12]);

impl Id {
    fn new(origin: [u8; 5], count: u32, at: SystemTime) -> Id {
        let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let [_, _, _, _, time @ ..] = seconds.to_be_bytes();
        let [_, count @ ..] = count.to_be_bytes();
        let mut bytes = [0; 12];
        let parts = time.into_iter().chain(origin).chain(count);
        for (byte, part) in bytes.iter_mut().zip(parts) {
            *byte = part;
        }
        Id(bytes)
    }

    /// Parses the 20 letters and digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Id> {
        let bytes = BASE32HEX_NOPAD
            .decode(text.to_ascii_uppercase().as_bytes())
            .ok()?;
        bytes.try_into().ok().map(Id)
    }

    /// Machine and process.
    fn origin(self) -> [u8; 5] {
        let [_, _, _, _, origin @ .., _, _, _] = self.0;
        origin
    }

    /// Time in whole seconds.
    #[must_use]
    pub fn at(self) -> SystemTime {
        let [a, b, c, d, ..] = self.0;
        UNIX_EPOCH + Duration::from_secs(u32::from_be_bytes([a, b, c, d]).into())
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&BASE32HEX_NOPAD.encode(&self.0).to_ascii_lowercase())
    }
}

/// Start position of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// Only new events.
    Now,
    /// The last events, by number.
    Last(usize),
    /// Events after this one.
    After(Id),
    /// Events within this time before now.
    Since(Duration),
}

/// The event history of a node. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    began: Instant,
    origin: [u8; 5],
    count: AtomicU32,
    history: Mutex<History>,
    /// Number of events ever published.
    published: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct History {
    events: VecDeque<Arc<Event>>,
    /// Number of events dropped from the front.
    dropped: u64,
}

impl History {
    fn end(&self) -> u64 {
        self.dropped.saturating_add(self.events.len() as u64)
    }

    fn position(&self, from: From) -> u64 {
        let first_where = |matches: &dyn Fn(&Event) -> bool| {
            let before = self.events.iter().take_while(|event| !matches(event));
            self.dropped.saturating_add(before.count() as u64)
        };
        match from {
            From::Now => self.end(),
            From::Last(count) => self.end().saturating_sub(count as u64).max(self.dropped),
            From::After(id) => self.after(id),
            From::Since(span) => {
                let start = SystemTime::now().checked_sub(span).unwrap_or(UNIX_EPOCH);
                first_where(&|event| event.id.at() >= start)
            }
        }
    }

    /// Position after the event `id`. If the clock was set back, later ids may be smaller, so the order of the history
    /// decides. Only an id of another run is located by its time.
    fn after(&self, id: Id) -> u64 {
        let place = self.events.iter().position(|event| event.id == id);
        let is_of_this_run = |event: &Arc<Event>| event.id.origin() == id.origin();
        let before = match place {
            Some(place) => place + 1,
            // The event is dropped, so everything still kept is later.
            None if self.events.front().is_some_and(is_of_this_run) => 0,
            None => self
                .events
                .iter()
                .take_while(|event| event.id <= id)
                .count(),
        };
        self.dropped.saturating_add(before as u64)
    }
}

impl Default for Events {
    fn default() -> Events {
        let mut origin = [0; 5];
        let random = uuid::Uuid::new_v4().into_bytes();
        for (byte, chance) in origin.iter_mut().zip(random) {
            *byte = chance;
        }
        Events(Arc::new(Shared {
            began: Instant::now(),
            origin,
            count: AtomicU32::new(0),
            history: Mutex::new(History::default()),
            published: watch::Sender::new(0),
        }))
    }
}

impl Events {
    /// Time span the history covers at most: since the node started.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.0.began.elapsed()
    }

    /// Appends an event and wakes all readers.
    pub fn publish<P: Payload>(&self, actor: &str, payload: &P) {
        let mut history = self.history();
        // Counted under the lock, so that ids sort in event order.
        let count = self.0.count.fetch_add(1, Ordering::Relaxed);
        let event = Event {
            id: Id::new(self.0.origin, count, SystemTime::now()),
            actor: actor.to_owned(),
            data: Any {
                type_url: format!("talos/runtime/machine.{}", P::NAME),
                value: payload.encode_to_vec(),
            },
        };
        if history.events.len() == HISTORY {
            history.events.pop_front();
            history.dropped = history.dropped.saturating_add(1);
        }
        history.events.push_back(Arc::new(event));
        self.0.published.send_replace(history.end());
    }

    /// A reader from this position on.
    #[must_use]
    pub fn read(&self, from: From) -> Reader {
        let next = self.history().position(from);
        Reader {
            shared: self.clone(),
            published: self.0.published.subscribe(),
            next,
        }
    }

    /// A poisoned lock is usable, because the history is consistent at every moment.
    fn history(&self) -> MutexGuard<'_, History> {
        let history = &self.0.history;
        history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A position in the history.
#[derive(Debug)]
pub struct Reader {
    shared: Events,
    published: watch::Receiver<u64>,
    next: u64,
}

/// The reader was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reader fell behind: {0} events are no longer kept")]
pub struct FellBehind(u64);

impl Reader {
    /// Returns the next event, and waits for it if necessary.
    ///
    /// # Errors
    /// The event is no longer kept; the next call continues with the oldest one that is.
    pub async fn next(&mut self) -> Result<Arc<Event>, FellBehind> {
        loop {
            let next = self.next;
            // `shared` holds the sender, so this wait cannot fail.
            let _ = self.published.wait_for(|&end| end > next).await;
            let history = self.shared.history();
            if let Some(lost) = history.dropped.checked_sub(next)
                && lost > 0
            {
                self.next = history.dropped;
                return Err(FellBehind(lost));
            }
            let at = usize::try_from(next.saturating_sub(history.dropped)).unwrap_or(usize::MAX);
            if let Some(event) = history.events.get(at) {
                self.next = next.saturating_add(1);
                return Ok(event.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(name: usize) -> api::PhaseEvent {
        api::PhaseEvent {
            phase: name.to_string(),
            action: 0,
        }
    }

    async fn name(reader: &mut Reader) -> Result<String, FellBehind> {
        let event = reader.next().await?;
        assert_eq!(event.data.type_url, "talos/runtime/machine.PhaseEvent");
        let phase = api::PhaseEvent::decode(event.data.value.as_slice());
        Ok(phase.unwrap().phase)
    }

    #[test]
    fn event_id_has_the_reference_format() {
        // The example of the format's own description: 2018-08-07T... with its machine, process, counter.
        let id = Id::parse("9m4e2mr0ui3e8a215n4g").unwrap();
        assert_eq!(id.to_string(), "9m4e2mr0ui3e8a215n4g");
        assert_eq!(
            id.0,
            [
                0x4d, 0x88, 0xe1, 0x5b, 0x60, 0xf4, 0x86, 0xe4, 0x28, 0x41, 0x2d, 0xc9
            ]
        );
        assert_eq!(id.at(), UNIX_EPOCH + Duration::from_secs(1_300_816_219));
        for bad in [
            "",
            "9m4e2mr0ui3e8a215n4",
            "9m4e2mr0ui3e8a215n4gg",
            "zzzzzzzzzzzzzzzzzzzz",
        ] {
            assert_eq!(Id::parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn reader_starts_at_the_requested_event() {
        let events = Events::default();
        (0..5).for_each(|number| events.publish("", &phase(number)));
        let third = events.read(From::Last(3)).next().await.unwrap().id;
        for (from, first) in [
            (From::Last(2), "3"),
            (From::Last(99), "0"),
            (From::After(third), "3"),
            (From::Since(Duration::from_secs(3600)), "0"),
        ] {
            assert_eq!(
                name(&mut events.read(from)).await.unwrap(),
                first,
                "{from:?}"
            );
        }
        let mut later = events.read(From::Now);
        events.publish("", &phase(5));
        assert_eq!(name(&mut later).await.unwrap(), "5");
    }

    #[tokio::test]
    async fn events_after_an_id_are_found_although_the_clock_was_set_back() {
        let events = Events::default();
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        // In this order, with a clock that is set back after the second event.
        let ids: Vec<Id> = (0..4)
            .zip([1000, 1001, 10, 11])
            .map(|(count, seconds)| Id::new(events.0.origin, count, at(seconds)))
            .collect();
        for (number, id) in ids.iter().enumerate() {
            events.publish("", &phase(number));
            let mut history = events.history();
            let mut event = Event::clone(history.events.back().unwrap());
            event.id = *id;
            *history.events.back_mut().unwrap() = Arc::new(event);
        }
        for (number, id) in ids.iter().enumerate().take(3) {
            let next = name(&mut events.read(From::After(*id))).await.unwrap();
            assert_eq!(next, (number + 1).to_string());
        }
        assert_eq!(events.history().position(From::After(ids[3])), 4);
        // An event of this run that is no longer kept is older than all that are.
        let gone = Id::new(events.0.origin, 9, at(2000));
        assert_eq!(
            name(&mut events.read(From::After(gone))).await.unwrap(),
            "0"
        );
        // An event of another run is located by its time only.
        let others = Id::new([7; 5], 0, at(1000));
        let next = name(&mut events.read(From::After(others))).await.unwrap();
        assert_eq!(next, if [7; 5] < events.0.origin { "0" } else { "1" });
    }

    #[tokio::test]
    async fn slow_reader_gets_an_error_and_the_history_is_bounded() {
        let events = Events::default();
        let mut slow = events.read(From::Now);
        (0..HISTORY + 3).for_each(|number| events.publish("", &phase(number)));
        assert_eq!(slow.next().await, Err(FellBehind(3)));
        assert_eq!(name(&mut slow).await.unwrap(), "3");
        assert_eq!(
            name(&mut events.read(From::Last(HISTORY + 9)))
                .await
                .unwrap(),
            "3"
        );
        assert_eq!(events.history().events.len(), HISTORY);
    }

    #[tokio::test]
    async fn events_reach_a_reader_on_another_thread_in_order() {
        let events = Events::default();
        let mut reader = events.read(From::Now);
        let writer = std::thread::spawn({
            let events = events.clone();
            move || (0..900).for_each(|number| events.publish("", &phase(number)))
        });
        let mut last = None;
        for number in 0..900 {
            let event = reader.next().await.unwrap();
            assert_eq!(event.data.value, phase(number).encode_to_vec());
            assert!(last < Some(event.id));
            last = Some(event.id);
        }
        writer.join().unwrap();
    }
}
