//! `etcd`: members, status and snapshots of the cluster's etcd.

mod snapshot;

use corten_api::machine as api;
use corten_api::machine::etcd_member_alarm::AlarmType;
use corten_client::answers::{Answers, ask, ask_within};
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;
use corten_client::flags::Output;
use corten_client::format::Format;
use corten_client::output::show;
use corten_client::table::Table;
use corten_client::units::signed_size;
use serde_json::{Value, json};

use crate::args::{Etcd, EtcdAlarm, EtcdDowngrade};

const ALARMS: &[&str] = &["NODE", "MEMBER", "ALARM"];
const MEMBERS: &[&str] = &[
    "NODE",
    "ID",
    "HOSTNAME",
    "PEER URLS",
    "CLIENT URLS",
    "LEARNER",
];
const STATUS: &[&str] = &[
    "NODE",
    "MEMBER",
    "DB SIZE",
    "IN USE",
    "LEADER",
    "RAFT INDEX",
    "RAFT TERM",
    "RAFT APPLIED INDEX",
    "LEARNER",
    "PROTOCOL",
    "STORAGE",
    "ERRORS",
];
const MESSAGES: &[&str] = &["NODE", "MESSAGE"];

pub(crate) use snapshot::recover;

/// Runs `etcd`.
///
/// # Errors
/// A node refuses, or a snapshot cannot be written.
pub async fn run(routes: Vec<Route>, what: Etcd) -> Result<(), Failure> {
    match what {
        Etcd::Alarm(what) => alarm(routes, &what).await,
        Etcd::Defrag => {
            let call =
                |mut client: Machine, request| async move { client.etcd_defragment(request).await };
            ask_within(None, routes, (), call).await?.finish()
        }
        Etcd::Downgrade(what) => downgrade(routes, what).await,
        Etcd::ForfeitLeadership(Output { output }) => {
            let body = api::EtcdForfeitLeadershipRequest {};
            let call = |mut client: Machine, request| async move {
                client.etcd_forfeit_leadership(request).await
            };
            let answers = ask(routes, body, call).await?;
            print_sentences(answers, &output, |message| match &*message.member {
                "" => "it is not the leader".to_owned(),
                member => format!("{member} is the leader now"),
            })
        }
        Etcd::Leave => {
            let body = api::EtcdLeaveClusterRequest {};
            let call = |mut client: Machine, request| async move {
                client.etcd_leave_cluster(request).await
            };
            // As for a defragmentation, the node's own timeout is longer than that of other calls.
            ask_within(None, routes, body, call).await?.finish()
        }
        Etcd::Members(args) => members(routes, &args.output).await,
        Etcd::RemoveMember { id } => {
            let body = api::EtcdRemoveMemberByIdRequest { member_id: id };
            let call = |mut client: Machine, request| async move {
                client.etcd_remove_member_by_id(request).await
            };
            ask(routes, body, call).await?.finish()
        }
        Etcd::Snapshot { path } => snapshot::save(routes, &path).await,
        Etcd::Status(args) => status(routes, &args.output).await,
    }
}

/// An id in the form of etcd's own client.
fn id(number: u64) -> String {
    format!("{number:016x}")
}

/// A sentence per node.
fn print_sentences<M>(
    answers: Answers<M>,
    format: &Format,
    sentence: impl Fn(&M) -> String,
) -> Result<(), Failure> {
    let row = |node: &str, message: &M, table: &mut Table| {
        table.row([node, &sentence(message)]);
    };
    let item = |message: &M| json!({ "message": sentence(message) });
    show(answers, format, |all| rows(all, MESSAGES, row), item)
}

/// A table of the nodes' answers.
fn rows<M>(
    messages: &[(String, M)],
    header: &[&str],
    row: impl Fn(&str, &M, &mut Table),
) -> String {
    let mut table = Table::new(header);
    for (node, message) in messages {
        row(node, message, &mut table);
    }
    table.render()
}

async fn alarm(routes: Vec<Route>, what: &EtcdAlarm) -> Result<(), Failure> {
    match what {
        EtcdAlarm::List(Output { output }) => {
            let call =
                |mut client: Machine, request| async move { client.etcd_alarm_list(request).await };
            let answers = ask(routes, (), call).await?;
            alarms(answers, output, |message| &message.member_alarms)
        }
        EtcdAlarm::Disarm(Output { output }) => {
            let call = |mut client: Machine, request| async move {
                client.etcd_alarm_disarm(request).await
            };
            let answers = ask(routes, (), call).await?;
            alarms(answers, output, |message| &message.member_alarms)
        }
    }
}

fn alarms<M>(
    answers: Answers<M>,
    format: &Format,
    of: fn(&M) -> &Vec<api::EtcdMemberAlarm>,
) -> Result<(), Failure> {
    let name = |one: &api::EtcdMemberAlarm| match AlarmType::try_from(one.alarm) {
        Ok(alarm) => alarm.as_str_name().to_owned(),
        Err(_) => one.alarm.to_string(),
    };
    let row = |node: &str, message: &M, table: &mut Table| {
        for one in of(message) {
            table.row([node, &id(one.member_id), &name(one)]);
        }
    };
    let item = |message: &M| {
        let alarms = of(message).iter();
        let alarms = alarms.map(|one| json!({ "member": id(one.member_id), "alarm": name(one) }));
        json!({ "alarms": alarms.collect::<Vec<_>>() })
    };
    show(answers, format, |all| rows(all, ALARMS, row), item)
}

async fn downgrade(routes: Vec<Route>, what: EtcdDowngrade) -> Result<(), Failure> {
    let version = |cluster: Option<&api::EtcdClusterDowngrade>| {
        cluster
            .map_or("?", |cluster| &*cluster.cluster_version)
            .to_owned()
    };
    match what {
        EtcdDowngrade::Validate {
            version: target,
            output: Output { output },
        } => {
            let body = api::EtcdDowngradeValidateRequest { version: target };
            let call = |mut client: Machine, request| async move {
                client.etcd_downgrade_validate(request).await
            };
            print_sentences(ask(routes, body, call).await?, &output, |message| {
                let now = version(message.cluster_downgrade.as_ref());
                format!("downgrade is possible, the cluster is at {now}")
            })
        }
        EtcdDowngrade::Enable {
            version: target,
            output: Output { output },
        } => {
            let body = api::EtcdDowngradeEnableRequest { version: target };
            let call = |mut client: Machine, request| async move {
                client.etcd_downgrade_enable(request).await
            };
            print_sentences(ask(routes, body, call).await?, &output, |message| {
                let now = version(message.cluster_downgrade.as_ref());
                format!("downgrade started, the cluster is at {now}")
            })
        }
        EtcdDowngrade::Cancel(Output { output }) => {
            let call = |mut client: Machine, request| async move {
                client.etcd_downgrade_cancel(request).await
            };
            print_sentences(ask(routes, (), call).await?, &output, |message| {
                let now = version(message.cluster_downgrade.as_ref());
                format!("downgrade cancelled, the cluster is at {now}")
            })
        }
    }
}

async fn members(routes: Vec<Route>, format: &Format) -> Result<(), Failure> {
    let body = api::EtcdMemberListRequest { query_local: false };
    let call = |mut client: Machine, request| async move { client.etcd_member_list(request).await };
    let answers = ask(routes, body, call).await?;
    let row = |node: &str, message: &api::EtcdMembers, table: &mut Table| {
        for member in &message.members {
            table.row([
                node,
                &id(member.id),
                &member.hostname,
                &member.peer_urls.join(","),
                &member.client_urls.join(","),
                &member.is_learner.to_string(),
            ]);
        }
    };
    let table = |all: &[(String, api::EtcdMembers)]| rows(all, MEMBERS, row);
    show(answers, format, table, member_fields)
}

fn member_fields(message: &api::EtcdMembers) -> Value {
    let members = message.members.iter().map(|member| {
        json!({
            "id": id(member.id),
            "hostname": member.hostname,
            "peerUrls": member.peer_urls,
            "clientUrls": member.client_urls,
            "learner": member.is_learner,
        })
    });
    json!({ "members": members.collect::<Vec<_>>() })
}

async fn status(routes: Vec<Route>, format: &Format) -> Result<(), Failure> {
    let call = |mut client: Machine, request| async move { client.etcd_status(request).await };
    let answers = ask(routes, (), call).await?;
    let row = |node: &str, message: &api::EtcdStatus, table: &mut Table| {
        let status = message.member_status.clone().unwrap_or_default();
        table.row([
            node,
            &id(status.member_id),
            &signed_size(status.db_size),
            &in_use(status.db_size_in_use, status.db_size),
            &id(status.leader),
            &status.raft_index.to_string(),
            &status.raft_term.to_string(),
            &status.raft_applied_index.to_string(),
            &status.is_learner.to_string(),
            &status.protocol_version,
            &status.storage_version,
            &status.errors.join(", "),
        ]);
    };
    let table = |all: &[(String, api::EtcdStatus)]| rows(all, STATUS, row);
    show(answers, format, table, status_fields)
}

/// Sizes in bytes.
fn status_fields(message: &api::EtcdStatus) -> Value {
    let status = message.member_status.clone().unwrap_or_default();
    json!({
        "member": id(status.member_id),
        "dbSize": status.db_size,
        "dbSizeInUse": status.db_size_in_use,
        "leader": id(status.leader),
        "raftIndex": status.raft_index,
        "raftTerm": status.raft_term,
        "raftAppliedIndex": status.raft_applied_index,
        "learner": status.is_learner,
        "protocol": status.protocol_version,
        "storage": status.storage_version,
        "errors": status.errors,
    })
}

/// The used size of the database, and its share of the whole.
fn in_use(used: i64, size: i64) -> String {
    let text = signed_size(used);
    if size <= 0 || used < 0 {
        return text;
    }
    let percent = 100.0 * (used as f64 / size as f64);
    format!("{text} ({percent:.2}%)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_sizes_are_shown_without_a_percentage() {
        assert_eq!(in_use(5_000_000, 20_000_000), "5.0 MB (25.00%)");
        assert_eq!(in_use(1, 0), "1 B");
        assert_eq!(in_use(-1, 10), "-1 B");
        assert_eq!(in_use(i64::MIN, i64::MIN), "-9.2 EB");
        assert_eq!(id(0xab), "00000000000000ab");
    }
}
