//! The verbs, a file per verb. Those of the parts are in their crates.

mod cgroups;
mod containers;
mod contexts;
mod copy;
mod dashboard;
mod diskfree;
mod events;
mod get;
mod health;
mod inject;
mod inspect;
mod list;
mod listing;
mod logs;
mod memory;
mod mounts;
mod netstat;
mod pcap;
mod processes;
mod service;
mod shell;
mod support;
mod time;
mod usage;
mod version;

use corten_client::connect::routes;
use corten_client::failure::Failure;
use corten_operate::args::Conformance;
use corten_operate::{
    apply, conformance, etcd, image, install, kubeconfig, meta, patch, power, rotate_ca, upgrade,
    upgrade_k8s, wipe,
};

use crate::cli::{Cli, Inspect, Verb};

/// Runs the verb of a command line.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    let global = cli.globals();
    match cli.verb {
        Verb::Config(what) => contexts::run(&global, what).await,
        Verb::Gen(what) => corten_generate::run(&what),
        Verb::Machineconfig(what) => corten_generate::machineconfig(&what),
        Verb::Validate(args) => corten_generate::validate::run(&args),
        Verb::Inject(what) => inject::run(&what),
        Verb::ApplyConfig(args) => apply::run(&global, &args).await,
        Verb::Version(args) => version::run(&global, &args).await,
        Verb::Memory(args) => memory::run(routes(&global).await?, &args).await,
        Verb::Dmesg(args) => logs::dmesg(routes(&global).await?, &args).await,
        Verb::Logs(args) => logs::logs(routes(&global).await?, &args).await,
        Verb::Events(args) => events::run(routes(&global).await?, &args).await,
        Verb::Meta(args) => meta::run(routes(&global).await?, args).await,
        Verb::Service(args) => service::run(routes(&global).await?, &args).await,
        Verb::Get(args) => get::run(routes(&global).await?, &args).await,
        Verb::Mounts(args) => mounts::run(routes(&global).await?, &args.output).await,
        Verb::DiskFree(args) => diskfree::run(routes(&global).await?, &args).await,
        Verb::Processes(args) => processes::run(&global, &args).await,
        Verb::List(args) => list::run(routes(&global).await?, &args).await,
        Verb::Usage(args) => usage::run(routes(&global).await?, &args).await,
        Verb::Read(args) => copy::read(routes(&global).await?, &args).await,
        Verb::Copy(args) => copy::copy(routes(&global).await?, &args).await,
        Verb::Netstat(args) => netstat::run(routes(&global).await?, &args).await,
        Verb::Pcap(args) => {
            let request = pcap::request(&args)?;
            pcap::run(routes(&global).await?, &args, request).await
        }
        Verb::Cgroups(args) => cgroups::run(routes(&global).await?, &args).await,
        Verb::Cluster(what) => corten_provision::run(what).await,
        Verb::Containers(args) => containers::run(routes(&global).await?, &args).await,
        Verb::Stats(args) => containers::stats(routes(&global).await?, &args).await,
        Verb::Restart(args) => containers::restart(routes(&global).await?, &args).await,
        Verb::Time(args) => time::run(routes(&global).await?, &args).await,
        Verb::Health(args) => health::run(&global, &args).await,
        Verb::Image(what) => image::run(&global, &what).await,
        Verb::Inspect(Inspect::Dependencies(args)) => {
            inspect::dependencies(routes(&global).await?, &args).await
        }
        Verb::Reboot(args) => power::reboot(&global, &args).await,
        Verb::Shutdown(args) => power::shutdown(&global, &args).await,
        Verb::Reset(args) => power::reset(&global, &args).await,
        Verb::Wipe(what) => wipe::run(routes(&global).await?, &what).await,
        Verb::Install(args) => install::run(routes(&global).await?, &args).await,
        Verb::Upgrade(args) => upgrade::upgrade(&global, &args).await,
        Verb::UpgradeK8s(args) => upgrade_k8s::run(&global, &args).await,
        Verb::Rollback => upgrade::rollback(routes(&global).await?).await,
        Verb::Bootstrap(args) => power::bootstrap(routes(&global).await?, &args).await,
        Verb::Etcd(what) => etcd::run(routes(&global).await?, what).await,
        Verb::Kubeconfig(args) => kubeconfig::run(routes(&global).await?, &args).await,
        Verb::Conformance(Conformance::Kubernetes(args)) => conformance::run(&global, &args).await,
        Verb::Patch(args) => patch::patch(routes(&global).await?, &args).await,
        Verb::RotateCa(args) => rotate_ca::run(&global, &args).await,
        Verb::Support(args) => support::run(&global, &args).await,
        Verb::Dashboard(args) => dashboard::run(&global, &args).await,
        Verb::Completion(args) => shell::completion(&args),
        Verb::Man(args) => shell::man(&args),
        Verb::Edit(args) => patch::edit(routes(&global).await?, &args).await,
    }
}
