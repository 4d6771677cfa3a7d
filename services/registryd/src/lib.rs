//! Images that are not containers: the node's image cache as a registry, which containerd asks before the network;
//! system extensions, verified and unpacked; and the kernel image of an installer.
//!
//! Owns: the pull half of the OCI distribution spec (1.1, "Pull") over directories in the layout of `cache.rs`, and
//! `/healthz`; the unpacking of an extension (`unpack.rs`) or kernel image (`uki.rs`) from an OCI image into a
//! directory.
//! Never does: as a server, write, follow a link, open a file outside its directories, serve a whole blob that does not
//! match its digest, exceed its memory bounds; with an extension, mount it.
//! Talks to: containerd, by HTTP/1.1 without TLS on 127.0.0.1; machined, which it tells when it is ready. machined runs
//! a separate process per extension, because parsing untrusted bytes may crash it.
//!
//! On a laptop, without root: `registryd serve --root DIR --listen 127.0.0.1:3172`, then
//! `curl 127.0.0.1:3172/v2/library/pause/manifests/latest?ns=docker.io`; or
//! `registryd unpack extension.tar sha256:... DIR`.

mod blob;
mod cache;
mod names;
mod refusal;
mod request;
mod respond;
mod server;
mod uki;
mod unpack;
mod verify;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use corten_api::IMAGE_CACHE_PORT;
use corten_daemon::Clients;

pub use cache::Cache;
pub use server::serve;
use uki::{Medium, Uki};
use unpack::Unpack;

/// Threads that read files; each costs memory while idle.
const BLOCKING_THREADS: usize = 4;

/// Serves the image cache as a read-only registry; checks and unpacks extensions and installers.
#[derive(Debug, Parser)]
#[command(name = "registryd")]
struct Options {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Serve the image cache until SIGTERM.
    Serve(Service),
    /// Check a system extension and put its files into a new directory.
    Unpack(Unpack),
    /// Extract the unified kernel image and the boot loader from an installer, and check their signatures.
    Uki(Uki),
    /// Extract and check them from the EFI partition of a medium.
    Medium(Medium),
}

#[derive(Debug, Args)]
struct Service {
    /// Directory with `manifests` and `blob`; of several, the first with the requested content serves it.
    #[arg(long, required = true)]
    root: Vec<PathBuf>,
    /// Address to listen on.
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, IMAGE_CACHE_PORT)))]
    listen: SocketAddr,
    /// Listen on the socket that is standard input, and end after some seconds without a connection.
    #[arg(long, conflicts_with = "listen")]
    on_demand: bool,
}

/// Runs one task until it is done or SIGTERM arrives; see [`corten_daemon::run`].
pub fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    corten_daemon::run(
        "registryd",
        args,
        BLOCKING_THREADS,
        async |options: Options| match options.task {
            Task::Serve(service) => listen_and_serve(service).await,
            Task::Unpack(unpack) => unpack.run().await,
            Task::Uki(uki) => uki.run().await,
            Task::Medium(medium) => medium.run().await,
        },
    )
}

async fn listen_and_serve(options: Service) -> Result<(), String> {
    let listener = if options.on_demand {
        corten_daemon::passed()?
    } else {
        corten_daemon::listen(Some(options.listen), IMAGE_CACHE_PORT).await?
    };
    let clients = Clients::default();
    corten_daemon::ready("registryd");
    tokio::select! {
        () = serve(listener, Cache::new(options.root), clients.clone()) => {}
        () = clients.none_for_long(), if options.on_demand => {}
    }
    Ok(())
}
