//! A booted node and the usual steps with it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use qemu::{Machine, Running, VmError};

use crate::client::{Client, Table, generate_config};
use crate::{images, workspace};

/// Timeout from QEMU's start to the API's first answer: without KVM and on a busy host, firmware,
/// kernel and containerd take minutes.
pub const BOOT: Duration = Duration::from_secs(400);
/// Timeout for anything that a running node does within seconds on real hardware.
pub const SOON: Duration = Duration::from_secs(120);
/// Timeout from a reboot or shutdown call to the machine's end: stop all services, unmount and sync
/// volumes. The rest is for a slow host.
pub const ORDERLY: Duration = Duration::from_secs(120);

/// A machine that runs one of our images.
#[derive(Debug)]
pub struct Node {
    /// The machine. The first field, so that a failing test shows its console.
    pub vm: Running,
    configs: PathBuf,
}

impl Node {
    /// Starts a machine called `name` with a node's promised minimum of memory; `shape` adds its
    /// boot medium.
    ///
    /// # Panics
    /// QEMU cannot be started.
    #[must_use]
    pub fn start(name: &str, shape: impl FnOnce(Machine) -> Machine) -> Self {
        let machine = Machine::new(name, workspace::target().join("vm"))
            .arch(images::arch())
            .memory_mib(512);
        let vm = shape(machine)
            .start()
            .unwrap_or_else(|error| panic!("{error}"));
        let configs = vm.dir().join("config");
        Self { vm, configs }
    }

    /// Starts a machine with the network boot bundle and more kernel parameters. Its configs are
    /// those in the directory `configs`.
    #[must_use]
    pub fn with_parameters(
        name: &str,
        configs: &Path,
        parameters: &str,
        shape: impl FnOnce(Machine) -> Machine,
    ) -> Self {
        let mut boot = images::direct();
        boot.append.push_str(parameters);
        let node = Self::start(name, |machine| shape(machine.direct(boot)));
        node.with_configs(configs.to_owned())
    }

    /// The same machine with other configs.
    #[must_use]
    pub fn with_configs(mut self, configs: PathBuf) -> Self {
        self.configs = configs;
        self
    }

    /// A client without credentials.
    #[must_use]
    pub fn insecure(&self) -> Client {
        Client::insecure(self.vm.api())
    }

    /// The client of the cluster made by [`Node::configure`].
    #[must_use]
    pub fn admin(&self) -> Client {
        Client::with_config(self.vm.api(), &self.configs.join("cortenconfig"))
    }

    /// The same client for a node that is locked.
    #[must_use]
    pub fn owner(&self) -> Client {
        Client::of_locked(self.vm.api(), &self.configs.join("cortenconfig"))
    }

    /// The directory of the configs of [`Node::configure`].
    #[must_use]
    pub fn configs(&self) -> &Path {
        &self.configs
    }

    /// Waits until `client` gets an answer to `arguments`.
    ///
    /// # Panics
    /// There is no answer within `deadline`; the message has the last error.
    pub fn ask(&self, client: &Client, arguments: &[&str], deadline: Duration) -> String {
        self.until(&format!("answer to {arguments:?}"), deadline, || {
            client.call(arguments)
        })
    }

    /// Repeats `attempt` until it succeeds.
    ///
    /// # Panics
    /// At the deadline with the last error, or when QEMU ends.
    pub fn until<T>(
        &self,
        what: &str,
        deadline: Duration,
        attempt: impl FnMut() -> Result<T, String>,
    ) -> T {
        self.vm
            .wait_for(what, deadline, attempt)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until the node of [`Node::configure`] reports a service as Running.
    ///
    /// # Panics
    /// The service is not Running within [`SOON`].
    pub fn until_running(&self, service: &str) {
        let admin = self.admin();
        self.until(&format!("{service} running"), SOON, || {
            let text = admin.call(&["service", service])?;
            is_running(&text).then_some(()).ok_or(text)
        });
    }

    /// Waits for the maintenance API of a node without config; returns its answer to `version`.
    pub fn wait_maintenance(&self) -> String {
        self.ask(&self.insecure(), &["version"], BOOT)
    }

    /// Configures a node in maintenance with a new control plane config, and waits until it answers
    /// the cluster's own client.
    ///
    /// # Panics
    /// A step fails.
    pub fn configure(&self) {
        self.wait_maintenance();
        let file = self.configs.join("controlplane.yaml");
        // A node that booted without a disk gets its old config again.
        if !file.exists() {
            generate_config(&self.configs);
        }
        let file = file.to_str().expect("UTF-8 path");
        self.insecure()
            .call(&["apply-config", "-f", file])
            .unwrap_or_else(|error| panic!("apply-config: {error}"));
        self.ask(&self.admin(), &["version"], SOON);
    }

    /// Applies the config of [`Node::configure`] with a patch, as the cluster's client.
    ///
    /// # Panics
    /// The node refuses it.
    pub fn apply_patch(&self, patch: &str) {
        self.apply_patch_as(&self.admin(), patch, &[]);
    }

    /// Applies the config of [`Node::configure`] with a patch, and `more` arguments of
    /// `apply-config`.
    ///
    /// # Panics
    /// The node refuses it.
    pub fn apply_patch_as(&self, client: &Client, patch: &str, more: &[&str]) {
        let file = self.configs.join("patch.yaml");
        std::fs::write(&file, patch).expect("a file for the patch");
        let config = self.configs.join("controlplane.yaml").display().to_string();
        let patch = format!("@{}", file.display());
        let apply = ["apply-config", "-f", &config, "-p", &patch];
        client
            .call(&[&apply[..], more].concat())
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Device and size in GB of the topmost file system mounted on `target`.
    ///
    /// # Panics
    /// `target` is no mount point.
    pub fn mount(&self, target: &str) -> (String, f64) {
        let text = self.ask(&self.admin(), &["mounts"], SOON);
        let table = Table::parse(&text);
        let (targets, sizes) = (table.column("MOUNTED ON"), table.column("SIZE(GB)"));
        let devices = table.column("FILESYSTEM");
        let mut found = targets.iter().zip(sizes).zip(devices);
        let ((_, size), device) = found
            .rfind(|((other, _), _)| **other == target)
            .unwrap_or_else(|| panic!("{target} is not mounted:\n{text}"));
        (device.to_owned(), size.parse().expect("a size in GB"))
    }

    /// Waits for QEMU's end.
    ///
    /// # Panics
    /// At the deadline, or when QEMU fails.
    pub fn wait_off(&self, deadline: Duration) {
        match self.vm.wait_exit(deadline) {
            Ok(status) => assert!(status.success(), "QEMU ended: {status}"),
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs `action` and waits until the guest resets the machine.
    ///
    /// # Panics
    /// There is no reset within `deadline`.
    pub fn expect_reset(&self, deadline: Duration, action: impl FnOnce()) {
        let before = self.vm.qmp().events().len();
        action();
        let reset: Result<_, VmError> =
            self.vm
                .qmp()
                .wait_event("reset by the guest", before, deadline, |event| {
                    event.name == "RESET" && event.data["guest"] == true
                });
        if let Err(error) = reset {
            panic!("{error}");
        }
    }
}

/// Whether the output of `service NAME` reports Running now: the history below lists every earlier
/// state.
fn is_running(text: &str) -> bool {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.any(|line| line.eq(["STATE", "Running"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_that_ran_once_is_not_running() {
        let of = |state| {
            format!(
                "ID       apid\nSTATE    {state}\nEVENTS   [Running]: Started as pid 7 (1m ago)\n"
            )
        };
        assert!(is_running(&of("Running")));
        assert!(!is_running(&of("Waiting")));
    }
}
