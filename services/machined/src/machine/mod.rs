//! The life of a node: runs the boot plan, serves requests, and decides how the node ends.

mod acquire;
mod api;
mod config;
mod departure;
mod ending;
mod extensions;
mod images;
mod install;
mod leftover;
mod loading;
mod lock;
mod overlay;
mod owner;
mod platform;
mod pods;
mod reclaim;
mod runtime;
mod seed;
mod standing;
mod storage;
mod stored_seed;
mod takeover;
mod tell;
mod trial;
mod verdict;
mod wall_clock;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corten_api::machine::{phase_event, task_event};
use corten_base::cmdline::Cmdline;
use corten_base::console;
use corten_base::events::Events;
use corten_base::mode::{Ability, Mode};
use corten_base::mount_table;
use corten_base::mounts;
use corten_base::panics::again;
use corten_clock::floor::Floor;
use corten_containerd::client::Containerd;
use corten_controllers::Sources;
use corten_hardware::power_button::{self, Inputs};
use corten_hardware::sysctls;
use corten_hardware::uevents::Uevents;
use corten_logind::Inhibitors;
use corten_network::{Network, Setup};
use corten_server::node::{Action, Node, Stage};
use corten_supervisor::supervisor::{Outside, Places, Supervisor, logs};
use corten_supervisor::{
    ApiMode, CONTAINERD, CONTAINERD_SOCKET, CONTAINERS, MACHINED, NAMES, SANDBOX_STAGE,
    SYSLOGD_SOCKET, runs_in, table,
};
use corten_sys::{host, process};
use corten_volumes::{Progress, STATE};
use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, timeout};

use crate::boot::{self, Phase, Task, cgroups, overlays, system};
use crate::finish::Ending;
use crate::state::{NodeState, Request};
use takeover::{Operators, Order, Takeovers, asked};
use trial::Trial;

/// Time that the boot waits for a service. The supervisor continues to retry afterwards.
const SERVICE_PATIENCE: Duration = Duration::from_secs(120);
/// Time that the end of the boot waits for an address. The network continues to retry afterwards.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(20);
/// Time for the answer to a request to reach its client before apid stops.
const ANSWER_GRACE: Duration = Duration::from_millis(300);

/// Reason why a boot cannot continue.
#[derive(Debug)]
pub struct Fatal(String);

impl fmt::Display for Fatal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<io::Error> for Fatal {
    fn from(error: io::Error) -> Fatal {
        Fatal(error.to_string())
    }
}

/// All parts of a node.
struct Machine {
    node: Arc<NodeState>,
    supervisor: Supervisor,
    cmdline: Cmdline,
    presses: mpsc::UnboundedSender<()>,
    uevents: Uevents,
    network: Network,
    /// Filled when the network may start.
    setup: watch::Sender<Option<Arc<Setup>>>,
    platform: platform::Heard,
    machine_id: Mutex<String>,
    /// Whether EPHEMERAL was not mounted at the last attempt because only a config says how to open it.
    awaits_config: AtomicBool,
    /// Requests of the node to restart itself, with the reason.
    restarts: mpsc::UnboundedSender<String>,
    extensions: extensions::Extensions,
    /// Whether containerd must run. The lock is held while it is declared.
    wants_containerd: Mutex<bool>,
    volumes: watch::Sender<Progress>,
    /// Reason why the node's stored machine config, or that of its source, is unusable.
    unusable: Mutex<Option<String>>,
    /// Reason why an older config is used instead of the stored one.
    fallback: Mutex<Option<String>>,
    /// Lower bound of the clock.
    floor: Arc<Floor>,
    /// The clients that delay the end of this boot, such as the kubelet.
    inhibitors: Inhibitors,
}

/// Runs the node until it ends.
///
/// # Errors
/// The node cannot continue; the text says why.
pub async fn live(cmdline: Cmdline) -> Result<Ending, Fatal> {
    let (presses, pressed) = mpsc::unbounded_channel();
    let mut operators = Operators::heed(pressed)?;
    let (log, queue) = logs::queue();
    console::log_to(log.clone().lines_of(MACHINED));
    tokio::spawn(logs::forward(queue, PathBuf::from(SYSLOGD_SOCKET)));
    let events = Events::default();
    let supervisor = supervise(log.clone(), events.clone())
        .map_err(|error| Fatal(format!("cannot supervise services: {error}")))?;
    let (node, mut requests) = NodeState::new(supervisor.clone(), events);
    node.log_to(log);
    let (restarts, mut restart) = mpsc::unbounded_channel();
    let network = Network::follow(node.store());
    let machine = Arc::new(Machine {
        node,
        supervisor,
        cmdline,
        presses,
        uevents: Uevents::listen(),
        network,
        setup: watch::Sender::new(None),
        platform: platform::Heard::default(),
        machine_id: Mutex::new(String::new()),
        awaits_config: AtomicBool::new(false),
        restarts,
        extensions: extensions::Extensions::default(),
        wants_containerd: Mutex::default(),
        volumes: watch::Sender::default(),
        unusable: Mutex::default(),
        fallback: Mutex::default(),
        floor: Arc::new(Floor::of_image()),
        inhibitors: Inhibitors::default(),
    });
    machine.begin_tasks();
    let mut boot = tokio::spawn(machine.clone().boot());
    let mut booting = true;
    let mut trial: Option<Trial> = None;
    let order = loop {
        tokio::select! {
            ended = &mut boot, if booting => {
                booting = false;
                let early = |error| Err(Fatal(format!("the boot ended early: {error}")));
                ended.unwrap_or_else(early)?;
            }
            Some(request) = requests.recv() => match request {
                Request::Apply(document, how) => {
                    trial = Trial::next(trial, how, machine.node.config(), Instant::now());
                    sleep(ANSWER_GRACE).await;
                    machine.take_over(*document, how);
                }
                Request::Act(action, actor) => {
                    sleep(ANSWER_GRACE).await;
                    break Order { action, why: asked(&actor.who), actor: actor.id };
                }
            },
            () = Trial::over(trial.as_ref()) => {
                if let Some(Trial { before, .. }) = trial.take() {
                    console::say("the trial of the config has ended: reverting to the former config");
                    machine.activate(before);
                }
            }
            order = operators.next() => break order,
            why = machine.supervisor.lost() => return Err(Fatal(why)),
            Some(why) = restart.recv() => break Order::of_itself(Action::Reboot, &why),
        }
    };
    boot.abort();
    let takeovers = Takeovers {
        operators,
        requests,
    };
    Ok(machine.wind_down(order, takeovers).await)
}

fn supervise(log: logs::Sender, events: Events) -> io::Result<Supervisor> {
    let places = Places {
        cgroups: cgroups::ROOT.into(),
        notify: "/run/notify".into(),
        stage: SANDBOX_STAGE.into(),
        containers: CONTAINERS.into(),
    };
    let outside = Outside {
        runtime: Arc::new(Containerd::new(Path::new(CONTAINERD_SOCKET))),
        reap: process::reap,
    };
    let specs = table(ApiMode::Secure).into_iter();
    let specs = specs.filter(|spec| runs_in(&spec.id, Mode::now()));
    Supervisor::new(specs.collect(), places, outside, log, events)
}

impl Machine {
    fn run_controllers(&self) -> Result<(), Fatal> {
        let sources = Sources {
            stage: self.node.stages(),
            lock: self.node.locks(),
            services: self.supervisor.watch(),
            conditions: self.supervisor.conditions(),
            meta: self.node.meta().watch(),
            last_stop: self.node.last_stops(),
            config: self.node.configs(),
            accepted_config: self.node.accepted_configs(),
            network_config: self.node.network_configs(),
            installation: self.node.installations(),
            supervisor: Some(self.supervisor.clone()),
            network: self.setup.subscribe(),
            seed: self.platform.seed.subscribe(),
            instance: self.platform.instance.subscribe(),
            volumes: self.volumes.subscribe(),
            user_volumes: self.node.user_volumes(),
            mounts: mount_table::follow(),
            uevents: self.uevents.clone(),
            extensions: self.extensions.loaded.subscribe(),
            extension_configs: self.extensions.in_place.subscribe(),
            cluster: self.node.clusters(),
            events: self.node.events().clone(),
            floor: self.floor.clone(),
        };
        let runtime = corten_controllers::runtime(self.node.store().clone(), sources)
            .map_err(|error| Fatal(error.to_string()))?;
        // The runtime has registered the types, so they can be watched now.
        let (store, events) = (self.node.store().clone(), self.node.events().clone());
        tokio::spawn(again(move || {
            tell::tell_status(store.clone(), events.clone())
        }));
        tokio::spawn(corten_controllers::run(runtime));
        Ok(())
    }

    /// Starts the tasks that run in parallel with the boot and after it.
    fn begin_tasks(self: &Arc<Machine>) {
        tokio::spawn(self.clone().load_extensions());
        let machine = self.clone();
        tokio::spawn(again(move || machine.clone().follow_seed()));
        let machine = self.clone();
        tokio::spawn(again(move || machine.clone().follow_platform()));
        let machine = self.clone();
        tokio::spawn(again(move || machine.clone().follow_stored_seed()));
        if Mode::now().can(Ability::Disks) {
            let machine = self.clone();
            tokio::spawn(again(move || machine.clone().follow_late_disks()));
        }
        tokio::spawn(reclaim::follow());
        let machine = self.clone();
        tokio::spawn(async move { machine.judge_version().await });
    }

    async fn boot(self: Arc<Machine>) -> Result<(), Fatal> {
        self.tell_begin("boot", "");
        let done = self.run_plan().await;
        self.tell_end("boot", "", done.as_ref().err());
        done
    }

    async fn run_plan(self: &Arc<Machine>) -> Result<(), Fatal> {
        let begun = Instant::now();
        let plan = boot::plan(Mode::now());
        for (number, phase) in plan.iter().enumerate() {
            console::say(&format!("boot {}/{} {phase}", number + 1, plan.len()));
            self.tell_phase(phase.name, phase_event::Action::Start);
            self.run_phase(phase).await?;
            self.tell_phase(phase.name, phase_event::Action::Stop);
        }
        if self.node.config().is_some() {
            self.node.set_stage(Stage::Running);
        }
        // A container shares a kernel that started long ago, so the kernel's uptime does not measure this boot.
        let took = match Mode::now() {
            Mode::Machine => host::since_boot(),
            Mode::Container => begun.elapsed(),
        };
        if timeout(ADDRESS_PATIENCE, self.network.reachable())
            .await
            .is_err()
        {
            console::warn(&format!(
                "network: no address after {} s; check cable and DHCP, or set one in the config",
                ADDRESS_PATIENCE.as_secs()
            ));
        }
        self.say_summary(took);
        Ok(())
    }

    async fn run_phase(self: &Arc<Machine>, phase: &Phase) -> Result<(), Fatal> {
        let named = |task: &Task| {
            let name = task.to_string();
            move |error: Fatal| Fatal(format!("{name}: {error}"))
        };
        if phase.one_by_one {
            for task in &phase.tasks {
                self.perform(*task).await.map_err(named(task))?;
            }
            return Ok(());
        }
        let all = phase
            .tasks
            .iter()
            .map(|task| async move { self.perform(*task).await.map_err(named(task)) });
        join_all(all).await.into_iter().collect()
    }

    async fn perform(self: &Arc<Machine>, task: Task) -> Result<(), Fatal> {
        let name = task.to_string();
        self.tell_task(&name, "", task_event::Action::Start);
        let done = self.carry_out(task).await;
        self.tell_task(&name, "", task_event::Action::Stop);
        done
    }

    async fn carry_out(self: &Arc<Machine>, task: Task) -> Result<(), Fatal> {
        match task {
            Task::MountFileSystems => mounts::mount_required().map_err(Fatal)?,
            Task::MountOptional => {
                if let Err(error) = spawn_blocking(mounts::mount_optional).await {
                    console::warn(&format!("{task}: {error}"));
                }
            }
            Task::RunControllers => self.run_controllers()?,
            Task::MountVolumes => self.mount_volumes().await,
            Task::FinishVolumes => self.finish_volumes().await?,
            Task::MakeDirectories => system::make_directories().map_err(Fatal)?,
            Task::SetLimits => system::set_limits(),
            Task::MakeCgroups => cgroups::make_all(Path::new(cgroups::ROOT))?,
            Task::SetSysctls => {
                let set = sysctls::apply(Path::new("/"));
                console::say(&format!("{set} sysctls set"));
            }
            Task::IdentifyMachine => {
                *lock(&self.machine_id) = system::identify_machine(Path::new(STATE.target))?;
            }
            Task::LoadConfig => self.load_config(),
            Task::ReadLastStop => self.read_last_stop(),
            Task::FinishLastStop => self.finish_last_stop(),
            Task::MountOverlays => overlays::mount_all(),
            Task::WriteFiles => self.write_files(),
            Task::WatchPowerButton => {
                let (devices, presses) = (self.uevents.follow("input"), self.presses.clone());
                tokio::spawn(again(move || {
                    power_button::watch(Inputs::default(), devices.clone(), presses.clone())
                }));
            }
            Task::BringUpNetwork => self.bring_up_network(),
            Task::AnnounceEnds => self.announce_ends(),
            Task::ServeApi => self.serve_api().await?,
            Task::ServeImages => self.serve_images(),
            Task::StartExtensions => self.start_extensions(),
            Task::Start(id) => self.start(id).await,
        }
        Ok(())
    }

    async fn start(&self, id: &'static str) {
        match id {
            CONTAINERD => self.want_containerd(),
            _ => self.supervisor.start(id),
        }
        if timeout(SERVICE_PATIENCE, self.supervisor.up(id))
            .await
            .is_err()
        {
            console::warn(&format!(
                "service {id} is not up after {} s; still trying; see `logs {id}`",
                SERVICE_PATIENCE.as_secs()
            ));
        }
    }

    /// Starts the network. No task of the boot needs an address, so none waits for it.
    fn bring_up_network(&self) {
        self.setup.send_replace(Some(Arc::new(Setup {
            cmdline: self.cmdline.clone(),
            default_hostname: system::default_hostname(&lock(&self.machine_id)),
            names: PathBuf::from(NAMES),
        })));
    }

    fn say_summary(&self, took: Duration) {
        let status = self.network.status();
        console::say(&format!(
            "boot took {:.2} s since the {} started",
            took.as_secs_f64(),
            match Mode::now() {
                Mode::Machine => "kernel",
                Mode::Container => "container",
            }
        ));
        let addresses: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
        let addresses = if addresses.is_empty() {
            "no address yet".to_owned()
        } else {
            addresses.join(", ")
        };
        console::say(&format!(
            "node {} at {addresses}, API on port {}",
            status.hostname,
            corten_api::PORT
        ));
        if system::has_development_keys() {
            console::warn("built with the published development keys: not for production");
        }
        if self.api_mode() == ApiMode::Maintenance {
            console::say(
                "no machine config: waiting for `cortenctl apply-config --insecure --cert-fingerprint FINGERPRINT`",
            );
        }
    }
}

/// Locks a mutex and ignores poisoning: the guarded values are plain, and stay consistent after a panic.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
