//! `version`: of this client and of nodes.

use std::fmt::Write as _;

use corten_api::machine::{Version as Answer, VersionInfo};
use corten_client::answers::{Answers, ask};
use corten_client::clients::Machine;
use corten_client::connect::routes;
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::format::Format;
use corten_client::output::with_node;
use corten_client::table::{print, printable};
use serde_json::{Map, Value, json};

use crate::cli::Version;

pub(crate) async fn run(global: &Global, args: &Version) -> Result<(), Failure> {
    let format = &args.output.output;
    let own = own();
    if *format == Format::Table {
        print(&client(&own, args.tags))?;
    }
    // The client's version is printed even if no node can be called.
    let (answers, ended) = match nodes(global, args).await {
        Ok(answers) => (answers, Ok(())),
        Err(failure) => (Answers::default(), Err(failure)),
    };
    match format {
        Format::Table if answers.good.is_empty() => {}
        Format::Table => print(&servers(&answers.good, args.tags))?,
        Format::Document(form) => {
            let nodes = answers.good.iter();
            let nodes = nodes.map(|(node, message)| with_node(node, fields(message, args.tags)));
            let mut items = vec![Value::Object(info(&own, args.tags))];
            items.extend(nodes);
            print(&form.list(items)?)?;
        }
    }
    ended?;
    answers.finish()
}

async fn nodes(global: &Global, args: &Version) -> Result<Answers<Answer>, Failure> {
    if args.client {
        return Ok(Answers::default());
    }
    let call = |mut client: Machine, request| async move { client.version(request).await };
    ask(routes(global).await?, (), call).await
}

fn own() -> VersionInfo {
    VersionInfo {
        tag: corten_api::version_tag(crate::cli::VERSION),
        os: std::env::consts::OS.to_owned(),
        arch: corten_api::ARCH.to_owned(),
        ..Default::default()
    }
}

fn client(own: &VersionInfo, short: bool) -> String {
    if short {
        return format!("Client {}\n", own.tag);
    }
    format!("Client:\n{}", block(own))
}

/// The fields of the client's item, which a node's item begins with.
fn info(info: &VersionInfo, short: bool) -> Map<String, Value> {
    let mut fields = Map::new();
    let all = [
        ("tag", &info.tag),
        ("sha", &info.sha),
        ("built", &info.built),
        ("os", &info.os),
        ("arch", &info.arch),
    ];
    let wanted = if short { 1 } else { all.len() };
    for (name, value) in all.into_iter().take(wanted) {
        fields.insert(name.to_owned(), json!(value));
    }
    fields
}

fn fields(message: &Answer, short: bool) -> Value {
    let mut fields = info(&message.version.clone().unwrap_or_default(), short);
    if !short {
        fields.insert("rbac".to_owned(), json!(rbac(message)));
    }
    Value::Object(fields)
}

fn rbac(message: &Answer) -> bool {
    let features = message.features.as_ref();
    features.is_some_and(|features| features.rbac)
}

fn servers(messages: &[(String, Answer)], short: bool) -> String {
    let mut text = String::from("Server:\n");
    for (node, message) in messages {
        line(&mut text, "NODE", node);
        let info = message.version.clone().unwrap_or_default();
        if short {
            line(&mut text, "Tag", &info.tag);
            continue;
        }
        text.push_str(&block(&info));
        line(
            &mut text,
            "Enabled",
            if rbac(message) { "RBAC" } else { "" },
        );
    }
    text
}

fn block(info: &VersionInfo) -> String {
    let mut text = String::new();
    line(&mut text, "Tag", &info.tag);
    line(&mut text, "SHA", &info.sha);
    line(&mut text, "Built", &info.built);
    line(&mut text, "Go version", &info.go_version);
    line(&mut text, "OS/Arch", &format!("{}/{}", info.os, info.arch));
    text
}

/// The values are aligned in one column, 13 characters right of the labels.
fn line(text: &mut String, label: &str, value: &str) {
    let label = format!("{label}:");
    // Writing to a String cannot fail.
    writeln!(text, "\t{label:<13}{}", printable(value)).ok();
}

#[cfg(test)]
mod tests {
    use corten_api::machine::FeaturesInfo;

    use super::*;

    #[test]
    fn version_prints_a_block_per_node() {
        let info = VersionInfo {
            tag: "v1.14.0+corten.1".into(),
            os: "linux".into(),
            arch: "amd64".into(),
            ..Default::default()
        };
        let answer = Answer {
            version: Some(info),
            features: Some(FeaturesInfo { rbac: true }),
            ..Default::default()
        };
        let messages = [("10.0.0.1".to_owned(), answer)];
        let expected = "Server:\n\
            \tNODE:        10.0.0.1\n\
            \tTag:         v1.14.0+corten.1\n\
            \tSHA:         \n\
            \tBuilt:       \n\
            \tGo version:  \n\
            \tOS/Arch:     linux/amd64\n\
            \tEnabled:     RBAC\n";
        assert_eq!(servers(&messages, false), expected);
        let short = "Server:\n\tNODE:        10.0.0.1\n\tTag:         v1.14.0+corten.1\n";
        assert_eq!(servers(&messages, true), short);
    }

    #[test]
    fn client_prints_its_version_and_platform() {
        let own = own();
        let text = client(&own, false);
        assert!(text.starts_with("Client:\n\tTag:         v1.14.0+corten."));
        assert!(client(&own, true).starts_with("Client v1.14.0+corten."));
        assert_eq!(info(&own, true).len(), 1);
        assert_eq!(info(&own, false)["os"], "linux");
    }
}
