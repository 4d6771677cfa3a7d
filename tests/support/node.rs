//! A booted node.

use std::path::{Path, PathBuf};
use std::time::Duration;

use qemu::{Machine, Running, VmError};

use crate::client::{Client, Table, generate_config};
use crate::{images, workspace};

/// From QEMU's start to the API's first answer: without KVM and on a busy
/// host, firmware, kernel and containerd take minutes.
pub const BOOT: Duration = Duration::from_secs(400);
/// For anything a running node does within seconds on real hardware.
pub const SOON: Duration = Duration::from_secs(120);
/// From the word to reboot or to power off to the machine's own end: all services stop, volumes are unmounted and
/// synced. The rest is for a slow host.
pub const ORDERLY: Duration = Duration::from_secs(120);

/// A machine that runs one of our images.
#[derive(Debug)]
pub struct Node {
    /// The machine. First, so that a failing test shows its console.
    pub vm: Running,
    configs: PathBuf,
}

impl Node {
    /// Starts a machine called `name` with the smallest memory a node is
    /// promised to work in; `shape` adds what it boots from.
    ///
    /// # Panics
    /// When QEMU cannot be started.
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

    /// The same client, of a node that is locked.
    #[must_use]
    pub fn owner(&self) -> Client {
        Client::of_locked(self.vm.api(), &self.configs.join("cortenconfig"))
    }

    /// Where [`Node::configure`] wrote the configs.
    #[must_use]
    pub fn configs(&self) -> &Path {
        &self.configs
    }

    /// Waits until `client` gets an answer to `arguments`.
    ///
    /// # Panics
    /// With the last complaint when there is none within `deadline`.
    pub fn ask(&self, client: &Client, arguments: &[&str], deadline: Duration) -> String {
        self.until(&format!("answer to {arguments:?}"), deadline, || {
            client.call(arguments)
        })
    }

    /// Repeats `attempt` until it succeeds.
    ///
    /// # Panics
    /// With the last error at the deadline, or when QEMU ends.
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

    /// Waits until the node of [`Node::configure`] calls a service Running.
    ///
    /// # Panics
    /// When it does not soon.
    pub fn until_running(&self, service: &str) {
        let admin = self.admin();
        self.until(&format!("{service} running"), SOON, || {
            let text = admin.call(&["service", service])?;
            is_running(&text).then_some(()).ok_or(text)
        });
    }

    /// Waits for the maintenance API of a node without config; what `version`
    /// answered.
    pub fn wait_maintenance(&self) -> String {
        self.ask(&self.insecure(), &["version"], BOOT)
    }

    /// Brings a node from maintenance to running with a fresh control-plane
    /// config, and waits until it answers the cluster's own client.
    ///
    /// # Panics
    /// When any step fails.
    pub fn configure(&self) {
        self.wait_maintenance();
        let file = self.configs.join("controlplane.yaml");
        // A node that came up without a disk is given its old config again.
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
    /// When the node refuses it.
    pub fn apply_patch(&self, patch: &str) {
        self.apply_patch_as(&self.admin(), patch, &[]);
    }

    /// Applies the config of [`Node::configure`] with a patch, and `more` arguments of `apply-config`.
    ///
    /// # Panics
    /// When the node refuses it.
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

    /// Device and size in GB of the file system mounted on `target`, the one on top.
    ///
    /// # Panics
    /// When there is none.
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
    /// At the deadline, or when QEMU did not end well.
    pub fn wait_off(&self, deadline: Duration) {
        match self.vm.wait_exit(deadline) {
            Ok(status) => assert!(status.success(), "QEMU ended: {status}"),
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs `action` and waits for the guest to reset the machine after it.
    ///
    /// # Panics
    /// When it does not within `deadline`.
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

/// Whether what `service NAME` printed says so of now: the history below names every state there was.
fn is_running(text: &str) -> bool {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.any(|line| line.eq(["STATE", "Running"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ran_once_does_not_run() {
        let of = |state| {
            format!(
                "ID       apid\nSTATE    {state}\nEVENTS   [Running]: Started as pid 7 (1m ago)\n"
            )
        };
        assert!(is_running(&of("Running")));
        assert!(!is_running(&of("Waiting")));
    }
}
