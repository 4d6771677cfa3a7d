//! `kubectl`, built with the bundled images, for a cluster under test.

use std::env;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::client;

/// Timeout of a call of the Kubernetes API on a machine without hardware virtualisation.
const CALL: Duration = Duration::from_secs(120);

/// The client of one cluster.
#[derive(Debug)]
pub struct Kubectl {
    kubeconfig: PathBuf,
    server: Option<String>,
    program: Option<PathBuf>,
}

impl Kubectl {
    /// The client with this kubeconfig.
    #[must_use]
    pub fn new(kubeconfig: PathBuf) -> Kubectl {
        Kubectl {
            kubeconfig,
            server: None,
            program: None,
        }
    }

    /// The same client with another URL of the API server.
    #[must_use]
    pub fn at(self, server: String) -> Kubectl {
        let server = Some(server);
        Kubectl { server, ..self }
    }

    /// The same client with this program instead of that in `CORTEN_KUBECTL`.
    #[must_use]
    pub fn by(self, program: PathBuf) -> Kubectl {
        let program = Some(program);
        Kubectl { program, ..self }
    }

    /// The program with its arguments.
    ///
    /// # Panics
    /// `CORTEN_KUBECTL` does not name the program.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let program = self.program.clone().or_else(|| {
            let program = env::var_os("CORTEN_KUBECTL");
            program.map(PathBuf::from)
        });
        let mut command = Command::new(program.expect("CORTEN_KUBECTL is a kubectl"));
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(self.server.iter().map(|url| format!("--server={url}")));
        command.args(arguments);
        command
    }

    /// Runs one command; returns its standard output.
    ///
    /// # Errors
    /// The output of a command that failed or took too long.
    pub fn call(&self, arguments: &[&str]) -> Result<String, String> {
        client::run(self.command(arguments), CALL)
    }

    /// Creates or changes the objects of a manifest, which is written to `file`.
    ///
    /// # Errors
    /// As for [`Kubectl::call`].
    ///
    /// # Panics
    /// The file cannot be written.
    pub fn apply(&self, file: &Path, manifest: &str) -> Result<String, String> {
        std::fs::write(file, manifest).expect("a file");
        self.call(&["apply", "-f", &file.display().to_string()])
    }

    /// Checks the output of a command.
    ///
    /// # Errors
    /// As for [`Kubectl::call`]; or an output that `good` refuses.
    pub fn check(&self, arguments: &[&str], good: impl Fn(&str) -> bool) -> Result<(), String> {
        let text = self.call(arguments)?;
        good(&text).then_some(()).ok_or(text)
    }

    /// Checks that the cluster has this number of nodes, all of them Ready.
    ///
    /// # Errors
    /// As for [`Kubectl::check`].
    pub fn nodes_ready(&self, count: usize) -> Result<(), String> {
        let ready = "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}";
        let all = vec!["True"; count].join(" ");
        self.check(&["get", "nodes", "-o", ready], |text| text == all)
    }

    /// Checks that a Deployment is available.
    ///
    /// # Errors
    /// As for [`Kubectl::check`].
    pub fn available(&self, namespace: &str, deployment: &str) -> Result<(), String> {
        let available = "jsonpath={.status.conditions[?(@.type=='Available')].status}";
        let get = ["get", "deployment", deployment, "-n", namespace];
        self.check(&[&get[..], &["-o", available]].concat(), |text| {
            text == "True"
        })
    }

    /// The image of the first container of an object with a pod template, such as `deployment/web`.
    ///
    /// # Errors
    /// As for [`Kubectl::call`].
    pub fn image_of(&self, namespace: &str, object: &str) -> Result<String, String> {
        let image = "jsonpath={.spec.template.spec.containers[0].image}";
        let get = ["get", object, "-n", namespace];
        self.call(&[&get[..], &["-o", image]].concat())
    }

    /// Opens a local port that leads to the port of an object, such as `pod/web`.
    ///
    /// # Panics
    /// The program does not start.
    #[must_use]
    pub fn forward(&self, object: &str, local: SocketAddr, port: u16) -> Forward {
        let ports = format!("{}:{port}", local.port());
        let address = format!("--address={}", local.ip());
        let mut command = self.command(&["port-forward", object, &ports, &address]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        let child = child.expect("kubectl port-forward");
        Forward { child, local }
    }
}

/// A forwarded port; it is closed when this value is dropped.
#[derive(Debug)]
pub struct Forward {
    child: Child,
    local: SocketAddr,
}

impl Forward {
    /// Connects to the port.
    ///
    /// # Errors
    /// The port is not open.
    pub fn connect(&self) -> Result<TcpStream, String> {
        TcpStream::connect(self.local).map_err(|error| format!("{}: {error}", self.local))
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        // A command that has ended already closed the port.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
