//! The start of the tests, and their log.

use std::io;
use std::time::Duration;

use corten_client::failure::Failure;
use corten_client::table::printable;
use corten_cluster::{Cluster, ClusterError, Container, ContainerState};
use futures_util::StreamExt as _;
use futures_util::stream::LocalBoxStream;
use tokio::time::{Instant, sleep};

use super::objects::{NAME, NAMESPACE};

/// Time for the image to be pulled and the tests to start.
const START: Duration = Duration::from_secs(10 * 60);
/// Interval between two looks at the cluster.
const LOOK: Duration = Duration::from_secs(2);

pub(super) type Lines = LocalBoxStream<'static, Result<String, ClusterError>>;

/// The pod of a run.
pub(super) trait Pod {
    /// State of a container; `None` if the pod is gone.
    async fn state(&self, name: &str) -> Result<Option<ContainerState>, ClusterError>;
    /// The log of a container from a time on, until the container ends: lines that begin with their times.
    async fn lines(&self, name: &str, since: Option<&str>) -> Result<Lines, ClusterError>;
}

impl Pod for Cluster {
    async fn state(&self, name: &str) -> Result<Option<ContainerState>, ClusterError> {
        self.container(container(name)).await
    }

    async fn lines(&self, name: &str, since: Option<&str>) -> Result<Lines, ClusterError> {
        Ok(self.log(container(name), since).await?.boxed_local())
    }
}

pub(super) fn failed(error: ClusterError) -> Failure {
    Failure::Call(error.into())
}

/// Waits until a container has started.
pub(super) async fn started(pod: &impl Pod, name: &str) -> Result<(), Failure> {
    let end = Instant::now() + START;
    let mut last = String::new();
    loop {
        match pod.state(name).await.map_err(failed)? {
            Some(ContainerState::Waits(why)) => {
                if why != last {
                    eprintln!("waiting for the tests to start: {}", printable(&why));
                    last = why;
                }
            }
            Some(_) => return Ok(()),
            None => return Err(vanished()),
        }
        if Instant::now() >= end {
            return Err(Failure::call(format!(
                "the tests have not started within {} s: {}",
                START.as_secs(),
                printable(&last)
            )));
        }
        sleep(LOOK).await;
    }
}

/// Takes the log of a container until the container has ended; returns its exit code. A broken connection is made anew,
/// and the log goes on after its last line.
pub(super) async fn follow(
    pod: &impl Pod,
    name: &str,
    mut take: impl FnMut(&str) -> io::Result<()>,
) -> Result<i64, Failure> {
    let mut last = String::new();
    loop {
        // What ends after this look has its whole log in the stream that begins now.
        let state = pod.state(name).await;
        let since = (!last.is_empty()).then_some(last.as_str());
        let log = pod.lines(name, since).await;
        let mut is_whole = log.is_ok();
        if let Ok(mut lines) = log {
            while let Some(line) = lines.next().await {
                let Ok(line) = line else {
                    is_whole = false;
                    break;
                };
                let (time, text) = line.split_once(' ').unwrap_or((&line, ""));
                // The server repeats the lines of the time that it was asked from.
                if time > last.as_str() {
                    take(text)?;
                    time.clone_into(&mut last);
                }
            }
        }
        match state {
            Ok(Some(ContainerState::Ended(code))) if is_whole => return Ok(code),
            Ok(None) => return Err(vanished()),
            _ => sleep(LOOK).await,
        }
    }
}

fn vanished() -> Failure {
    Failure::call("the pod of the tests is gone: somebody deleted it, or its node failed")
}

fn container(name: &str) -> Container<'_> {
    Container {
        namespace: NAMESPACE,
        pod: NAME,
        name,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;

    use super::*;

    const TESTS: &str = "tests";

    /// A pod whose log breaks off and is asked for again.
    #[derive(Default)]
    struct Scripted {
        states: RefCell<VecDeque<Option<ContainerState>>>,
        logs: RefCell<VecDeque<Vec<Option<&'static str>>>>,
        asked: RefCell<Vec<Option<String>>>,
    }

    fn broken() -> ClusterError {
        ClusterError::Name {
            object: "the log".to_owned(),
            field: "its connection",
        }
    }

    impl Pod for Scripted {
        async fn state(&self, _: &str) -> Result<Option<ContainerState>, ClusterError> {
            self.states.borrow_mut().pop_front().ok_or_else(broken)
        }

        async fn lines(&self, _: &str, since: Option<&str>) -> Result<Lines, ClusterError> {
            self.asked.borrow_mut().push(since.map(str::to_owned));
            let lines = self.logs.borrow_mut().pop_front().ok_or_else(broken)?;
            let lines = lines.into_iter();
            let lines = lines.map(|line| line.map(str::to_owned).ok_or_else(broken));
            Ok(futures_util::stream::iter(lines).boxed_local())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn log_that_breaks_off_goes_on_after_its_last_line() {
        use ContainerState::{Ended, Runs};
        let pod = Scripted {
            states: RefCell::new([Some(Runs), Some(Runs), Some(Ended(1)), Some(Ended(1))].into()),
            logs: RefCell::new(
                [
                    vec![Some("1Z one"), Some("2Z two"), None],
                    // The server ends the stream before the container ends.
                    vec![Some("2Z two")],
                    vec![Some("2Z two"), Some("3Z "), None],
                    vec![Some("3Z "), Some("4Z four four")],
                ]
                .into(),
            ),
            ..Scripted::default()
        };
        let mut lines = Vec::new();
        let code = follow(&pod, TESTS, |line| {
            lines.push(line.to_owned());
            Ok(())
        });
        assert_eq!(code.await.unwrap(), 1);
        assert_eq!(lines, ["one", "two", "", "four four"]);
        let asked = pod.asked.borrow();
        let asked: Vec<_> = asked.iter().map(Option::as_deref).collect();
        assert_eq!(asked, [None, Some("2Z"), Some("2Z"), Some("3Z")]);
    }

    #[tokio::test(start_paused = true)]
    async fn tests_that_do_not_start_or_vanish_end_with_the_reason() {
        let waits = || {
            Some(ContainerState::Waits(
                "ErrImagePull: no such host".to_owned(),
            ))
        };
        let pod = Scripted {
            states: RefCell::new(std::iter::repeat_with(waits).take(1000).collect()),
            ..Scripted::default()
        };
        let late = started(&pod, TESTS).await.unwrap_err().sentence();
        assert!(
            late.ends_with("within 600 s: ErrImagePull: no such host"),
            "{late}"
        );
        let gone = || Scripted {
            states: RefCell::new([None].into()),
            ..Scripted::default()
        };
        for why in [
            started(&gone(), TESTS).await.unwrap_err(),
            follow(&gone(), TESTS, |_| Ok(())).await.unwrap_err(),
        ] {
            let why = why.sentence();
            assert!(why.contains("the pod of the tests is gone"), "{why}");
        }
    }
}
