//! A service that is a task of machined. A panic in it ends only that service.

use std::fmt;
use std::sync::Arc;

use corten_sys::process::Exit;
use futures_util::future::{BoxFuture, FutureExt as _};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::policy::Event;
use crate::Id;

type Start = dyn Fn(Ready) -> BoxFuture<'static, Result<(), String>> + Send + Sync;

/// A function that starts the task; it is called for every start. A stop drops the task at its next await point.
#[derive(Clone)]
pub struct Task(Arc<Start>);

impl Task {
    /// Wraps a function that starts the task; an error it returns is the reason of its failure.
    #[must_use]
    pub fn new<F>(start: impl Fn(Ready) -> F + Send + Sync + 'static) -> Task
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Task(Arc::new(move |ready| start(ready).boxed()))
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Task")
    }
}

impl PartialEq for Task {
    fn eq(&self, other: &Task) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Task {}

/// Handle by which a task reports that it is ready.
#[derive(Debug)]
pub struct Ready {
    id: Id,
    told: mpsc::UnboundedSender<(Id, Event)>,
}

impl Ready {
    /// Reports that the task is ready.
    pub fn tell(self) {
        let event = Event::Ready("Service is ready".to_owned());
        // The shell ends only with machined.
        let _ = self.told.send((self.id, event));
    }
}

/// Starts the task and reports its events.
pub(super) fn start(id: &Id, task: &Task, told: mpsc::UnboundedSender<(Id, Event)>) -> AbortHandle {
    let ready = Ready {
        id: id.clone(),
        told: told.clone(),
    };
    let task = task.clone();
    // The start function is called inside the task, because it may panic as well.
    let work = tokio::spawn(async move { (task.0)(ready).await });
    let handle = work.abort_handle();
    let id = id.clone();
    tokio::spawn(async move {
        let event = match work.await {
            Ok(Ok(())) => Event::Exited(Exit::Code(0)),
            Ok(Err(why)) => Event::Failed(why),
            // The task was asked to end.
            Err(error) if error.is_cancelled() => Event::Exited(Exit::Code(0)),
            Err(error) => Event::Failed(format!("the task ended unexpectedly: {error}")),
        };
        let _ = told.send((id, event));
    });
    handle
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::supervisor::testing::{spec, world};
    use crate::view::{ServiceState, ServiceView};
    use crate::{Runner, ServiceSpec};

    fn service(task: Task) -> ServiceSpec {
        ServiceSpec {
            runner: Runner::Task(task),
            ..spec("x")
        }
    }

    #[tokio::test]
    async fn failed_or_panicked_task_restarts_and_stops_on_request() {
        let world = world();
        let starts = Arc::new(AtomicU32::new(0));
        let counted = starts.clone();
        let task = Task::new(move |ready| {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                match number {
                    0 => return Err("no socket".to_owned()),
                    1 => panic!("a bug"),
                    _ => ready.tell(),
                }
                pending().await
            }
        });
        world.supervisor.declare(service(task.clone()));
        assert_eq!(world.until_up("x").await, "Service is ready");
        let said = |text: &'static str| {
            move |view: &ServiceView| view.events.iter().any(|event| event.message.contains(text))
        };
        world.until("x", said("no socket")).await;
        world.until("x", said("task ended unexpectedly")).await;
        // An unchanged declaration has no effect.
        world.supervisor.declare(service(task));
        world.supervisor.stop("x");
        let finished = |view: &ServiceView| view.state == ServiceState::Finished;
        let last = world.until("x", finished).await;
        assert_eq!(last, "Service finished: exit code 0");
        assert_eq!(starts.load(Ordering::SeqCst), 3);
    }
}
