//! Images that are no containers: the image cache of a node as a registry, which containerd pulls from before it
//! asks the network; system extensions, checked and unpacked; and the kernel image of an installer.
//!
//! Owns: the pull half of the OCI distribution spec (1.1, "Pull") over directories in the layout of `cache.rs`,
//! and `/healthz`; the way of an extension (`unpack.rs`) and of a kernel image (`uki.rs`) from an OCI image to a directory.
//! Never does, as a server: write, follow a link, open what is outside of its directories, hand out a byte that
//! does not match its digest, keep more in memory than its bounds. Never does, with an extension: mount it.
//! Talks to: containerd, by HTTP/1.1 without TLS on 127.0.0.1; machined, to which it says that it is ready, and
//! which runs it for each extension, apart from process 1: what unpacks foreign bytes may die of them.
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

pub use cache::Cache;
pub use server::serve;
use uki::{Medium, Uki};
use unpack::Unpack;

/// Files are read on these; each costs memory while it idles.
const BLOCKING_THREADS: usize = 4;

/// The image cache as a read-only registry; extensions and installers, checked and unpacked.
#[derive(Debug, Parser)]
#[command(name = "registryd", version = corten_api::VERSION)]
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
    /// Take the unified kernel image and the boot loader out of an installer, and check them.
    Uki(Uki),
    /// The same out of the EFI partition of a medium.
    Medium(Medium),
}

#[derive(Debug, Args)]
struct Service {
    /// A directory with `manifests` and `blob`; of several, the first that has something serves it.
    #[arg(long, required = true)]
    root: Vec<PathBuf>,
    /// Where to listen.
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, IMAGE_CACHE_PORT)))]
    listen: SocketAddr,
}

/// Does one of its tasks until that is done or SIGTERM comes; see [`corten_daemon::run`].
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
    let listener = corten_daemon::listen(Some(options.listen), IMAGE_CACHE_PORT).await?;
    corten_daemon::ready("registryd");
    serve(listener, Cache::new(options.root)).await;
    Ok(())
}
