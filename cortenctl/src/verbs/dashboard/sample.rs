//! One sample of the nodes' state. A call that a node does not offer is left out.

use corten_api::machine as api;
use corten_client::answers::{Answers, ask};
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::stream::{each, gather};

use super::facts::{self, Facts};

/// Number of log lines kept.
pub(super) const LINES: i32 = 100;
/// Maximum length of a line, in characters.
const WIDTH: usize = 500;
/// The displayed log, which reports the node's actions.
const LOG: &str = "machined";

/// The answers of one sample.
#[derive(Debug, Default)]
pub(super) struct Sample {
    pub(super) versions: Answers<api::Version>,
    pub(super) stats: Answers<api::SystemStat>,
    pub(super) memory: Answers<api::Memory>,
    pub(super) loads: Answers<api::LoadAvg>,
    pub(super) processes: Answers<api::Process>,
    pub(super) networks: Answers<api::NetworkDeviceStats>,
    /// The node of the log.
    pub(super) chosen: String,
    pub(super) log: Vec<String>,
    /// Facts of the same node.
    pub(super) facts: Facts,
}

pub(super) async fn sample(routes: Vec<Route>, chosen: String) -> Result<Sample, Failure> {
    let versions = |mut client: Machine, request| async move { client.version(request).await };
    let stats = |mut client: Machine, request| async move { client.system_stat(request).await };
    let memory = |mut client: Machine, request| async move { client.memory(request).await };
    let loads = |mut client: Machine, request| async move { client.load_avg(request).await };
    let processes = |mut client: Machine, request| async move { client.processes(request).await };
    let networks =
        |mut client: Machine, request| async move { client.network_device_stats(request).await };
    // In parallel: a slow node delays the sample once, not for each call.
    let (versions, stats, memory, loads, processes, networks, log, facts) = tokio::try_join!(
        ask(routes.clone(), (), versions),
        ask(routes.clone(), (), stats),
        ask(routes.clone(), (), memory),
        ask(routes.clone(), (), loads),
        ask(routes.clone(), (), processes),
        ask(routes.clone(), (), networks),
        log(routes.clone(), &chosen),
        facts::of(routes, &chosen),
    )?;
    Ok(Sample {
        versions,
        stats,
        memory,
        loads,
        processes,
        networks,
        log,
        facts,
        chosen,
    })
}

async fn log(routes: Vec<Route>, chosen: &str) -> Result<Vec<String>, Failure> {
    let mut bytes = Vec::new();
    let failed = each(routes, async |node| {
        if node.name != chosen {
            return Ok(());
        }
        let request = node.brief(api::LogsRequest {
            namespace: "system".to_owned(),
            id: LOG.to_owned(),
            tail_lines: LINES,
            ..Default::default()
        });
        let mut frames = node.client::<Machine>().logs(request).await?.into_inner();
        let too_large = "its log is too long";
        gather(&mut frames, corten_api::MAX_MESSAGE, too_large, &mut bytes).await
    })
    .await?;
    let text = String::from_utf8_lossy(&bytes);
    let shortened = text.lines().map(|line| line.chars().take(WIDTH).collect());
    let mut lines: Vec<String> = shortened.collect();
    let own = failed.into_iter().filter(|(name, _)| name == chosen);
    lines.extend(own.map(|(_, why)| why));
    Ok(lines)
}
