//! Links, addresses and routes as the kernel has them.
//!
//! The kernel's messages say only that something changed; what there is, is asked. So a message that was
//! lost in a storm is made good by the next, and none has to be understood.

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

/// Changes come in bunches; so long one waits for the rest of it.
const BUNCH: Duration = Duration::from_millis(50);
/// Between two looks while changes do not end, but for the first few of them.
const EVERY: Duration = Duration::from_secs(1);
const AT_ONCE: u32 = 8;

type Received = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr);

/// Two connections to the kernel, one to ask and one to be told; they end with it.
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

    /// Every link there is now.
    async fn links(&mut self) -> Result<Vec<LinkMessage>, rtnetlink::Error> {
        self.handle.link().get().execute().try_collect().await
    }

    /// Ends after the next change, and those that come soon after it.
    pub(super) async fn changed(&mut self) -> io::Result<()> {
        let lost = || io::Error::other("the kernel closed the rtnetlink connection");
        self.messages.next().await.ok_or_else(lost)?;
        let pause = sleep(self.pace.pause(Instant::now()));
        tokio::pin!(pause);
        loop {
            // So many may come meanwhile that they are not kept.
            tokio::select! {
                () = &mut pause => break,
                next = self.messages.next() => drop(next.ok_or_else(lost)?),
            }
        }
        while let Some(Some(_)) = self.messages.next().now_or_never() {}
        Ok(())
    }
}

/// How often all is asked for while it goes on changing: on a node with many routes that is a lot. A few times at
/// once, as when a link comes up, then [`EVERY`] so often.
struct Pace {
    /// When it has been quiet for long enough to have the first few again.
    rested: Instant,
}

impl Pace {
    /// How long to wait after a change, before all is asked for.
    fn pause(&mut self, now: Instant) -> Duration {
        let rested = self.rested.max(now);
        self.rested = rested + EVERY;
        let first = EVERY * AT_ONCE;
        rested.saturating_duration_since(now + first).max(BUNCH)
    }
}

/// Bytes as clients show hardware addresses.
fn hardware_address(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_changing_is_looked_at_once_a_second() {
        let start = Instant::now();
        let mut pace = Pace { rested: start };
        let mut now = start;
        let mut looks = |seconds: u64, now: &mut Instant| {
            let (end, mut looks) = (*now + Duration::from_secs(seconds), 0);
            while *now < end {
                // The next change comes before the last one was looked at.
                *now += pace.pause(*now);
                looks += 1;
            }
            looks
        };
        let first = looks(1, &mut now);
        assert!((8..=10).contains(&first), "{first}");
        let more = looks(100, &mut now);
        assert!((99..=101).contains(&more), "{more}");
        now += Duration::from_secs(20);
        let rested = looks(1, &mut now);
        assert!((8..=10).contains(&rested), "{rested}");
    }

    #[test]
    fn a_single_change_is_looked_at_at_once() {
        let mut now = Instant::now();
        let mut pace = Pace { rested: now };
        for _ in 0..100 {
            assert_eq!(pace.pause(now), BUNCH);
            now += EVERY;
        }
    }
}
