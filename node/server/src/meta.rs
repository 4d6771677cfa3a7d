//! Sets and deletes META values.

use std::sync::Arc;

use corten_api::machine as api;
use corten_api::roles::Role;
use corten_meta::Tag;
use corten_meta::tags::STATE_ENCRYPTION;
use corten_observe::stream::ended_by_bug;
use corten_persistence::meta::MetaError;
use tonic::{Request, Status};

use super::callers::Caller;
use crate::node::Node;

pub(super) async fn write(
    node: Arc<dyn Node>,
    request: Request<api::MetaWriteRequest>,
) -> Result<api::MetaWriteResponse, Status> {
    let is_admin = Caller::is_admin(request.extensions());
    let request = request.into_inner();
    change(node, is_admin, request.key, Some(request.value)).await?;
    Ok(api::MetaWriteResponse {
        messages: vec![api::MetaWrite { metadata: None }],
    })
}

pub(super) async fn delete(
    node: Arc<dyn Node>,
    request: Request<api::MetaDeleteRequest>,
) -> Result<api::MetaDeleteResponse, Status> {
    let is_admin = Caller::is_admin(request.extensions());
    change(node, is_admin, request.into_inner().key, None).await?;
    Ok(api::MetaDeleteResponse {
        messages: vec![api::MetaDelete { metadata: None }],
    })
}

async fn change(
    node: Arc<dyn Node>,
    is_admin: bool,
    key: u32,
    value: Option<Vec<u8>>,
) -> Result<(), Status> {
    let tag = u8::try_from(key)
        .ok()
        .and_then(Tag::new)
        .ok_or_else(|| Status::invalid_argument(format!("key {key}: must be from 1 to 255")))?;
    // Its key opens STATE from the next boot on, so only an administrator may set it.
    if tag == STATE_ENCRYPTION && !is_admin {
        return Err(Status::permission_denied(format!(
            "key {tag:#04x} holds the encryption settings of STATE: writing it needs {}",
            Role::Admin.name()
        )));
    }
    tokio::task::spawn_blocking(move || node.change_meta(tag, value))
        .await
        .map_err(|_| ended_by_bug(&format!("the write of META {tag:#04x}")))?
        .map_err(|error| match error {
            MetaError::NoPartition | MetaError::Refused(..) => {
                Status::failed_precondition(error.to_string())
            }
            MetaError::NoValue(_) => Status::not_found(error.to_string()),
            MetaError::Write(ref why) if why.kind() == std::io::ErrorKind::InvalidInput => {
                Status::invalid_argument(error.to_string())
            }
            MetaError::Write(_) => Status::internal(error.to_string()),
        })
}

#[cfg(test)]
mod tests {
    use corten_api::machine::machine_service_client::MachineServiceClient;
    use tonic::Code;

    use super::*;
    use crate::tests::world;

    #[tokio::test]
    async fn values_are_set_and_deleted() {
        let world = world();
        let mut client = MachineServiceClient::new(world.channel.clone());
        let request = |key| api::MetaWriteRequest {
            key,
            value: b"value".to_vec(),
        };
        let diskless = client.meta_write(request(10)).await.unwrap_err();
        assert_eq!(diskless.code(), Code::FailedPrecondition);
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(corten_meta::PARTITION).unwrap();
        world.node.meta.open(disk.path()).unwrap();
        for key in [0, 256] {
            let refused = client.meta_write(request(key)).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{key}");
        }
        client.meta_write(request(10)).await.unwrap();
        let values = corten_meta::read(disk.as_file()).unwrap().unwrap();
        assert_eq!(values.get(&Tag::new(10).unwrap()).unwrap(), b"value");
        let key = 10;
        client
            .meta_delete(api::MetaDeleteRequest { key })
            .await
            .unwrap();
        let gone = client.meta_delete(api::MetaDeleteRequest { key }).await;
        assert_eq!(gone.unwrap_err().code(), Code::NotFound);
    }

    #[tokio::test]
    async fn meta_writer_role_may_not_change_the_encryption_of_state() {
        let world = world();
        let mut client = MachineServiceClient::new(world.channel.clone());
        let disk = tempfile::NamedTempFile::new().unwrap();
        disk.as_file().set_len(corten_meta::PARTITION).unwrap();
        world.node.meta.open(disk.path()).unwrap();
        let key = u32::from(STATE_ENCRYPTION.get());
        let mut code = async |role: &str, key| {
            let value = b"value".to_vec();
            let mut request = Request::new(api::MetaWriteRequest { key, value });
            let role = role.parse().unwrap();
            request.metadata_mut().append("talos-role", role);
            match client.meta_write(request).await {
                Ok(_) => Code::Ok,
                Err(status) => status.code(),
            }
        };
        assert_eq!(code("os:meta:writer", 10).await, Code::Ok);
        assert_eq!(code("os:meta:writer", key).await, Code::PermissionDenied);
        assert_eq!(code("os:admin", key).await, Code::Ok);
    }
}
