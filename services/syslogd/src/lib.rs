//! The log daemon of the node.
//!
//! Owns: `/dev/log`, the reader of `/dev/kmsg`, a bounded ring per log, files on disks, delivery to destinations.
//! Never: waits for a reader, a sender, a disk or a destination, grows past its bounds, or refuses a message's format.

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

/// Stack size in bytes of the kernel log's reader, which formats one line at a time.
const KMSG_STACK: usize = 128 * 1024;

/// Timeout for writing the last lines to disks. The supervisor waits 5 s.
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
    /// Config file that machined writes; `none` for no config.
    #[arg(long, default_value = "/run/logging/config.json")]
    config: PathBuf,
    /// File with the boot ID, which differs at every boot.
    #[arg(long, default_value = "/proc/sys/kernel/random/boot_id")]
    boot_id: PathBuf,
    /// KiB kept per log.
    #[arg(long, default_value_t = 512)]
    log_kib: usize,
    /// KiB kept over all logs.
    #[arg(long, default_value_t = 6144)]
    total_kib: usize,
    /// User and group to switch to once all files and sockets are open.
    #[arg(long)]
    user: Option<u32>,
}

/// Entry point of the daemon; `args` starts with the program's name. Returns only after a failure or a wrong command
/// line.
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

/// File descriptors opened before privileges are dropped.
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
    // A node without its kernel log still needs the other logs.
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
    // One thread, because the work is short copies under a lock.
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
    // A blocked disk must not keep the daemon from ending.
    runtime.shutdown_background();
    ended
}

/// Follows the config and starts the writers to disks and destinations.
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
            sources::warn(
                &told,
                &format!("changes of the config are not followed: {error:#}"),
            );
        }
        // Keeps the last config published.
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
