//! `version`: of this client and of nodes.

use std::fmt::Write as _;

use corten_api::machine::{Version as Answer, VersionInfo};

use crate::answers::ask;
use crate::cli::{Global, Version};
use crate::clients::Machine;
use crate::connect::routes;
use crate::failure::Failure;
use crate::table::{print, printable};

pub(crate) async fn run(global: &Global, args: &Version) -> Result<(), Failure> {
    print(&client(args.tags))?;
    if args.client {
        return Ok(());
    }
    let routes = routes(global).await?;
    let answers = ask(routes, (), |mut client: Machine, request| async move {
        client.version(request).await
    })
    .await?;
    if !answers.good.is_empty() {
        print(&servers(&answers.good, args.tags))?;
    }
    answers.finish()
}

fn client(short: bool) -> String {
    let tag = corten_api::version_tag();
    if short {
        return format!("Client {tag}\n");
    }
    let info = VersionInfo {
        tag,
        os: std::env::consts::OS.to_owned(),
        arch: corten_api::ARCH.to_owned(),
        ..Default::default()
    };
    format!("Client:\n{}", block(&info))
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
        let rbac = message
            .features
            .as_ref()
            .is_some_and(|features| features.rbac);
        line(&mut text, "Enabled", if rbac { "RBAC" } else { "" });
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

/// The values stand in one column, 13 characters right of the labels.
fn line(text: &mut String, label: &str, value: &str) {
    let label = format!("{label}:");
    // Writing to a String does not fail.
    writeln!(text, "\t{label:<13}{}", printable(value)).ok();
}

#[cfg(test)]
mod tests {
    use corten_api::machine::FeaturesInfo;

    use super::*;

    #[test]
    fn a_block_per_node() {
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
    fn the_client_says_what_it_is() {
        assert!(client(false).starts_with("Client:\n\tTag:         v1.14.0+corten."));
        assert!(client(true).starts_with("Client v1.14.0+corten."));
    }
}
