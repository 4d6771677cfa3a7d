//! etcd of the fake nodes.

use corten_api::common::{Data, Metadata};
use corten_api::machine as api;
use tonic::{Request, Response, Status, Streaming};

use super::up;

pub(super) async fn recover(
    request: Request<Streaming<Data>>,
) -> Result<Response<api::EtcdRecoverResponse>, Status> {
    if up(&request)? == "strict" {
        return Err(Status::failed_precondition("etcd runs already"));
    }
    let mut frames = request.into_inner();
    let mut size = 0;
    while let Some(frame) = frames.message().await? {
        size += frame.bytes.len();
    }
    if size != 200_000 {
        return Err(Status::invalid_argument(format!("{size} bytes came")));
    }
    let messages = vec![api::EtcdRecover::default()];
    Ok(Response::new(api::EtcdRecoverResponse { messages }))
}

pub(super) fn members(node: &str, metadata: Option<Metadata>) -> api::EtcdMembers {
    let member = |id, hostname: &str, is_learner| api::EtcdMember {
        id,
        hostname: hostname.to_owned(),
        peer_urls: vec![format!("https://{node}:2380")],
        client_urls: vec![format!("https://{node}:2379"), "https://x:2379".into()],
        is_learner,
    };
    let hostname = if node == "evil" {
        "a\tb\u{9b}31m"
    } else {
        "cp1"
    };
    api::EtcdMembers {
        metadata,
        members: vec![
            member(0xabc, hostname, false),
            member(u64::MAX, "cp2", true),
        ],
        ..Default::default()
    }
}

pub(super) fn status(node: &str, metadata: Option<Metadata>) -> api::EtcdStatus {
    let evil = node == "evil";
    api::EtcdStatus {
        metadata,
        member_status: Some(api::EtcdMemberStatus {
            member_id: 0xabc,
            protocol_version: "3.6.4".into(),
            storage_version: "3.6.0".into(),
            db_size: if evil { -1 } else { 20_000_000 },
            db_size_in_use: if evil { i64::MAX } else { 5_000_000 },
            leader: 0xabc,
            raft_index: 1000,
            raft_term: 3,
            raft_applied_index: 999,
            errors: if evil {
                vec!["e\u{1b}]0;x\u{7}".into()]
            } else {
                Vec::new()
            },
            is_learner: false,
        }),
    }
}

pub(super) fn alarms(_: &str, metadata: Option<Metadata>) -> api::EtcdAlarm {
    let alarm = |member_id, alarm| api::EtcdMemberAlarm { member_id, alarm };
    api::EtcdAlarm {
        metadata,
        member_alarms: vec![alarm(0xabc, 1), alarm(2, 77)],
    }
}
