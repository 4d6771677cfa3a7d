//! Runs controllers, each in a task of its own.

use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::backoff::{self, Backoff};
use super::{Context, Controller, Declaration, Failure, Graph, GraphError};
use crate::kind::random;
use crate::store::Store;

/// A report of a controller's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Name of the controller.
    pub controller: &'static str,
    /// Error with its causes, or the message of a panic.
    pub error: String,
    /// Whether the controller panicked, which is a bug.
    pub panicked: bool,
    /// Delay until the restart.
    pub retry_in: Duration,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.panicked { "has a bug" } else { "failed" };
        let seconds = self.retry_in.as_secs_f32();
        write!(
            f,
            "controller {} {what}: {}; it starts again in {seconds:.1} s",
            self.controller, self.error
        )
    }
}

/// Starts a run of a controller's clone.
type Starter = Box<dyn Fn(Context) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// Runs controllers on a store.
pub struct Runtime {
    store: Store,
    graph: Graph,
    starters: Vec<(Declaration, Starter)>,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("graph", &self.graph)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// A runtime without controllers.
    #[must_use]
    pub fn new(store: Store) -> Runtime {
        Runtime {
            store,
            graph: Graph::default(),
            starters: Vec::new(),
        }
    }

    /// Adds a controller and registers its declared types with the store.
    ///
    /// # Errors
    /// [`GraphError`]. Nothing runs at this point, so a node with an invalid graph does not start at all.
    pub fn add(&mut self, controller: impl Controller) -> Result<(), GraphError> {
        let declaration = Declaration::of(&controller);
        let starter: Starter = Box::new(move |mut context| {
            let controller = controller.clone();
            Box::pin(async move { controller.run(&mut context).await })
        });
        self.add_starter(declaration, starter)
    }

    fn add_starter(
        &mut self,
        declaration: Declaration,
        starter: Starter,
    ) -> Result<(), GraphError> {
        self.graph.add(declaration.clone())?;
        let of_inputs = declaration.inputs.iter().map(|input| input.registered);
        let of_outputs = declaration.outputs.iter().map(|output| output.registered);
        for new in of_inputs.chain(of_outputs) {
            let known = self.store.register_type(new);
            known.map_err(|source| GraphError::Type {
                controller: declaration.name,
                source,
            })?;
        }
        self.starters.push((declaration, starter));
        Ok(())
    }

    /// The graph of inputs and outputs.
    #[must_use]
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Runs the controllers until all have ended or the future is dropped. `tell` receives every failure.
    pub async fn run(self, tell: impl Fn(Notice) + Send + Sync + 'static) {
        let tell = Arc::new(tell);
        let mut tasks = JoinSet::new();
        for (declaration, starter) in self.starters {
            let keep = keep_running(self.store.clone(), declaration, starter, tell.clone());
            tasks.spawn(keep);
        }
        while tasks.join_next().await.is_some() {}
    }
}

async fn keep_running(
    store: Store,
    declaration: Declaration,
    starter: Starter,
    tell: Arc<impl Fn(Notice) + Send + Sync>,
) {
    let mut backoff = Backoff::default();
    let went_well = Arc::new(AtomicBool::new(false));
    loop {
        let context = Context::new(store.clone(), declaration.clone(), went_well.clone());
        let start = Instant::now();
        let ended = match context {
            Ok(context) => {
                // The state of a failed run is dropped; the next run starts from a clone.
                AssertUnwindSafe(starter(context)).catch_unwind().await
            }
            Err(error) => Ok(Err(error.into())),
        };
        let (error, panicked) = match ended {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => (with_causes(failure.as_ref()), false),
            Err(panic) => (message(panic.as_ref()), true),
        };
        // A controller that waits for something other than resources may run for days on its first event.
        if went_well.swap(false, Ordering::Relaxed) || start.elapsed() > backoff::LONGEST {
            backoff.reset();
        }
        let retry_in = backoff.next(random());
        tell(Notice {
            controller: declaration.name,
            error,
            panicked,
            retry_in,
        });
        tokio::time::sleep(retry_in).await;
    }
}

/// An error with its causes, on one line.
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}
