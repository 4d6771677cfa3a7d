//! Images that are not containers: the image cache as a registry; extensions and kernel images, verified and unpacked.
//!
//! Owns: the pull half of the OCI distribution spec (1.1, "Pull") over directories, `/healthz`, and unpacking.
//! Never: as a server, writes, follows a link, or completes a blob that does not match its digest; mounts an extension.

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
