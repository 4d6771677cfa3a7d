//! `config info`: shows the current context.

use std::time::SystemTime;

use corten_client::clientconfig::{ClientConfig, Identity};
use corten_client::failure::Failure;
use corten_client::flags::Output;
use corten_client::format::Format;
use corten_client::table;
use corten_client::table::Table;
use corten_client::{tls, units};
use serde_json::json;

pub(super) fn run(
    config: &ClientConfig,
    name: Option<&str>,
    output: &Output,
) -> Result<(), Failure> {
    let context = config.select(name)?;
    let name = name.unwrap_or(&config.context);
    let identity = context.identity()?;
    let roles = tls::roles(&identity);
    let expires = expires(&identity);
    if let Format::Document(form) = &output.output {
        let all = json!({
            "context": name,
            "nodes": context.nodes,
            "endpoints": context.endpoints,
            "roles": roles,
            "certTTL": expires.map(|end| left(end, SystemTime::now())),
            "certNotAfter": expires.map(date),
            "certificateExpires": expires.map(time),
        });
        return Ok(table::print(&form.document(&all)?)?);
    }
    let listed = |items: &[String]| match items {
        [] => "not defined".to_owned(),
        some => some.join(", "),
    };
    let mut lines = Table::default();
    lines.row(["Current context:", name]);
    lines.row(["Nodes:", &listed(&context.nodes)]);
    lines.row(["Endpoints:", &listed(&context.endpoints)]);
    lines.row(["Roles:", &listed(&roles)]);
    let end = expires.map_or_else(
        || "unknown".to_owned(),
        |end| format!("{} ({})", left(end, SystemTime::now()), time(end)),
    );
    lines.row(["Certificate expires:", &end]);
    Ok(table::print(&lines.render())?)
}

fn expires(identity: &Identity) -> Option<SystemTime> {
    let chain = corten_pki::certificates_from_pem(identity.crt.as_bytes()).ok()?;
    let (_, end) = corten_pki::validity(chain.first()?).ok()?;
    Some(end)
}

/// The remaining time, or that since the end.
fn left(end: SystemTime, now: SystemTime) -> String {
    match end.duration_since(now) {
        Ok(left) => format!("{} from now", units::coarse(left)),
        Err(past) => format!("{} ago", units::coarse(past.duration())),
    }
}

fn time(end: SystemTime) -> String {
    prost_types::Timestamp::from(end).to_string()
}

/// The day of a time in UTC, as YYYY-MM-DD.
fn date(end: SystemTime) -> String {
    let time = time(end);
    let date = time.split_once('T').map(|(date, _)| date.to_owned());
    date.unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn expiry_is_shown_before_and_after_it_passes() {
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(100_000_000);
        let day = Duration::from_secs(86_400);
        assert_eq!(left(end, end - 300 * day), "300 days from now");
        assert_eq!(left(end, end + day + day / 2), "36 hours ago");
        assert_eq!(time(end), "1973-03-03T09:46:40Z");
        assert_eq!(date(end), "1973-03-03");
    }
}
