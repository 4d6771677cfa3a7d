//! The node's life: runs the boot plan, serves requests, and says how it shall end.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use corten_config::Document;
use corten_sys::host;
use corten_sys::power::End;
use futures_util::future::join_all;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use crate::boot::{self, Phase, Task, cgroups, mounts, sysctls, system};
use crate::cmdline::Cmdline;
use crate::console;
use crate::identity::{Identity, IdentityError, RENEW_AFTER};
use crate::network::{Network, Status, Wishes};
use crate::node::{Action, Node, Stage};
use crate::power_button;
use crate::server;
use crate::services::{APID_PKI, APID_UID, ApiMode, MACHINED_SOCKET, SYSLOGD_SOCKET, table};
use crate::state::{NodeState, Request};
use crate::supervisor::{Places, Supervisor, logs};

/// A config that was put into the image when it was built.
const EMBEDDED_CONFIG: &str = "/usr/lib/corten/config.yaml";
/// A boot does not wait longer for a service; the supervisor goes on trying.
const SERVICE_PATIENCE: Duration = Duration::from_secs(120);
/// A boot does not wait longer for an address; the network goes on trying.
const ADDRESS_PATIENCE: Duration = Duration::from_secs(20);
/// For the answer to a request to reach its client before apid is taken away from under it.
const ANSWER_GRACE: Duration = Duration::from_millis(300);
/// For all services together to stop in order; what is left then is killed by `finish`.
const STOP_PATIENCE: Duration = Duration::from_secs(60);

/// Why a boot cannot go on.
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
    /// There from the network's task on.
    network: watch::Sender<Option<Network>>,
    machine_id: Mutex<String>,
    /// What the present certificate says of the network; it is replaced when that changes.
    certified: Mutex<Status>,
}

/// Lives the node's life.
///
/// # Errors
/// When the node cannot go on; the text says why.
pub async fn live(cmdline: Cmdline) -> Result<End, Fatal> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (log, queue) = logs::queue();
    console::log_to(log.clone());
    tokio::spawn(logs::forward(queue, PathBuf::from(SYSLOGD_SOCKET)));
    let places = Places {
        cgroups: cgroups::ROOT.into(),
        notify: "/run/notify".into(),
    };
    let supervisor = Supervisor::new(table(ApiMode::Maintenance), places, log)
        .map_err(|error| Fatal(format!("cannot supervise services: {error}")))?;
    let (node, mut requests) = NodeState::new(supervisor.clone());
    let (presses, mut pressed) = mpsc::unbounded_channel();
    let machine = Arc::new(Machine {
        node,
        supervisor,
        cmdline,
        presses,
        network: watch::Sender::new(None),
        machine_id: Mutex::new(String::new()),
        certified: Mutex::new(Status::default()),
    });
    let mut boot = tokio::spawn(machine.clone().boot());
    let mut booting = true;
    let end = loop {
        tokio::select! {
            ended = &mut boot, if booting => {
                booting = false;
                match ended {
                    Ok(Ok(())) => drop(tokio::spawn(machine.clone().keep_certificate())),
                    Ok(Err(fatal)) => return Err(fatal),
                    Err(error) => return Err(Fatal(format!("the boot ended early: {error}"))),
                }
            }
            Some(request) = requests.recv() => match request {
                Request::Apply(document) => {
                    sleep(ANSWER_GRACE).await;
                    machine.activate(*document);
                }
                Request::Act(action) => {
                    sleep(ANSWER_GRACE).await;
                    break action;
                }
            },
            Some(()) = pressed.recv() => {
                console::say("the power button was pressed");
                break Action::Shutdown;
            }
            _ = interrupt.recv() => {
                console::say("ctrl-alt-del was pressed");
                break Action::Reboot;
            }
            _ = terminate.recv() => {
                console::say("asked to end by SIGTERM");
                break Action::Shutdown;
            }
        }
    };
    boot.abort();
    Ok(machine.wind_down(end).await)
}

impl Machine {
    async fn boot(self: Arc<Machine>) -> Result<(), Fatal> {
        let plan = boot::plan();
        for (number, phase) in plan.iter().enumerate() {
            console::say(&format!("boot {}/{} {phase}", number + 1, plan.len()));
            self.run_phase(phase).await?;
        }
        if self.node.config().is_some() {
            self.node.set_stage(Stage::Running);
        }
        self.say_summary();
        Ok(())
    }

    async fn run_phase(&self, phase: &Phase) -> Result<(), Fatal> {
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

    async fn perform(&self, task: Task) -> Result<(), Fatal> {
        match task {
            Task::MountFileSystems => mounts::mount_all().map_err(Fatal)?,
            Task::MakeDirectories => system::make_directories().map_err(Fatal)?,
            Task::SetLimits => system::set_limits(),
            Task::MakeCgroups => cgroups::make_all(Path::new(cgroups::ROOT))?,
            Task::SetSysctls => {
                let set = sysctls::apply(Path::new("/etc/sysctl.d"), Path::new("/proc/sys"));
                console::say(&format!("{set} sysctls set"));
            }
            Task::IdentifyMachine => *lock(&self.machine_id) = system::identify_machine()?,
            Task::LoadConfig => self.load_config(),
            Task::WatchPowerButton => drop(tokio::spawn(power_button::watch(self.presses.clone()))),
            Task::BringUpNetwork => self.bring_up_network().await?,
            Task::ServeApi => self.serve_api().await?,
            Task::Start(id) => self.start(id).await,
        }
        Ok(())
    }

    /// A config in the image is the operator's own; one that cannot be used must not keep the API away.
    fn load_config(&self) {
        let bytes = match fs::read(EMBEDDED_CONFIG) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(error) => return console::warn(&format!("cannot read {EMBEDDED_CONFIG}: {error}")),
        };
        match Document::parse(&bytes) {
            Ok(document) => {
                apply_sysctls(&document);
                self.node.set_config(document);
            }
            Err(problems) => console::warn(&format!("{EMBEDDED_CONFIG} is not used: {problems}")),
        }
    }

    async fn start(&self, id: &'static str) {
        self.supervisor.start(id);
        if timeout(SERVICE_PATIENCE, self.supervisor.up(id))
            .await
            .is_err()
        {
            console::warn(&format!(
                "service {id} is not up after {} s; still trying",
                SERVICE_PATIENCE.as_secs()
            ));
        }
    }

    async fn bring_up_network(&self) -> Result<(), Fatal> {
        let hostname = system::default_hostname(&lock(&self.machine_id));
        let network = Network::start(&self.cmdline, hostname, PathBuf::from("/run"))?;
        if let Some(document) = self.node.config() {
            network.wish(wishes(&document));
        }
        self.network.send_replace(Some(network.clone()));
        if timeout(ADDRESS_PATIENCE, network.reachable())
            .await
            .is_err()
        {
            console::warn("network: no address yet; still trying");
        }
        Ok(())
    }

    /// Opens machined's socket, writes apid's certificate, starts apid.
    async fn serve_api(&self) -> Result<(), Fatal> {
        let listener = bind(Path::new(MACHINED_SOCKET))?;
        let node: Arc<dyn Node> = self.node.clone();
        tokio::spawn(async move {
            if let Err(error) = server::serve(listener, node).await {
                crate::finish::fatal(&format!("the API server ended: {error}"));
            }
        });
        let mode = self.api_mode();
        if mode == ApiMode::Secure {
            // Its certificate names the addresses, so one without them would only be replaced at once.
            let _ = timeout(ADDRESS_PATIENCE, self.reachable()).await;
        } else {
            self.node.set_stage(Stage::Maintenance);
        }
        match self.certify() {
            Ok(()) => {}
            Err(error) => return Err(Fatal(describe(&error))),
        }
        if let Some(apid) = table(mode).into_iter().find(|spec| spec.id == "apid") {
            self.supervisor.redefine(apid);
        }
        self.start("apid").await;
        Ok(())
    }

    async fn reachable(&self) {
        let network = self
            .network
            .subscribe()
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|network| network.clone());
        if let Some(network) = network {
            network.reachable().await;
        }
    }

    fn api_mode(&self) -> ApiMode {
        if self.node.config().is_some() {
            ApiMode::Secure
        } else {
            ApiMode::Maintenance
        }
    }

    fn network_status(&self) -> Status {
        self.network
            .borrow()
            .as_ref()
            .map(Network::status)
            .unwrap_or_default()
    }

    /// Writes a certificate for the present config and network.
    fn certify(&self) -> Result<(), IdentityError> {
        let status = self.network_status();
        let now = SystemTime::now();
        let identity = match self.node.config() {
            Some(document) => Identity::from_config(&document, &status, now)?,
            None => {
                let identity = Identity::of_maintenance(&status, now)?;
                console::say(&format!(
                    "maintenance certificate fingerprint: {}",
                    identity.fingerprint()?
                ));
                identity
            }
        };
        identity.write(Path::new(APID_PKI), APID_UID)?;
        *lock(&self.certified) = status;
        Ok(())
    }

    /// Makes the config the active one and serves by it.
    fn activate(&self, document: Document) {
        console::say("a machine config was applied");
        apply_sysctls(&document);
        if let Some(network) = self.network.borrow().as_ref() {
            network.wish(wishes(&document));
        }
        self.node.set_config(document);
        match self.certify() {
            Ok(()) => {
                self.restart_apid();
                self.node.set_stage(Stage::Running);
            }
            Err(error) => console::error(&format!(
                "the API keeps its old certificate: {}",
                describe(&error)
            )),
        }
    }

    fn restart_apid(&self) {
        if let Some(apid) = table(self.api_mode())
            .into_iter()
            .find(|spec| spec.id == "apid")
        {
            self.supervisor.redefine(apid);
        }
    }

    /// Replaces the certificate at half of its life, and when name or addresses change. One of maintenance
    /// stays: nobody checks its names, and an operator may be comparing its fingerprint right now.
    async fn keep_certificate(self: Arc<Machine>) {
        let Some(mut network) = self.network.borrow().clone() else {
            return;
        };
        loop {
            tokio::select! {
                () = sleep(RENEW_AFTER) => {}
                () = network.changed() => {
                    if *lock(&self.certified) == network.status() {
                        continue;
                    }
                }
            }
            if self.api_mode() == ApiMode::Secure {
                match self.certify() {
                    Ok(()) => self.restart_apid(),
                    Err(error) => console::error(&format!(
                        "the API keeps its old certificate: {}",
                        describe(&error)
                    )),
                }
            }
        }
    }

    fn say_summary(&self) {
        let status = self.network_status();
        let seconds = host::since_boot().as_secs_f64();
        console::say(&format!(
            "boot took {seconds:.2} s since the kernel started"
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
        if self.api_mode() == ApiMode::Maintenance {
            console::say("no machine config: waiting for `cortenctl apply-config --insecure`");
        }
    }

    /// Stops the services in order.
    async fn wind_down(&self, action: Action) -> End {
        let (stage, end, text) = match action {
            Action::Reboot => (
                Stage::Rebooting,
                End::Restart,
                "stopping all services to restart",
            ),
            Action::Shutdown => (
                Stage::ShuttingDown,
                End::PowerOff,
                "stopping all services to switch off",
            ),
        };
        self.node.set_stage(stage);
        console::say(text);
        if timeout(STOP_PATIENCE, self.supervisor.stop_all())
            .await
            .is_err()
        {
            console::warn("some services did not stop in time");
        }
        end
    }
}

/// The API's socket: apid's alone.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    chown(path, Some(APID_UID), Some(APID_UID))?;
    Ok(listener)
}

fn wishes(document: &Document) -> Wishes {
    Wishes {
        hostname: document.machine.hostname.clone(),
        nameservers: document.machine.nameservers.clone(),
    }
}

fn apply_sysctls(document: &Document) {
    for (key, value) in &document.machine.sysctls {
        if let Err(error) = corten_sys::sysctl::write(Path::new("/proc/sys"), key, value) {
            console::warn(&format!("machine.sysctls {key} = {value}: {error}"));
        }
    }
}

/// An error with its causes, in one line.
fn describe(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

/// What is locked here is a plain value, whole whatever happened to the thread that held it.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
