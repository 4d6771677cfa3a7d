//! Reports a panic in process 1 with its place; the panic ends only its own task or thread.
//!
//! The waiting code answers INTERNAL, restarts the service or controller, or closes the connection. Work without a
//! waiter runs under [`again`]. A panic of the main flow or of the supervisor reboots the node (`lib.rs`, `finish.rs`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::sleep;

use crate::console;

/// First and longest delay from a panic to the next attempt.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The message of a panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a panic: {0}")]
pub struct Panicked(String);

impl Panicked {
    fn of(payload: &(dyn Any + Send)) -> Panicked {
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| payload.downcast_ref::<String>().cloned());
        Panicked(text.unwrap_or_else(|| "a panic without a message".to_owned()))
    }
}

/// Installs a hook that logs every panic with its location. The hook itself must not panic, which would end the
/// process.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|panic| {
        console::error(&format!("machined has a bug: {panic}"));
    }));
}

/// Runs the work and catches a panic in it. This is sound because state that outlives the work is a plain value behind
/// a lock, consistent at every moment.
///
/// # Errors
/// The work panicked.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    let caught = AssertUnwindSafe(work).catch_unwind().await;
    caught.map_err(|payload| Panicked::of(payload.as_ref()))
}

/// Runs the work until it ends without a panic, with a growing delay between attempts.
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

/// Same as [`caught`], for blocking work.
///
/// # Errors
/// The work panicked.
pub fn caught_here<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| Panicked::of(payload.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::alone::in_a_process;

    /// A number the compiler cannot predict.
    fn number() -> usize {
        std::env::args().count()
    }

    #[tokio::test]
    async fn panicking_task_is_restarted_until_it_ends_normally() {
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
    fn panic_ends_only_its_task_or_thread_and_is_logged() {
        let said = in_a_process(
            "panics::tests::panic_ends_only_its_task_or_thread_and_is_logged",
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
                    // There is only one blocking thread; it survives for the next closure.
                    for _ in 0..2 {
                        let blocking =
                            tokio::task::spawn_blocking(|| panic!("in a blocking thread"));
                        let ended: Result<(), _> = blocking.await;
                        assert!(ended.unwrap_err().is_panic());
                    }
                    let caught: Result<(), _> = caught(async { panic!("in a call") }).await;
                    let text = caught.unwrap_err().to_string();
                    assert_eq!(text, "a panic: in a call");
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
