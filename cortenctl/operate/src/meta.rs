//! `meta`: writes and deletes META values.

use corten_api::machine::{MetaDeleteRequest, MetaWriteRequest};
use corten_client::answers::ask;
use corten_client::clients::Machine;
use corten_client::connect::Route;
use corten_client::failure::Failure;

use crate::args::{Meta, MetaVerb};

/// Runs `meta`.
///
/// # Errors
/// A node refuses the change.
pub async fn run(routes: Vec<Route>, args: Meta) -> Result<(), Failure> {
    match args.verb {
        MetaVerb::Write { key, value } => {
            let body = MetaWriteRequest {
                key: key.into(),
                value: value.into_bytes(),
            };
            ask(routes, body, |mut client: Machine, request| async move {
                client.meta_write(request).await
            })
            .await?
            .finish()
        }
        MetaVerb::Delete { key } => {
            let body = MetaDeleteRequest { key: key.into() };
            ask(routes, body, |mut client: Machine, request| async move {
                client.meta_delete(request).await
            })
            .await?
            .finish()
        }
    }
}
