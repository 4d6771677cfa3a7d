//! The clients that delay the end of the machine. Each holds one end of a pipe, as with logind, and lets go when it
//! closes that end or ends itself.

use std::io::{self, ErrorKind, PipeWriter};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe::Receiver;
use tokio::sync::watch;
use tokio::time::timeout;

/// Limit of inhibitors. The kubelet has one, and a second one while it restarts.
pub(crate) const MOST: usize = 8;

/// The inhibitors of this boot, and the announcement of its end.
#[derive(Debug, Clone, Default)]
pub struct Inhibitors(Arc<State>);

#[derive(Debug, Default)]
struct State {
    held: watch::Sender<usize>,
    ends: watch::Sender<bool>,
}

/// Reason why a client gets no inhibitor.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The end was announced.
    #[error("the machine already ends")]
    Late,
    /// The limit is reached.
    #[error("there are {MOST} inhibitors already")]
    Full,
    /// machined lacks descriptors.
    #[error("no pipe: {0}")]
    Pipe(#[from] io::Error),
}

impl Inhibitors {
    /// Number of inhibitors that delay the end.
    #[must_use]
    pub fn held(&self) -> usize {
        *self.0.held.borrow()
    }

    /// Announces the end to all clients, and waits until none delays it, for at most `patience`. Returns whether all
    /// have let go.
    pub async fn announce_end(&self, patience: Duration) -> bool {
        self.0.ends.send_replace(true);
        let mut held = self.0.held.subscribe();
        let free = held.wait_for(|held| *held == 0);
        matches!(timeout(patience, free).await, Ok(Ok(_)))
    }

    /// A receiver of the announcement.
    pub(crate) fn ends(&self) -> watch::Receiver<bool> {
        self.0.ends.subscribe()
    }

    /// Adds an inhibitor. It lasts until every copy of the pipe's end is closed.
    ///
    /// # Errors
    /// As [`TakeError`].
    pub fn take(&self) -> Result<PipeWriter, TakeError> {
        if *self.0.ends.borrow() {
            return Err(TakeError::Late);
        }
        let held = Held::of(&self.0).ok_or(TakeError::Full)?;
        let (reader, writer) = io::pipe()?;
        let reader = Receiver::from_owned_fd(reader.into())?;
        tokio::spawn(async move {
            until_closed(&reader).await;
            drop(held);
        });
        Ok(writer)
    }
}

/// An inhibitor's place, which is free again when this is dropped.
struct Held(Arc<State>);

impl Held {
    fn of(state: &Arc<State>) -> Option<Held> {
        let is_taken = state.held.send_if_modified(|held| {
            let has_room = *held < MOST;
            *held += usize::from(has_room);
            has_room
        });
        is_taken.then(|| Held(state.clone()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0
            .held
            .send_modify(|held| *held = held.saturating_sub(1));
    }
}

/// Waits for the end of a pipe. What a client writes means nothing.
async fn until_closed(reader: &Receiver) {
    let mut ignored = [0; 64];
    while reader.readable().await.is_ok() {
        match reader.try_read(&mut ignored) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Timeout for work that takes milliseconds on an idle machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn end_waits_until_every_inhibitor_is_closed() {
        let inhibitors = Inhibitors::default();
        let (mut one, other) = (inhibitors.take().unwrap(), inhibitors.take().unwrap());
        let copy = other.try_clone().unwrap();
        drop(other);
        one.write_all(&[7; 200]).unwrap();
        assert_eq!(inhibitors.held(), 2);
        let ended = tokio::spawn({
            let inhibitors = inhibitors.clone();
            async move { inhibitors.announce_end(PATIENCE).await }
        });
        drop(one);
        let mut held = inhibitors.0.held.subscribe();
        let released = timeout(PATIENCE, held.wait_for(|held| *held == 1));
        released.await.unwrap().unwrap();
        assert!(!ended.is_finished());
        drop(copy);
        assert!(ended.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn end_waits_no_longer_than_its_patience() {
        let inhibitors = Inhibitors::default();
        assert!(inhibitors.announce_end(PATIENCE).await);
        let inhibitors = Inhibitors::default();
        let kept = inhibitors.take().unwrap();
        assert!(!inhibitors.announce_end(PATIENCE).await);
        drop(kept);
    }

    #[tokio::test]
    async fn number_of_inhibitors_is_bounded_and_the_end_takes_no_new_one() {
        let inhibitors = Inhibitors::default();
        let all: Vec<_> = (0..MOST).map(|_| inhibitors.take().unwrap()).collect();
        assert!(matches!(inhibitors.take(), Err(TakeError::Full)));
        drop(all);
        assert!(inhibitors.announce_end(PATIENCE).await);
        assert!(matches!(inhibitors.take(), Err(TakeError::Late)));
    }
}
