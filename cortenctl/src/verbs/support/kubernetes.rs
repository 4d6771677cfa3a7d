//! Collects from a cluster: nodes and system pods, the logs of these pods, and the state of etcd.

use corten_api::common::ContainerDriver;
use corten_api::machine as api;
use corten_client::clients::Machine;
use corten_client::failure::Failure;
use corten_client::flags::Global;
use corten_client::stream::{Node, Trouble};
use corten_client::yaml;
use corten_operate::kubernetes::objects;
use serde_json::{Value, json};
use tonic::Code;

use super::Missing;
use super::archive::Archive;
use super::redact::redact;

/// Namespace of the containers of pods in containerd.
const NAMESPACE: &str = "k8s.io";
/// Namespace of the cluster's own pods.
const SYSTEM: &str = "kube-system/";
/// Directory of the files of the cluster.
const CLUSTER: &str = "cluster";

/// The containers of the system pods on a node.
pub(super) async fn containers(node: &Node) -> Result<Vec<String>, Trouble> {
    let request = node.brief(api::ContainersRequest {
        namespace: NAMESPACE.to_owned(),
        driver: ContainerDriver::Cri.into(),
    });
    let answer = node.client::<Machine>().containers(request).await?;
    let messages = answer.into_inner().messages.into_iter();
    let all = messages.flat_map(|message| message.containers);
    let own = all.filter(|one| one.pod_id.starts_with(SYSTEM) && one.id != one.pod_id);
    Ok(own.map(|one| one.id).collect())
}

/// The request for the log of such a container.
pub(super) fn log(id: &str) -> api::LogsRequest {
    api::LogsRequest {
        namespace: NAMESPACE.to_owned(),
        driver: ContainerDriver::Cri.into(),
        id: id.to_owned(),
        tail_lines: -1,
        ..Default::default()
    }
}

/// Members, status and alarms of etcd as the node knows them; `None` of a node that runs none.
pub(super) async fn etcd(node: &Node) -> Result<Option<String>, Trouble> {
    let mut client = node.client::<Machine>();
    let members = match client
        .etcd_member_list(node.brief(api::EtcdMemberListRequest::default()))
        .await
    {
        Err(status) if status.code() == Code::FailedPrecondition => return Ok(None),
        members => members?.into_inner(),
    };
    let status = client.etcd_status(node.brief(())).await?.into_inner();
    let alarms = client.etcd_alarm_list(node.brief(())).await?.into_inner();
    let members = members
        .messages
        .into_iter()
        .flat_map(|message| message.members);
    let members = members.map(|member| {
        json!({
            "id": format!("{:016x}", member.id),
            "hostname": member.hostname,
            "peerURLs": member.peer_urls,
            "clientURLs": member.client_urls,
            "isLearner": member.is_learner,
        })
    });
    let status = status
        .messages
        .into_iter()
        .filter_map(|message| message.member_status);
    let status = status.map(|status| {
        json!({
            "member": format!("{:016x}", status.member_id),
            "leader": format!("{:016x}", status.leader),
            "version": status.protocol_version,
            "storageVersion": status.storage_version,
            "dbSize": status.db_size,
            "dbSizeInUse": status.db_size_in_use,
            "raftIndex": status.raft_index,
            "raftTerm": status.raft_term,
            "raftAppliedIndex": status.raft_applied_index,
            "isLearner": status.is_learner,
            "errors": status.errors,
        })
    });
    let alarms = alarms
        .messages
        .into_iter()
        .flat_map(|message| message.member_alarms);
    let alarms = alarms.map(|alarm| {
        json!({
            "member": format!("{:016x}", alarm.member_id),
            "alarm": alarm.alarm().as_str_name(),
        })
    });
    let document = json!({
        "members": members.collect::<Vec<_>>(),
        "status": status.collect::<Vec<_>>(),
        "alarms": alarms.collect::<Vec<_>>(),
    });
    Ok(Some(yaml::render(&document).map_err(Failure::from)?))
}

/// Adds the nodes and the system pods, as the Kubernetes API shows them.
pub(super) async fn cluster(
    global: &Global,
    archive: &mut Archive,
    missing: &mut Missing,
) -> Result<(), Failure> {
    match objects(global).await {
        Ok(Ok(lists)) => {
            for (name, list) in lists {
                let text = text(list)?;
                archive.add(&format!("{CLUSTER}/{name}.yaml"), redact(&text).as_bytes())?;
            }
        }
        Ok(Err(why)) => missing.push((CLUSTER.to_owned(), why)),
        Err(failure) => missing.push((CLUSTER.to_owned(), failure.sentence())),
    }
    Ok(())
}

fn text(list: Vec<Value>) -> Result<String, Failure> {
    let mut text = String::new();
    for mut object in list {
        // Who owns which field is longer than all fields.
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
        text.push_str("---\n");
        text.push_str(&yaml::render(&object)?);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_documents_without_the_owners_of_their_fields() {
        let node = json!({ "metadata": { "name": "n1", "managedFields": [{}] }, "spec": {} });
        let text = text(vec![node.clone(), node]).unwrap();
        assert_eq!(text.matches("---\n").count(), 2);
        assert!(
            text.contains("name: n1") && !text.contains("managedFields"),
            "{text}"
        );
    }
}
