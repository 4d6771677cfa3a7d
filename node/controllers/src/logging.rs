//! Configures syslogd beyond its rings in memory: a file that syslogd follows.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use corten_base::cmdline::Cmdline;
use corten_base::durable::{Access, is_volume, replace_now};
use corten_config::Document;
use corten_config::kinds::KmsgLogConfig;
use corten_supervisor::{LOGGING_CONFIG, SYSLOGD_UID};
use corten_volumes::STATE;
use serde_json::{Value, json};

/// Directory of the log files.
const FILES: &str = "/var/log";
/// Directory of the logs' tails for the next boot.
const RECORDS: &str = "/system/state/logs";

/// Writes syslogd's config from the node's current state: the machine config, if there is one, and the mounted volumes.
///
/// # Errors
/// If a directory or the file cannot be written.
pub fn direct(document: Option<&Document>, cmdline: &Cmdline) -> io::Result<()> {
    let records = is_volume(Path::new(STATE.target)).then_some(RECORDS);
    if let Some(directory) = records {
        make_private(Path::new(directory))?;
    }
    let wanted = json!({
        "destinations": destinations(document, cmdline),
        // Without EPHEMERAL, `/var` is in memory, and files there would only duplicate the rings.
        "files": corten_volumes::are_mounted().then_some(FILES),
        "records": records,
    });
    // Readable only by syslogd, because tags may be secrets.
    let access = Access {
        mode: 0o640,
        uid: None,
        gid: Some(SYSLOGD_UID),
    };
    replace_now(Path::new(LOGGING_CONFIG), &wanted.to_string(), access)
}

/// Receivers of the kernel's log.
#[must_use]
pub(crate) fn kernel_receivers(document: Option<&Document>, cmdline: &Cmdline) -> Vec<String> {
    let configured = document
        .into_iter()
        .flat_map(Document::all::<KmsgLogConfig>);
    let given = cmdline.ours("logging.kernel").map(str::to_owned);
    given
        .into_iter()
        .chain(configured.map(|receiver| receiver.url.to_string()))
        .collect()
}

fn destinations(document: Option<&Document>, cmdline: &Cmdline) -> Vec<Value> {
    let kernel = |url: &String| json!({ "endpoint": url, "logs": "kernel" });
    let mut found: Vec<Value> = kernel_receivers(document, cmdline)
        .iter()
        .map(kernel)
        .collect();
    let Some(document) = document else {
        return found;
    };
    for receiver in &document.machine.logging.destinations {
        let endpoint: &str = &receiver.endpoint;
        found
            .push(json!({ "endpoint": endpoint, "logs": "services", "tags": receiver.extra_tags }));
    }
    found
}

/// Creates a directory that belongs to syslogd.
fn make_private(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    chown(path, Some(SYSLOGD_UID), Some(SYSLOGD_UID))
}

#[cfg(test)]
mod tests {
    use corten_base::sample;

    use super::*;

    #[test]
    fn log_destinations_come_from_config_and_command_line() {
        let receivers = "logging: {destinations: [\
             {endpoint: 'udp://10.0.0.9:514', format: json_lines, extraTags: {rack: a7}}, \
             {endpoint: 'tcp://[fd00::1]:5140/', format: json_lines}]}";
        let kernels = "---\napiVersion: v1alpha1\nkind: KmsgLogConfig\nname: here\nurl: tcp://logs.example:1514/\n";
        let document = sample::config(receivers, kernels);
        let cmdline = Cmdline::parse("talos.logging.kernel=udp://10.0.0.8:1");
        let all = json!([
            {"endpoint": "udp://10.0.0.8:1", "logs": "kernel"},
            {"endpoint": "tcp://logs.example:1514/", "logs": "kernel"},
            {"endpoint": "udp://10.0.0.9:514", "logs": "services", "tags": {"rack": "a7"}},
            {"endpoint": "tcp://[fd00::1]:5140/", "logs": "services", "tags": {}},
        ]);
        assert_eq!(Value::Array(destinations(Some(&document), &cmdline)), all);
        assert_eq!(destinations(None, &Cmdline::default()), Vec::<Value>::new());
    }
}
