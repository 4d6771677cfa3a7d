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

/// Changes come in bunches; so long one waits for the rest of it.
const BUNCH: Duration = Duration::from_millis(50);

type Received = (NetlinkMessage<RouteNetlinkMessage>, SocketAddr);

/// Two connections to the kernel, one to ask and one to be told; they end with it.
pub(super) struct Kernel {
    pub(super) handle: Handle,
    messages: Pin<Box<dyn Stream<Item = Received> + Send>>,
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
            _connections: connections,
        })
    }

    /// Every link there is now.
    async fn links(&mut self) -> Result<Vec<LinkMessage>, rtnetlink::Error> {
        self.handle.link().get().execute().try_collect().await
    }

    /// Ends after the next change.
    pub(super) async fn changed(&mut self) -> io::Result<()> {
        let lost = || io::Error::other("the kernel closed the rtnetlink connection");
        self.messages.next().await.ok_or_else(lost)?;
        tokio::time::sleep(BUNCH).await;
        while let Some(Some(_)) = self.messages.next().now_or_never() {}
        Ok(())
    }
}

/// Bytes as clients show hardware addresses.
fn hardware_address(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}
