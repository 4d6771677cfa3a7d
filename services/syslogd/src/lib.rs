//! The log daemon of the node.
//!
//! Owns: `/dev/log`, the reading of `/dev/kmsg`, one ring per log, bounded in
//! bytes, with a bound over all of them; the logs' files and the recorded tails
//! on disks; delivery to the destinations of the machine config.
//! Never does: wait for a reader, a sender, a disk or a destination, grow past
//! its bounds, refuse a message for its form.
//! Talks to: whoever writes to `/dev/log`; machined, through `LogService` on a
//! unix socket (services' output in, everything out) and a config file; log
//! receivers on the network.
//!
//! Messages of `/dev/log` become JSON lines of the log `syslogd`, kernel
//! records lines of the log `kernel`; the other ids are the services'. A tag is
//! what its sender says, so it never chooses a log. Drops are counted per log
//! and told to the readers they concern.
//!
//! Privileges: opening `/dev/kmsg` needs CAP_SYSLOG, binding a socket a
//! directory of one's own. machined starts it as uid 52 with CAP_SYSLOG only,
//! `/dev/log` being a link into `/run/syslogd`. Started as root instead, it
//! becomes another user, without any capability, by `--user`.
//!
//! On a laptop, without root:
//! `syslogd --dev-log /tmp/log --kmsg none --socket /tmp/syslogd.sock --config /tmp/syslogd/config.json`

pub mod config;
pub mod destination;
pub mod disk;
pub mod kernel;
mod open;
pub mod parse;
pub mod render;
pub mod ring;
pub mod service;
pub mod sources;
pub mod store;

use anyhow::Context as _;
use clap::Parser;
use config::Config;
use corten_api::corten::v1::log_service_server::LogServiceServer;
use corten_sys::kmsg::Reader;
use service::Service;
use std::ffi::OsString;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use store::{Bounds, Store};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;

/// The kernel log's reader formats one line at a time.
const KMSG_STACK: usize = 128 * 1024;

/// For the last lines to reach the disks; the supervisor waits 5 s.
const LAST_WRITE: Duration = Duration::from_secs(3);

/// Keeps the logs of the node in memory.
#[derive(Debug, Parser)]
#[command(name = "syslogd", version)]
struct Options {
    /// Datagram socket for programs' messages; `none` for none.
    #[arg(long, default_value = "/dev/log")]
    dev_log: PathBuf,
    /// The kernel's log; `none` for none.
    #[arg(long, default_value = "/dev/kmsg")]
    kmsg: PathBuf,
    /// Unix socket of the log service.
    #[arg(long, default_value = "/run/syslogd/syslogd.sock")]
    socket: PathBuf,
    /// What the machine config asks for, as machined writes it; `none` for nothing.
    #[arg(long, default_value = "/run/logging/config.json")]
    config: PathBuf,
    /// A file that is another one at every boot.
    #[arg(long, default_value = "/proc/sys/kernel/random/boot_id")]
    boot_id: PathBuf,
    /// KiB kept per log.
    #[arg(long, default_value_t = 512)]
    log_kib: usize,
    /// KiB kept over all logs.
    #[arg(long, default_value_t = 6144)]
    total_kib: usize,
    /// Become this user and group when everything is open.
    #[arg(long)]
    user: Option<u32>,
}

/// The daemon's entry; `args` starts with the program's name. Returns only
/// when something breaks or the command line is wrong.
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("syslogd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What is opened before the privileges go.
struct Opened {
    dev_log: Option<UnixDatagram>,
    kmsg: Option<Reader>,
    service: UnixListener,
}

fn start(options: &Options) -> anyhow::Result<()> {
    let wanted = |path: &PathBuf| path.as_os_str() != "none";
    let dev_log = wanted(&options.dev_log)
        .then(|| open::dev_log(&options.dev_log))
        .transpose()?;
    // A node without its kernel's log still needs the others'.
    let kmsg = wanted(&options.kmsg)
        .then(|| Reader::open_blocking(&options.kmsg))
        .transpose()
        .inspect_err(|e| eprintln!("syslogd: no kernel log: {}: {e}", options.kmsg.display()))
        .unwrap_or_default();
    let service = open::service(&options.socket)?;
    if let Some(user) = options.user {
        open::drop_privileges(user)?;
    }
    let bounds = Bounds {
        per_log: options.log_kib * 1024,
        total: options.total_kib * 1024,
    };
    // One thread: the work is short copies under a lock.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start the runtime")?;
    let store = Arc::new(Store::new(bounds));
    let boot = std::fs::read_to_string(&options.boot_id)
        .with_context(|| format!("read {}", options.boot_id.display()))?;
    let opened = Opened {
        dev_log,
        kmsg,
        service,
    };
    let config = wanted(&options.config).then(|| options.config.clone());
    let ended = runtime.block_on(serve(opened, store, config, boot.trim().to_owned()));
    // A disk that hangs must not keep the daemon from ending.
    runtime.shutdown_background();
    ended
}

/// Follows the config and does on disks and the network what it says.
fn act_on_config(
    file: Option<PathBuf>,
    store: &Arc<Store>,
    boot: &str,
    stop: watch::Receiver<bool>,
) -> (watch::Receiver<Config>, tokio::task::JoinHandle<()>) {
    let (publish, config) = watch::channel(Config::default());
    let told = store.clone();
    tokio::spawn(async move {
        let complain = |text: String| sources::warn(&told, &text);
        if let Some(file) = file
            && let Err(error) = config::follow(file, &publish, complain).await
        {
            sources::warn(&told, &format!("the config is not followed: {error:#}"));
        }
        // What was published stays.
        std::future::pending::<()>().await;
        drop(publish);
    });
    tokio::spawn(destination::serve(store.clone(), config.clone()));
    let keep = disk::keep(store.clone(), config.clone(), boot.to_owned(), stop);
    (config, tokio::spawn(keep))
}

async fn serve(
    opened: Opened,
    store: Arc<Store>,
    config: Option<PathBuf>,
    boot: String,
) -> anyhow::Result<()> {
    let mut end = signal(SignalKind::terminate()).context("listen to SIGTERM")?;
    let (stop, stopped) = watch::channel(false);
    let (config, disks) = act_on_config(config, &store, &boot, stopped);
    let listener = tokio::net::UnixListener::from_std(opened.service)?;
    let server = tonic::transport::Server::builder()
        .add_service(LogServiceServer::new(Service::new(
            store.clone(),
            config,
            boot,
        )))
        .serve_with_incoming(UnixListenerStream::new(listener));
    if let Some(log) = opened.kmsg {
        let store = store.clone();
        let read = move || {
            if let Err(error) = sources::dev_kmsg(log, &store) {
                eprintln!("syslogd: the kernel log ended: {error}");
            }
        };
        std::thread::Builder::new()
            .name("kmsg".into())
            .stack_size(KMSG_STACK)
            .spawn(read)
            .context("start the reader of the kernel log")?;
    }
    let messages = async move {
        match opened.dev_log {
            None => std::future::pending().await,
            Some(socket) => {
                let socket = tokio::net::UnixDatagram::from_std(socket)?;
                sources::dev_log(socket, store)
                    .await
                    .context("read the message socket")
            }
        }
    };
    corten_daemon::ready("syslogd");
    tokio::select! {
        ended = server => ended.context("serve the log service"),
        ended = messages => ended,
        _ = end.recv() => {
            stop.send_replace(true);
            let _ = timeout(LAST_WRITE, disks).await;
            Ok(())
        }
    }
}
