//! Shows links, addresses and routes of the kernel.
//!
//! Kernel messages serve only as a change signal; the full state is then queried. So the next message makes up for a
//! lost one, and no message has to be parsed.

pub(super) mod addresses;
mod kinds;
pub(super) mod links;
mod names;
pub(super) mod routes;

use std::io;
use std::pin::Pin;
use std::time::Duration;

use futures_util::{FutureExt as _, Stream, StreamExt as _, TryStreamExt as _};
use rtnetlink::packet_core::NetlinkMessage;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::link::LinkMessage;
use rtnetlink::sys::SocketAddr;
use rtnetlink::{Handle, MulticastGroup};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// Delay after a change, to coalesce a burst of changes.
const BUNCH: Duration = Duration::from_millis(10);
/// Interval of queries while changes go on, after the first few immediate ones.
const EVERY: Duration = Duration::from_secs(1);
const AT_ONCE: u32 = 16;

type Received = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr);

/// Two netlink connections, one for queries and one for events; they close with this value.
pub(super) struct Kernel {
    pub(super) handle: Handle,
    messages: Pin<Box<dyn Stream<Item = Received> + Send>>,
    pace: Pace,
    _connections: JoinSet<()>,
}

impl Kernel {
    pub(super) fn connect(groups: &[MulticastGroup]) -> io::Result<Kernel> {
        let mut connections = JoinSet::new();
        let (listener, _, messages) = rtnetlink::new_multicast_connection(groups)?;
        connections.spawn(listener);
        let (connection, handle, _) = rtnetlink::new_connection()?;
        connections.spawn(connection);
        Ok(Kernel {
            handle,
            messages: Box::pin(messages),
            pace: Pace {
                rested: Instant::now(),
            },
            _connections: connections,
        })
    }

    /// All current links.
    async fn links(&mut self) -> Result<Vec<LinkMessage>, rtnetlink::Error> {
        self.handle.link().get().execute().try_collect().await
    }

    /// Waits for the next change and the rest of its burst.
    pub(super) async fn changed(&mut self) -> io::Result<()> {
        let lost = || io::Error::other("the kernel closed the rtnetlink connection");
        self.messages.next().await.ok_or_else(lost)?;
        let pause = sleep(self.pace.pause(Instant::now()));
        tokio::pin!(pause);
        loop {
            // They are discarded here, because a burst may exceed the buffer.
            tokio::select! {
                () = &mut pause => break,
                next = self.messages.next() => drop(next.ok_or_else(lost)?),
            }
        }
        while let Some(Some(_)) = self.messages.next().now_or_never() {}
        Ok(())
    }
}

/// Rate limit of full queries during continuous changes, which are costly on a node with many routes. A few queries are
/// immediate, as when a link comes up; then one per [`EVERY`].
struct Pace {
    /// Time from which the full burst is available again.
    rested: Instant,
}

impl Pace {
    /// Delay between a change and the query.
    fn pause(&mut self, now: Instant) -> Duration {
        let rested = self.rested.max(now);
        self.rested = rested + EVERY;
        let first = EVERY * AT_ONCE;
        rested.saturating_duration_since(now + first).max(BUNCH)
    }
}

/// Formats bytes as a hardware address.
fn hardware_address(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continuous_changes_are_polled_once_per_second() {
        let start = Instant::now();
        let mut pace = Pace { rested: start };
        let mut now = start;
        let mut looks = |seconds: u64, now: &mut Instant| {
            let (end, mut looks) = (*now + Duration::from_secs(seconds), 0);
            while *now < end {
                // The next change comes before the last query ends.
                *now += pace.pause(*now);
                looks += 1;
            }
            looks
        };
        let first = looks(1, &mut now);
        assert!((16..=18).contains(&first), "{first}");
        let more = looks(100, &mut now);
        assert!((99..=101).contains(&more), "{more}");
        now += Duration::from_secs(20);
        let rested = looks(1, &mut now);
        assert!((16..=18).contains(&rested), "{rested}");
    }

    #[test]
    fn single_change_is_read_at_once() {
        let mut now = Instant::now();
        let mut pace = Pace { rested: now };
        for _ in 0..100 {
            assert_eq!(pace.pause(now), BUNCH);
            now += EVERY;
        }
    }
}
