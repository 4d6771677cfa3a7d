//! Receivers of logs on the network: JSON lines by TCP, or a datagram each by
//! UDP. Each destination is a task with its own place in the logs; nothing
//! else in the daemon waits for one.

mod follower;
pub mod message;
mod tcp;
mod udp;

use crate::config::{Config, Destination, Protocol};
use crate::sources::{inform, warn};
use crate::store::Store;
use follower::Follower;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

/// Between attempts to reach a destination; doubled from one to the next.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A connection that takes longer will not be made.
const CONNECT: Duration = Duration::from_secs(10);

/// Keeps the destinations of the config served, for ever. One that stays in
/// the config keeps its place when others change.
pub async fn serve(store: Arc<Store>, mut config: watch::Receiver<Config>) {
    let mut tasks = JoinSet::new();
    let mut served: Vec<(Destination, AbortHandle)> = Vec::new();
    loop {
        // Those that were aborted.
        while tasks.try_join_next().is_some() {}
        let mut wanted = config.borrow_and_update().destinations.clone();
        served.retain(|(destination, task)| {
            let place = wanted.iter().position(|other| other == destination);
            match place {
                Some(place) => drop(wanted.remove(place)),
                None => task.abort(),
            }
            place.is_some()
        });
        for destination in wanted {
            let task = tasks.spawn(deliver(store.clone(), destination.clone()));
            served.push((destination, task));
        }
        if config.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Delivers to one destination, for ever.
async fn deliver(store: Arc<Store>, destination: Destination) {
    let Destination {
        endpoint,
        logs,
        tags,
    } = destination;
    let mut place = Follower::new(store.clone(), logs, tags);
    let mut pause = FIRST_PAUSE;
    let mut down = false;
    loop {
        let mut delivered = false;
        let mut on_delivery = || {
            delivered = true;
            if std::mem::take(&mut down) {
                inform(&store, &format!("{endpoint} takes logs again"));
            }
        };
        let broken = match endpoint.protocol {
            Protocol::Tcp => {
                tcp::deliver(&store, &endpoint.address, &mut place, &mut on_delivery).await
            }
            Protocol::Udp => {
                udp::deliver(&store, &endpoint.address, &mut place, &mut on_delivery).await
            }
        };
        if delivered {
            pause = FIRST_PAUSE;
        }
        if !down {
            down = true;
            warn(
                &store,
                &format!(
                    "{endpoint} takes no logs ({broken}); what they hold is sent when it does"
                ),
            );
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn too_slow<T>(_: T) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s")
}
