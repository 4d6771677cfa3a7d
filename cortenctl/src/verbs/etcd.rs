//! `etcd`: members of the cluster's data.

mod snapshot;

use corten_api::machine as api;
use corten_api::machine::etcd_member_alarm::AlarmType;

use crate::answers::{Answers, ask};
use crate::cli::{Etcd, EtcdAlarm, EtcdDowngrade};
use crate::clients::Machine;
use crate::connect::Route;
use crate::failure::Failure;
use crate::table::{Table, print};
use crate::units::signed_size;

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

pub(crate) async fn run(routes: Vec<Route>, what: Etcd) -> Result<(), Failure> {
    match what {
        Etcd::Alarm(what) => alarm(routes, &what).await,
        Etcd::Defrag => {
            let call =
                |mut client: Machine, request| async move { client.etcd_defragment(request).await };
            ask(routes, (), call).await?.finish()
        }
        Etcd::Downgrade(what) => downgrade(routes, what).await,
        Etcd::ForfeitLeadership => {
            let body = api::EtcdForfeitLeadershipRequest {};
            let call = |mut client: Machine, request| async move {
                client.etcd_forfeit_leadership(request).await
            };
            let answers = ask(routes, body, call).await?;
            said(answers, |message| match &*message.member {
                "" => "it does not lead".to_owned(),
                member => format!("{member} leads now"),
            })
        }
        Etcd::Leave => {
            let body = api::EtcdLeaveClusterRequest {};
            let call = |mut client: Machine, request| async move {
                client.etcd_leave_cluster(request).await
            };
            ask(routes, body, call).await?.finish()
        }
        Etcd::Members => members(routes).await,
        Etcd::RemoveMember { id } => {
            let body = api::EtcdRemoveMemberByIdRequest { member_id: id };
            let call = |mut client: Machine, request| async move {
                client.etcd_remove_member_by_id(request).await
            };
            ask(routes, body, call).await?.finish()
        }
        Etcd::Snapshot { path } => snapshot::save(routes, &path).await,
        Etcd::Status => status(routes).await,
    }
}

/// An id as etcd's own client writes it.
fn id(number: u64) -> String {
    format!("{number:016x}")
}

/// A table with a sentence per node.
fn said<M>(answers: Answers<M>, text: impl Fn(&M) -> String) -> Result<(), Failure> {
    rows(answers, MESSAGES, |node, message, table| {
        table.row([node, &text(message)]);
    })
}

/// A table of what nodes answered, and who failed.
fn rows<M>(
    answers: Answers<M>,
    header: &[&str],
    row: impl Fn(&str, &M, &mut Table),
) -> Result<(), Failure> {
    if !answers.good.is_empty() {
        let mut table = Table::new(header);
        for (node, message) in &answers.good {
            row(node, message, &mut table);
        }
        print(&table.render())?;
    }
    answers.finish()
}

async fn alarm(routes: Vec<Route>, what: &EtcdAlarm) -> Result<(), Failure> {
    let alarms = |node: &str, alarms: &[api::EtcdMemberAlarm], table: &mut Table| {
        for one in alarms {
            let name = match AlarmType::try_from(one.alarm) {
                Ok(alarm) => alarm.as_str_name().to_owned(),
                Err(_) => one.alarm.to_string(),
            };
            table.row([node, &id(one.member_id), &name]);
        }
    };
    match what {
        EtcdAlarm::List => {
            let call =
                |mut client: Machine, request| async move { client.etcd_alarm_list(request).await };
            let answers = ask(routes, (), call).await?;
            rows(answers, ALARMS, |node, message, table| {
                alarms(node, &message.member_alarms, table);
            })
        }
        EtcdAlarm::Disarm => {
            let call = |mut client: Machine, request| async move {
                client.etcd_alarm_disarm(request).await
            };
            let answers = ask(routes, (), call).await?;
            rows(answers, ALARMS, |node, message, table| {
                alarms(node, &message.member_alarms, table);
            })
        }
    }
}

async fn downgrade(routes: Vec<Route>, what: EtcdDowngrade) -> Result<(), Failure> {
    let version = |cluster: Option<&api::EtcdClusterDowngrade>| {
        cluster
            .map_or("?", |cluster| &*cluster.cluster_version)
            .to_owned()
    };
    match what {
        EtcdDowngrade::Validate { version: target } => {
            let body = api::EtcdDowngradeValidateRequest { version: target };
            let call = |mut client: Machine, request| async move {
                client.etcd_downgrade_validate(request).await
            };
            said(ask(routes, body, call).await?, |message| {
                let now = version(message.cluster_downgrade.as_ref());
                format!("downgrade is possible, the cluster is at {now}")
            })
        }
        EtcdDowngrade::Enable { version: target } => {
            let body = api::EtcdDowngradeEnableRequest { version: target };
            let call = |mut client: Machine, request| async move {
                client.etcd_downgrade_enable(request).await
            };
            said(ask(routes, body, call).await?, |message| {
                let now = version(message.cluster_downgrade.as_ref());
                format!("downgrade begun, the cluster is at {now}")
            })
        }
        EtcdDowngrade::Cancel => {
            let call = |mut client: Machine, request| async move {
                client.etcd_downgrade_cancel(request).await
            };
            said(ask(routes, (), call).await?, |message| {
                let now = version(message.cluster_downgrade.as_ref());
                format!("downgrade taken back, the cluster is at {now}")
            })
        }
    }
}

async fn members(routes: Vec<Route>) -> Result<(), Failure> {
    let body = api::EtcdMemberListRequest { query_local: false };
    let call = |mut client: Machine, request| async move { client.etcd_member_list(request).await };
    let answers = ask(routes, body, call).await?;
    rows(answers, MEMBERS, |node, message, table| {
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
    })
}

async fn status(routes: Vec<Route>) -> Result<(), Failure> {
    let call = |mut client: Machine, request| async move { client.etcd_status(request).await };
    let answers = ask(routes, (), call).await?;
    rows(answers, STATUS, |node, message, table| {
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
    })
}

/// The part of the database that holds something, and how much of it that is.
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
    fn sizes_that_cannot_be_are_shown_as_they_are() {
        assert_eq!(in_use(5_000_000, 20_000_000), "5.0 MB (25.00%)");
        assert_eq!(in_use(1, 0), "1 B");
        assert_eq!(in_use(-1, 10), "-1 B");
        assert_eq!(in_use(i64::MIN, i64::MIN), "-9.2 EB");
        assert_eq!(id(0xab), "00000000000000ab");
    }
}
