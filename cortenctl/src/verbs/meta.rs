//! `meta`.

use corten_api::machine::{
    MetaDeleteRequest, MetaDeleteResponse, MetaWriteRequest, MetaWriteResponse,
};

use crate::answers::ask;
use crate::cli::Meta;
use crate::connect::Route;
use crate::failure::Failure;

pub(crate) async fn run(routes: Vec<Route>, what: Meta) -> Result<(), Failure> {
    match what {
        Meta::Write { key, value } => {
            let body = MetaWriteRequest {
                key: key.into(),
                value: value.into_bytes(),
            };
            let messages = |reply: MetaWriteResponse| reply.messages;
            ask(routes, body, messages, |mut client, request| async move {
                client.meta_write(request).await
            })
            .await
            .finish()
        }
        Meta::Delete { key } => {
            let body = MetaDeleteRequest { key: key.into() };
            let messages = |reply: MetaDeleteResponse| reply.messages;
            ask(routes, body, messages, |mut client, request| async move {
                client.meta_delete(request).await
            })
            .await
            .finish()
        }
    }
}
