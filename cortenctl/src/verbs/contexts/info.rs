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
            "certificateExpires": expires.map(|end| prost_types::Timestamp::from(end).to_string()),
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
    let end = expires.map_or_else(|| "unknown".to_owned(), |end| until(end, SystemTime::now()));
    lines.row(["Certificate expires:", &end]);
    Ok(table::print(&lines.render())?)
}

fn expires(identity: &Identity) -> Option<SystemTime> {
    let chain = corten_pki::certificates_from_pem(identity.crt.as_bytes()).ok()?;
    let (_, end) = corten_pki::validity(chain.first()?).ok()?;
    Some(end)
}

/// The remaining time, and the end date.
fn until(end: SystemTime, now: SystemTime) -> String {
    let at = prost_types::Timestamp::from(end);
    match (end.duration_since(now), now.duration_since(end)) {
        (Ok(left), _) => format!("{} from now ({at})", units::coarse(left)),
        (_, Ok(past)) => format!("{} ago ({at})", units::coarse(past)),
        _ => at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn expiry_is_shown_before_and_after_it_passes() {
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(100_000_000);
        let day = Duration::from_secs(86_400);
        let text = until(end, end - 300 * day);
        assert_eq!(text, "300 days from now (1973-03-03T09:46:40Z)");
        let text = until(end, end + day + day / 2);
        assert_eq!(text, "36 hours ago (1973-03-03T09:46:40Z)");
    }
}
