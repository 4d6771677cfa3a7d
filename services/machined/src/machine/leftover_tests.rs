//! The end of pods without a kubelet, on a paused clock.

use std::future::pending;
use std::sync::Mutex;

use containerd_client::types::v1::Status as TaskStatus;
use corten_server::node::Action;
use tokio::sync::mpsc::unbounded_channel;

use super::super::takeover::{Operators, Takeovers};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// How containerd answers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Answers {
    #[default]
    Well,
    Refuses,
    Never,
}

/// A container, and its answer to its stop signal.
struct Program {
    container: Container,
    /// Time from the signal to its end; without one it ignores the signal.
    needs: Option<Duration>,
    ends: Option<Instant>,
}

struct Fake {
    begun: Instant,
    answers: Answers,
    programs: Mutex<Vec<Program>>,
    /// The signals, with their times in seconds.
    told: Mutex<Vec<(String, u64)>>,
    kubelet_ended: Mutex<Option<u64>>,
}

impl Fake {
    fn new(programs: Vec<Program>) -> Fake {
        Fake {
            begun: Instant::now(),
            answers: Answers::default(),
            programs: Mutex::new(programs),
            told: Mutex::default(),
            kubelet_ended: Mutex::default(),
        }
    }

    fn seconds(&self) -> u64 {
        self.begun.elapsed().as_secs()
    }

    fn told(&self) -> Vec<(String, u64)> {
        self.told.lock().unwrap().clone()
    }
}

impl Runtime for Fake {
    fn has_pods(&self) -> bool {
        !self.programs.lock().unwrap().is_empty()
    }

    async fn containers(&self) -> Result<Vec<Container>, Status> {
        match self.answers {
            Answers::Well => {}
            Answers::Refuses => return Err(Status::unavailable("containerd does not answer")),
            Answers::Never => pending().await,
        }
        let programs = self.programs.lock().unwrap();
        let seen = programs.iter().map(|program| {
            let has_ended = program.ends.is_some_and(|ends| ends <= Instant::now());
            let mut container = program.container.clone();
            if has_ended {
                container.status = TaskStatus::Stopped;
            }
            container
        });
        Ok(seen.collect())
    }

    async fn stop(&self, container: &Container) -> Result<(), Status> {
        let id = container.internal_id.clone();
        self.told.lock().unwrap().push((id.clone(), self.seconds()));
        let mut programs = self.programs.lock().unwrap();
        let program = programs
            .iter_mut()
            .find(|program| program.container.internal_id == id)
            .unwrap();
        program.ends = program.needs.map(|needs| Instant::now() + needs);
        Ok(())
    }

    async fn end_kubelet(&self) {
        *self.kubelet_ended.lock().unwrap() = Some(self.seconds());
    }
}

fn container(kind: Kind, pod: &str, network: &str) -> Container {
    let id = match kind {
        Kind::Sandbox => format!("sandbox-of-{pod}"),
        Kind::OfPod | Kind::Plain => pod.to_owned(),
    };
    Container {
        kind,
        id: id.clone(),
        internal_id: id.clone(),
        name: id,
        pod: pod.to_owned(),
        uid: format!("uid-of-{pod}"),
        image: String::new(),
        pid: 1,
        status: TaskStatus::Running,
        network_namespace: network.to_owned(),
        stop_signal: 15,
    }
}

/// A pod with one container, whose own network is no sign of the pod's.
fn pod(name: &str, network: &str, needs: Option<Duration>) -> [Program; 2] {
    let sandbox = container(Kind::Sandbox, name, network);
    let program = container(Kind::OfPod, name, "net");
    [(sandbox, None), (program, needs)].map(|(container, needs)| Program {
        container,
        needs,
        ends: None,
    })
}

fn told(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
    let owned = |(id, at): &(&str, u64)| ((*id).to_owned(), *at);
    expected.iter().map(owned).collect()
}

#[tokio::test(start_paused = true)]
async fn pods_without_a_kubelet_are_signalled_once_and_waited_for() {
    for (needs, lasts) in [(Some(7 * SECOND), 7), (None, 30)] {
        let fake = Fake::new(pod("db", "cni-1", needs).into());
        stop(&fake, Duration::ZERO).await;
        assert_eq!(fake.seconds(), lasts);
        assert_eq!(fake.told(), told(&[("db", 0)]));
        assert_eq!(*fake.kubelet_ended.lock().unwrap(), Some(0));
    }
}

#[tokio::test(start_paused = true)]
async fn pods_on_the_nodes_network_are_signalled_after_the_others() {
    for (needs, second, lasts) in [
        (Some(4 * SECOND), 4, 6),
        // They get their signals while there is time left for them.
        (None, 20, 30),
    ] {
        let agent = pod("agent", "", Some(2 * SECOND));
        let web = pod("web", "cni-1", needs);
        let fake = Fake::new(agent.into_iter().chain(web).collect());
        stop(&fake, Duration::ZERO).await;
        assert_eq!(fake.told(), told(&[("web", 0), ("agent", second)]));
        assert_eq!(fake.seconds(), lasts);
    }
}

#[tokio::test(start_paused = true)]
async fn node_without_pods_waits_for_nothing_and_asks_nobody() {
    let mut fake = Fake::new(Vec::new());
    fake.answers = Answers::Never;
    stop(&fake, 3 * SECOND).await;
    assert_eq!(fake.begun.elapsed(), Duration::ZERO);
    // A sandbox has nothing to save.
    let [sandbox, _] = pod("web", "cni-1", None);
    let fake = Fake::new(vec![sandbox]);
    stop(&fake, Duration::ZERO).await;
    assert_eq!(fake.begun.elapsed(), Duration::ZERO);
    assert_eq!(fake.told(), []);
}

#[tokio::test(start_paused = true)]
async fn containers_that_the_kubelet_still_ends_are_left_to_it() {
    let mut programs = pod("db", "cni-1", None);
    programs[1].ends = Some(Instant::now() + SECOND);
    let fake = Fake::new(programs.into());
    stop(&fake, 3 * SECOND).await;
    assert_eq!(fake.seconds(), 1);
    assert_eq!(fake.told(), []);
    assert_eq!(*fake.kubelet_ended.lock().unwrap(), None);
    // A kubelet that died let go of its inhibitor as well.
    let fake = Fake::new(pod("db", "cni-1", Some(SECOND)).into());
    stop(&fake, 3 * SECOND).await;
    assert_eq!(fake.told(), told(&[("db", 3)]));
}

#[tokio::test(start_paused = true)]
async fn containerd_that_does_not_answer_delays_the_end_for_seconds_only() {
    for answers in [Answers::Refuses, Answers::Never] {
        let mut fake = Fake::new(pod("db", "cni-1", None).into());
        fake.answers = answers;
        stop(&fake, Duration::ZERO).await;
        assert_eq!(fake.begun.elapsed(), ANSWER, "{answers:?}");
        assert_eq!(fake.told(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn forced_end_ends_the_wait_for_pods_without_a_kubelet() {
    let (press, presses) = unbounded_channel();
    let (_ask, requests) = unbounded_channel();
    let mut takeovers = Takeovers {
        operators: Operators::heed(presses).unwrap(),
        requests,
    };
    press.send(()).unwrap();
    let fake = Fake::new(pod("db", "cni-1", None).into());
    let ended = takeovers.unless(stop(&fake, Duration::ZERO)).await;
    let order = ended.unwrap_err();
    assert_eq!(order.action, Action::Shutdown { forced: true });
    assert_eq!(fake.begun.elapsed(), Duration::ZERO);
    assert_eq!(fake.told(), told(&[("db", 0)]));
}

#[test]
fn network_of_a_pod_is_that_of_all_its_sandboxes() {
    let all = vec![
        container(Kind::Sandbox, "agent", ""),
        container(Kind::OfPod, "agent", "net"),
        // The former sandbox of a pod had no network yet.
        container(Kind::Sandbox, "web", ""),
        container(Kind::Sandbox, "web", "cni-1"),
        container(Kind::OfPod, "web", "net"),
        // Without a sandbox, it may need the agents of the pod network.
        container(Kind::Plain, "alone", ""),
        Container {
            status: TaskStatus::Stopped,
            ..container(Kind::OfPod, "done", "net")
        },
    ];
    let found = running(all);
    assert_eq!(pods(&found), 3);
    let seen = found.iter().map(|running| {
        let id = running.container.id.as_str();
        (id, running.on_node_network)
    });
    let seen: Vec<_> = seen.collect();
    assert_eq!(seen, [("agent", true), ("web", false), ("alone", false)]);
}

#[test]
fn long_lists_of_containers_are_cut() {
    let names = |count: usize| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>();
    assert_eq!(shown(&names(5)), "1, 2, 3, 4, 5");
    assert_eq!(shown(&names(7)), "1, 2, 3, 4, 5 and 2 more");
}
