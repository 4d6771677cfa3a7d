//! What becomes of a panic in process 1: it ends the task or the thread it happens in, and nothing else.
//!
//! Tokio and the standard library see to that; here is what is left to do. The hook says where the bug is and ends
//! nothing. Who waits for what broke off acts: a call of the API is answered INTERNAL (`server/access.rs`), a
//! stream ends with that answer (`server/stream.rs`), a service that is a task starts anew (`supervisor/task.rs`), a
//! controller too (`corten_resources::controller`), and a connection is closed. What the node has one of for all its
//! life, and nobody waits for, is done [`again`]. Only of the main flow and of the supervisor it has no second one:
//! without them it restarts, in good order (`lib.rs`, `finish.rs`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::sleep;

use crate::console;

/// From a panic to the next attempt: at first, and at last.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a panic said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it has a bug: {0}")]
pub struct Panicked(String);

impl Panicked {
    fn of(payload: &(dyn Any + Send)) -> Panicked {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        Panicked(text.unwrap_or_else(|| "a panic without words".to_owned()))
    }
}

/// From now on every panic is told, with its place. It must not panic itself, which would end the process.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|panic| {
        console::error(&format!("machined has a bug: {panic}"));
    }));
}

/// Does the work, for who acts on a panic of it. What the work leaves behind is dropped with it, or a plain value
/// behind a lock, whole at any time.
///
/// # Errors
/// It panicked.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let caught = AssertUnwindSafe(work).catch_unwind().await;
    caught.map_err(|payload| Panicked::of(payload.as_ref()))
}

/// Does the work, and after a panic of it again, a little later each time, until it ends by itself.
pub async fn again<F: Future>(work: impl FnMut() -> F) -> F::Output {
    again_after(PAUSE, work).await
}

async fn again_after<F: Future>(mut pause: Duration, mut work: impl FnMut() -> F) -> F::Output {
    loop {
        if let Ok(done) = caught(async { work().await }).await {
            return done;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// [`caught`] for work that may block.
///
/// # Errors
/// It panicked.
pub fn caught_here<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panicked::of(payload.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::alone::in_a_process;

    /// A number that no compiler knows.
    fn number() -> usize {
        std::env::args().count()
    }

    #[tokio::test]
    async fn what_panics_is_done_again_until_it_ends_by_itself() {
        let mut attempts = 0;
        let ended = again_after(Duration::ZERO, || {
            attempts += 1;
            assert_ne!(attempts, 1, "before it began");
            let attempt = attempts;
            async move {
                tokio::task::yield_now().await;
                assert_ne!(attempt, 2, "while it was done");
                attempt
            }
        });
        assert_eq!(ended.await, 3);
    }

    #[test]
    fn a_panic_ends_the_task_or_thread_it_is_in_and_is_told() {
        let said = in_a_process(
            "panics::tests::a_panic_ends_the_task_or_thread_it_is_in_and_is_told",
            || {
                install_hook();
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .max_blocking_threads(1)
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let index = number();
                    let task = tokio::spawn(async move { Vec::<u8>::new()[index] });
                    assert!(task.await.unwrap_err().is_panic());
                    // One thread only: it is there for the next as well.
                    for _ in 0..2 {
                        let blocking =
                            tokio::task::spawn_blocking(|| panic!("in a blocking thread"));
                        let ended: Result<(), _> = blocking.await;
                        assert!(ended.unwrap_err().is_panic());
                    }
                    let caught: Result<(), _> = caught(async { panic!("in a call") }).await;
                    let text = caught.unwrap_err().to_string();
                    assert_eq!(text, "it has a bug: in a call");
                });
                let thread = thread::spawn(|| panic!("in a thread"));
                let ended: Result<(), _> = thread.join();
                ended.unwrap_err();
                caught_here(|| std::panic::panic_any(7)).unwrap_err();
            },
        );
        let Some(said) = said else { return };
        for text in [
            "index out of bounds",
            "in a blocking thread",
            "in a call",
            "in a thread",
        ] {
            assert!(said.contains(text), "{text}: {said}");
        }
        assert!(said.contains("machined has a bug: panicked at node/base/src/panics.rs"));
    }
}
