//! Receivers of logs on the network: JSON lines by TCP, or one datagram per message by UDP. Each destination is a task
//! with its own position in the logs, and the rest of the daemon never waits for it.

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

/// Pause between attempts to reach a destination; each pause is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(10);

/// Runs one task per destination of the config, for ever. A destination that stays in the config keeps its position
/// when others change.
pub async fn serve(store: Arc<Store>, mut config: watch::Receiver<Config>) {
    let mut tasks = JoinSet::new();
    let mut served: Vec<(Destination, AbortHandle)> = Vec::new();
    loop {
        // Collects aborted tasks.
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
                inform(&store, &format!("{endpoint} accepts logs again"));
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
                    "{endpoint} accepts no logs ({broken}); buffered lines are sent once it does"
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
