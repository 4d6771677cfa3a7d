//! Containers under the supervisor, with a fake containerd.

use std::fs;

use super::*;
use crate::supervisor::limits::{Limits, Restart};
use crate::supervisor::testing::{LIMITS, spec, world};
use crate::view::{Control, ServiceState, ServiceView};
use crate::{Condition, Runner};

#[tokio::test]
async fn removed_service_is_listed_until_it_ends_and_can_be_declared_again() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.supervisor.forget("x");
    world.supervisor.forget("never declared");
    let mut views = world.supervisor.watch();
    let gone = views.wait_for(Vec::is_empty);
    timeout(Duration::from_secs(20), gone)
        .await
        .unwrap()
        .unwrap();
    world.fake.change(|state| assert!(state.running.is_empty()));
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    // A service that is declared again before it has ended stays known.
    world.supervisor.forget("x");
    world.supervisor.declare(spec("x"));
    world.until("x", |view| view.pid == Some(103)).await;
    world.until_up("x").await;
}

#[tokio::test]
async fn stop_of_all_services_survives_a_concurrent_removal() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    let dependent = ServiceSpec {
        depends_on: vec!["x".into()],
        ..spec("y")
    };
    world.supervisor.declare(dependent);
    world.until_up("y").await;
    // Both end by themselves; y, which should end first, ends last.
    world.fake.change(|state| state.refuses = u32::MAX);
    world.supervisor.forget("x");
    let supervisor = world.supervisor.clone();
    let stopped = tokio::spawn(async move { supervisor.stop_all().await });
    let stopping = |view: &ServiceView| view.state == ServiceState::Stopping;
    world.until("y", stopping).await;
    world.fake.end("x", 0);
    let mut views = world.supervisor.watch();
    let gone = views.wait_for(|views| views.iter().all(|view| view.id != "x"));
    timeout(Duration::from_secs(20), gone)
        .await
        .unwrap()
        .unwrap();
    world.fake.end("y", 0);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn container_starts_logs_ends_and_restarts() {
    let mut world = world();
    world.supervisor.declare(spec("x"));
    assert_eq!(
        world.until_up("x").await,
        "Started task x (PID 101) for container x"
    );
    world.until("x", |view| view.pid == Some(101)).await;
    assert_eq!(
        world.logs.next_line().await,
        ("x".to_owned(), "hello from 101".to_owned())
    );
    world.fake.end("x", 3);
    world
        .until_said("x", "Ended: exit code 3; starting again in 1 ms")
        .await;
    world
        .until_said("x", "Started task x (PID 102) for container x")
        .await;
    world.until("x", |view| view.pid == Some(102)).await;
    assert_eq!(world.logs.next_line().await.1, "hello from 102");
    let stopped = world.supervisor.control("x", Control::Stop);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
    world.until("x", |view| view.pid.is_none()).await;
}

#[tokio::test]
async fn container_waits_for_services_and_conditions_and_names_them() {
    let world = world();
    let waiting = ServiceSpec {
        depends_on: vec!["other".into()],
        needs: vec![Condition::Time],
        ..spec("x")
    };
    world.supervisor.declare(waiting);
    let both = "Waiting for service \"other\" to be \"up\", time synchronisation";
    world.until_said("x", both).await;
    world.supervisor.declare(spec("other"));
    world.until_up("other").await;
    let conditions = world.supervisor.conditions();
    conditions.set(Condition::Time, Err("no server".to_owned()));
    world
        .until_said("x", "Waiting for time synchronisation (no server)")
        .await;
    conditions.set(Condition::Time, Ok(()));
    world.until_up("x").await;
}

#[tokio::test]
async fn a_container_outlives_a_restart_of_containerd() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.fake.change(|state| state.away = true);
    // A request made while containerd is away is carried out later.
    let stopped = world.supervisor.control("x", Control::Stop);
    world
        .until("x", |view| view.state == ServiceState::Stopping)
        .await;
    world.fake.change(|state| {
        assert_eq!((state.running.len(), state.signals.len()), (1, 0));
        state.away = false;
    });
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
    world.fake.change(|state| {
        assert_eq!(
            (state.made, state.signals.as_slice()),
            (1, &[Signal::TERM][..])
        );
    });
}

#[tokio::test]
async fn refused_signal_is_sent_again() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.fake.change(|state| state.refuses = 2);
    let stopped = world.supervisor.control("x", Control::Stop);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
    world.fake.change(|state| {
        assert_eq!(
            (state.refuses, state.signals.as_slice()),
            (0, &[Signal::TERM][..])
        );
    });
}

#[tokio::test]
async fn container_exit_during_a_containerd_outage_is_noticed() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.fake.change(|state| state.away = true);
    world.fake.change(|state| {
        state.running.clear();
        state.away = false;
    });
    world
        .until_said("x", "Started task x (PID 102) for container x")
        .await;
}

#[tokio::test]
async fn container_with_a_lost_start_answer_is_taken_over_and_not_duplicated() {
    let world = world();
    world.fake.change(|state| state.loses_answers = true);
    // Even a one-shot container does not fail because of this.
    let once = ServiceSpec {
        limits: Limits {
            restart: Restart::Never,
            ..LIMITS
        },
        ..spec("x")
    };
    world.supervisor.declare(once);
    world.fake.until(|state| state.away.then_some(())).await;
    world.fake.change(|state| {
        state.loses_answers = false;
        state.away = false;
    });
    world
        .until_said("x", "Took over task x (PID 101) for container x")
        .await;
    assert_eq!(world.fake.change(|state| state.made), 1);
}

#[tokio::test]
async fn equal_declaration_keeps_the_container_and_a_changed_one_restarts_it() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    world.supervisor.declare(spec("x"));
    let other = ServiceSpec {
        oom_score_adj: 7,
        ..spec("x")
    };
    world.supervisor.declare(other);
    world
        .until_said("x", "Started task x (PID 102) for container x")
        .await;
    world.fake.change(|state| {
        assert_eq!((state.made, state.running["x"].0.oom_score_adj), (2, 7));
    });
}

#[tokio::test]
async fn declaration_for_the_next_start_leaves_the_container_alone_until_then() {
    let world = world();
    world.supervisor.declare_next(spec("x"));
    world.until_up("x").await;
    let other = ServiceSpec {
        oom_score_adj: 7,
        ..spec("x")
    };
    world.supervisor.declare_next(other.clone());
    world.supervisor.answers().await;
    let score = || {
        world
            .fake
            .change(|state| state.running["x"].0.oom_score_adj)
    };
    assert_ne!(score(), 7);
    let restarted = world.supervisor.control("x", Control::Restart);
    restarted.await.unwrap();
    assert_eq!(score(), 7);
    // It runs as declared now.
    world.supervisor.declare(other);
    world.supervisor.answers().await;
    assert_eq!(world.fake.change(|state| state.made), 2);
}

#[tokio::test]
async fn a_start_that_hangs_can_be_stopped() {
    let world = world();
    world.fake.change(|state| state.hangs = true);
    world.supervisor.declare(spec("x"));
    world.until_said("x", "Creating the container").await;
    let stopped = world.supervisor.control("x", Control::Stop);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn environment_file_that_is_a_pipe_is_refused_without_blocking() {
    let world = world();
    let pipe = world.directory.path().join("env");
    make_fifo(&pipe).unwrap();
    let mut declared = spec("x");
    if let Runner::Container(container) = &mut declared.runner {
        container.environment_file = Some(pipe);
    }
    world.supervisor.declare(declared);
    let refused = |view: &ServiceView| {
        let mut events = view.events.iter();
        events.any(|event| event.message.contains("must be a regular file"))
    };
    world.until("x", refused).await;
    let stopped = world.supervisor.control("x", Control::Stop);
    timeout(Duration::from_secs(20), stopped)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn dependent_services_are_stopped_first() {
    let world = world();
    let dependent = ServiceSpec {
        depends_on: vec!["x".into()],
        ..spec("y")
    };
    world.supervisor.declare(spec("x"));
    world.supervisor.declare(dependent);
    world.until_up("y").await;
    timeout(Duration::from_secs(20), world.supervisor.stop_all())
        .await
        .unwrap();
    let finished = |id: &str| {
        let views = world.supervisor.views();
        let view = views.into_iter().find(|view| view.id == id).unwrap();
        assert_eq!(view.state, ServiceState::Finished);
        view.events.last().unwrap().at
    };
    assert!(finished("y") <= finished("x"));
}

#[tokio::test]
async fn unusable_service_is_listed_as_failed_with_a_reason() {
    let world = world();
    let broken = ServiceSpec {
        runner: Runner::Unusable("x.yaml: name: it is empty".to_owned()),
        limits: Limits {
            restart: Restart::Never,
            ..LIMITS
        },
        ..spec("x")
    };
    world.supervisor.declare(broken);
    let said = world
        .until("x", |view| view.state == ServiceState::Failed)
        .await;
    assert_eq!(said, "Failed to start: x.yaml: name: it is empty");
}

#[tokio::test]
async fn environment_comes_from_declaration_and_file() {
    let world = world();
    let file = world.directory.path().join("env");
    let mut declared = spec("x");
    if let Runner::Container(container) = &mut declared.runner {
        container.environment = vec!["A=1".to_owned()];
        container.environment_file = Some(file.clone());
    }
    world.supervisor.declare(declared);
    let missing = |view: &ServiceView| {
        view.events
            .iter()
            .any(|event| event.message.contains("env: No such file"))
    };
    world.until("x", missing).await;
    fs::write(&file, "# comment\n\nB=2\nC=a=b\n").unwrap();
    world.until_up("x").await;
    let environment = world
        .fake
        .change(|state| state.running["x"].0.environment.clone());
    assert_eq!(environment[1..], ["A=1", "B=2", "C=a=b"]);
    for endless in ["/dev/zero", "/dev/stdin", "/proc"] {
        let error = read_environment(Path::new(endless)).unwrap_err();
        assert_eq!(error.to_string(), "must be a regular file");
    }
    fs::write(&file, "A=".repeat(1 << 20)).unwrap();
    let error = read_environment(&file).unwrap_err().to_string();
    assert!(error.contains("1048576 bytes or more"), "{error}");
    for (text, line) in [("A=1\nnovalue\n", 2), ("=1", 1), ("A=\0", 1)] {
        fs::write(&file, text).unwrap();
        let error = read_environment(&file).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("line {line} does not have the form NAME=value")
        );
    }
}

#[tokio::test]
async fn new_container_finds_no_files_of_an_earlier_one_in_its_root() {
    let world = world();
    world.supervisor.declare(spec("x"));
    world.until_up("x").await;
    let bundle = world.fake.change(|state| state.running["x"].0.clone());
    let elsewhere = world.directory.path().join("elsewhere");
    fs::create_dir_all(elsewhere.join("kept")).unwrap();
    fs::create_dir_all(bundle.upper.join("etc")).unwrap();
    fs::write(bundle.upper.join("etc/pid"), "7").unwrap();
    std::os::unix::fs::symlink(&elsewhere, bundle.upper.join("link")).unwrap();
    bundle.renew_root().await.unwrap();
    assert_eq!(fs::read_dir(&bundle.upper).unwrap().count(), 0);
    assert!(elsewhere.join("kept").exists());
    // Also the directory of a service that has never started.
    fs::remove_dir(&bundle.upper).unwrap();
    bundle.renew_root().await.unwrap();
    assert!(bundle.upper.exists());
}
