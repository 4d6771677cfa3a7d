//! `time`: the time of nodes, and of their time server.

use corten_api::time::{Time as Answer, TimeRequest};
use corten_client::answers::ask;
use corten_client::clients::Time as Client;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::output::show;
use corten_client::table::Table;
use corten_client::units;
use prost_types::Timestamp;
use serde_json::{Value, json};

use crate::cli::Time;

const HEADER: &[&str] = &["NODE", "NTP-SERVER", "NODE-TIME", "NTP-SERVER-TIME"];

pub(crate) async fn run(routes: Vec<Route>, args: &Time) -> Result<(), Failure> {
    let answers = match &args.check {
        Some(server) => {
            let body = TimeRequest {
                server: server.clone(),
            };
            let call =
                |mut client: Client, request| async move { client.time_check(request).await };
            ask(routes, body, call).await?
        }
        None => {
            let call = |mut client: Client, request| async move { client.time(request).await };
            ask(routes, (), call).await?
        }
    };
    let format = &args.output.output;
    show(answers, format, |all| table(all).render(), fields)
}

fn table(messages: &[(String, Answer)]) -> Table {
    let mut table = Table::new(HEADER);
    let shown = |at: Option<Timestamp>| at.map_or_else(String::new, units::moment);
    for (node, message) in messages {
        table.row([
            node,
            &message.server,
            &shown(message.localtime),
            &shown(message.remotetime),
        ]);
    }
    table
}

fn fields(message: &Answer) -> Value {
    json!({
        "server": message.server,
        "nodeTime": message.localtime.map(units::moment),
        "serverTime": message.remotetime.map(units::moment),
    })
}
