//! The questions to one node, as a reader.

use std::error::Error as _;

use corten_api::cosi::resource::state_client::StateClient;
use corten_api::cosi::resource::{GetRequest, ListRequest, Resource};
use corten_api::machine as api;
use corten_api::machine::machine_service_client::MachineServiceClient;
use corten_api::metadata;
use corten_api::resource::config::{MachineType as Type, MachineTypeSpec};
use corten_api::roles::Role;
use corten_api::storage::storage_service_client::StorageServiceClient;
use corten_api::talos::resource::definitions::k8s::NodenameSpec;
use corten_api::talos::resource::definitions::runtime::{DiagnosticSpec, MachineStatusSpec};
use corten_resources::Spec;
use corten_types::config::MachineType;
use corten_types::diagnostic::Diagnostic;
use corten_types::etcd::EtcdMember;
use corten_types::kubernetes::Nodename;
use corten_types::kubernetes_node::StaticPodStatus;
use corten_types::runtime::MachineStatus;
use prost::Message;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::judge::{boot, disks, memory, services};
use super::together::Registration;

/// Size limit of an answer in bytes; a list of services with histories is the largest.
const LARGEST_ANSWER: usize = 1 << 20;

/// Reason why a node fails a check.
#[derive(Debug)]
pub(super) struct Lack {
    pub(super) why: String,
    /// The failure is in the connection, not the node's answer.
    pub(super) is_cut_off: bool,
    /// The node does not have the resource.
    is_absent: bool,
    /// The node refuses the question, or does not have the type of the resource.
    is_refused: bool,
}

impl Lack {
    /// The node gives no answer at all.
    pub(super) fn cut_off(why: String) -> Lack {
        Lack {
            is_cut_off: true,
            ..Lack::from(why)
        }
    }
}

impl From<String> for Lack {
    fn from(why: String) -> Lack {
        Lack {
            why,
            is_cut_off: false,
            is_absent: false,
            is_refused: false,
        }
    }
}

impl From<Status> for Lack {
    fn from(status: Status) -> Lack {
        // A status from the wire has no source. Unauthenticated means that apid no longer accepts the certificate.
        let is_cut_off = status.source().is_some() || status.code() == Code::Unauthenticated;
        Lack {
            why: status.message().to_owned(),
            is_cut_off,
            is_absent: status.code() == Code::NotFound,
            is_refused: status.code() == Code::PermissionDenied,
        }
    }
}

/// A node to ask: a channel, and its name if apid forwards the call to it.
#[derive(Debug, Clone)]
pub(super) struct Contact {
    pub(super) channel: Channel,
    pub(super) name: Option<String>,
}

impl Contact {
    fn machine(&self) -> MachineServiceClient<Channel> {
        let machine = MachineServiceClient::new(self.channel.clone());
        machine.max_decoding_message_size(LARGEST_ANSWER)
    }

    pub(super) async fn version(self) -> Result<(), Lack> {
        self.machine().version(self.request(())?).await?;
        Ok(())
    }

    pub(super) async fn memory(self) -> Result<(), Lack> {
        let answer = self.machine().memory(self.request(())?).await?;
        let first = answer.into_inner().messages.into_iter().next();
        memory(&first.and_then(|first| first.meminfo).unwrap_or_default())?;
        Ok(())
    }

    pub(super) async fn disks(self) -> Result<(), Lack> {
        let mut storage = StorageServiceClient::new(self.channel.clone());
        let answer = storage.disks(self.request(())?).await?;
        let first = answer.into_inner().messages.into_iter().next();
        disks(&first.unwrap_or_default().disks)?;
        Ok(())
    }

    pub(super) async fn services(self) -> Result<(), Lack> {
        let answer = self.machine().service_list(self.request(())?).await?;
        let first = answer.into_inner().messages.into_iter().next();
        services(&first.unwrap_or_default().services)?;
        Ok(())
    }

    /// `brings_network` is false for a cluster whose nodes become ready by a network plugin of the operator.
    pub(super) async fn boot(self, brings_network: bool) -> Result<(), Lack> {
        let spec = self.resource::<MachineStatus>(MachineStatus::ID).await?;
        let status: MachineStatusSpec = decoded("MachineStatus", &spec)?;
        boot(&status, brings_network)?;
        Ok(())
    }

    /// Passes without diagnostics, and on a node of a version that has none.
    pub(super) async fn diagnostics(self) -> Result<(), Lack> {
        let found = match self.resources::<Diagnostic>().await {
            Err(lack) if lack.is_refused => return Ok(()),
            found => found?,
        };
        let mut told = Vec::new();
        for resource in found {
            let id = resource.metadata.unwrap_or_default().id;
            let spec = resource.spec.unwrap_or_default().proto_spec;
            let diagnostic: DiagnosticSpec = decoded("Diagnostic", &spec)?;
            told.push(format!("{id}: {}", diagnostic.message));
        }
        match told.as_slice() {
            [] => Ok(()),
            told => Err(Lack::from(told.join(", "))),
        }
    }

    /// The id of the node's own member of etcd; `None` of a worker.
    pub(super) async fn own_member(self) -> Result<Option<String>, Lack> {
        if !self.is_control_plane().await? {
            return Ok(None);
        }
        let spec = self.resource::<EtcdMember>(EtcdMember::ID).await;
        let spec = spec.map_err(without_member)?;
        let member: corten_api::talos::resource::definitions::etcd::MemberSpec =
            decoded("EtcdMember", &spec)?;
        Ok(Some(member.member_id))
    }

    /// The members of etcd that the node knows; `None` of a worker.
    pub(super) async fn members(self) -> Result<Option<Vec<api::EtcdMember>>, Lack> {
        if !self.is_control_plane().await? {
            return Ok(None);
        }
        let request = self.request(api::EtcdMemberListRequest::default())?;
        let answer = self.machine().etcd_member_list(request).await?;
        let first = answer.into_inner().messages.into_iter().next();
        Ok(Some(first.unwrap_or_default().members))
    }

    /// The names of the static pods that the kubelet runs, as `namespace/name`; `None` of a node outside the control
    /// plane of a cluster.
    pub(super) async fn static_pods(self) -> Result<Option<Vec<String>>, Lack> {
        if !self.is_control_plane().await? || self.clone().registration().await?.is_none() {
            return Ok(None);
        }
        let pods = self.resources::<StaticPodStatus>().await?.into_iter();
        Ok(Some(
            pods.filter_map(|pod| Some(pod.metadata?.id)).collect(),
        ))
    }

    /// How the node takes part in Kubernetes; `None` of a node that stays out.
    pub(super) async fn registration(self) -> Result<Option<Registration>, Lack> {
        let spec = match self.resource::<Nodename>(Nodename::ID).await {
            Err(lack) if lack.is_absent => return Ok(None),
            spec => spec?,
        };
        let name: NodenameSpec = decoded("Nodename", &spec)?;
        if name.skip_node_registration {
            return Ok(None);
        }
        Ok(Some(Registration {
            name: name.nodename,
            is_control_plane: self.is_control_plane().await?,
        }))
    }

    /// A node without a config has no type yet; its boot check reports that.
    async fn is_control_plane(&self) -> Result<bool, Lack> {
        let spec = match self.resource::<MachineType>(MachineType::ID).await {
            Err(lack) if lack.is_cut_off => return Err(lack),
            spec => spec.unwrap_or_default(),
        };
        let kind: MachineTypeSpec = decoded("MachineType", &spec)?;
        Ok(kind.machine_type() == Type::ControlPlane)
    }

    /// The protobuf spec of a resource, by type and id.
    async fn resource<S: Spec>(&self, id: &str) -> Result<Vec<u8>, Lack> {
        let definition = S::DEFINITION;
        let wanted = GetRequest {
            namespace: definition.default_namespace.to_owned(),
            r#type: definition.type_name.to_owned(),
            id: id.to_owned(),
            options: None,
        };
        let mut state = StateClient::new(self.channel.clone());
        let answer = state.get(self.request(wanted)?).await?;
        let resource = answer.into_inner().resource;
        let spec = resource.and_then(|resource| resource.spec);
        Ok(spec.unwrap_or_default().proto_spec)
    }

    /// All resources of a type.
    async fn resources<S: Spec>(&self) -> Result<Vec<Resource>, Lack> {
        let definition = S::DEFINITION;
        let wanted = ListRequest {
            namespace: definition.default_namespace.to_owned(),
            r#type: definition.type_name.to_owned(),
            options: None,
        };
        let mut state = StateClient::new(self.channel.clone());
        let mut answers = state.list(self.request(wanted)?).await?.into_inner();
        let mut found = Vec::new();
        while let Some(answer) = answers.message().await? {
            found.extend(answer.resource);
        }
        Ok(found)
    }

    /// A reader's request; with a name apid forwards it to that node.
    fn request<T>(&self, message: T) -> Result<Request<T>, String> {
        let mut request = Request::new(message);
        let fields = request.metadata_mut();
        let reader = tonic::metadata::MetadataValue::from_static(Role::Reader.name());
        fields.insert(metadata::ROLE, reader);
        if let Some(node) = &self.name {
            let node = node
                .parse()
                .map_err(|_| "not the name of a node".to_owned())?;
            fields.insert(metadata::NODE, node);
        }
        Ok(request)
    }
}

fn decoded<M: Message + Default>(what: &str, spec: &[u8]) -> Result<M, String> {
    M::decode(spec).map_err(|error| format!("{what}: {error}"))
}

fn without_member(lack: Lack) -> Lack {
    if lack.is_cut_off {
        return lack;
    }
    Lack::from(
        "it has no working etcd member: `cortenctl logs etcd` and `cortenctl service etcd` say why; a new cluster \
         begins with `cortenctl bootstrap`"
            .to_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_of_a_node_is_distinguished_from_a_broken_connection() {
        let said = Status::unavailable("n2: no connection within 5 s");
        assert!(!Lack::from(said).is_cut_off);
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        assert!(Lack::from(Status::from_error(reset.into())).is_cut_off);
        assert!(Lack::from(Status::unauthenticated("come again")).is_cut_off);
    }
}
