//! `cosi.resource.State`: reads and watches the node's resources. Writes are refused: only the owning controller
//! changes a resource.

use std::any::Any;

use corten_api::cosi::resource as api;
use corten_api::cosi::resource::label_term::Operation;
use corten_api::cosi::resource::meta::resource_definition_spec as definition;
use corten_api::cosi::resource::meta::{NamespaceSpec, ResourceDefinitionSpec};
use corten_api::cosi::resource::state_server::State;
use corten_api::roles::Role;
use corten_resources::meta::{Namespace, ResourceDefinition};
use corten_resources::{
    AnySpec, Bookmark, Event, Happened, IdQuery, LabelTerm, Operator, Pointer, Query, Resource,
    Sensitivity, Start, Store, StoreError, Watcher,
};
use futures_util::{StreamExt as _, stream};
use prost::Message as _;
use tonic::codegen::BoxStream;
use tonic::{Extensions, Request, Response, Status, async_trait};

use super::callers::Caller;
use super::forwarded::{self, Withheld};

/// Limit of events in one frame, for clients that accept several.
const AGGREGATED: usize = 64;

/// The service; its only state is the store.
pub(super) struct Resources {
    pub(super) store: Store,
}

type Answer<T> = Result<Response<T>, Status>;

/// The part of a resource that a caller gets.
#[derive(Debug, Clone, Copy)]
enum Shown {
    Whole,
    /// Without what may be secret.
    Masked,
}

#[async_trait]
impl State for Resources {
    async fn get(&self, request: Request<api::GetRequest>) -> Answer<api::GetResponse> {
        let (_, extensions, request) = request.into_parts();
        let (pointer, shown) = self.pointer(
            &extensions,
            &request.namespace,
            &request.r#type,
            &request.id,
        )?;
        let resource = self.store.get(&pointer).map_err(refusal)?;
        let resource = Some(encode(&resource, shown)?);
        Ok(Response::new(api::GetResponse { resource }))
    }

    async fn list(
        &self,
        request: Request<api::ListRequest>,
    ) -> Answer<BoxStream<api::ListResponse>> {
        let (_, extensions, request) = request.into_parts();
        let (kind, shown) = self.pointer(&extensions, &request.namespace, &request.r#type, "")?;
        let options = request.options.unwrap_or_default();
        let query = query(options.label_query, options.id_query)?;
        let found = self.store.list(kind.namespace, kind.type_name, &query);
        let found = stream::iter(found.map_err(refusal)?);
        let responses = found.map(move |resource| {
            let resource = Some(encode(&resource, shown)?);
            Ok(api::ListResponse { resource })
        });
        Ok(Response::new(Box::pin(responses)))
    }

    async fn watch(
        &self,
        request: Request<api::WatchRequest>,
    ) -> Answer<BoxStream<api::WatchResponse>> {
        let (_, extensions, request) = request.into_parts();
        let id = request.id.clone();
        let (pointer, shown) = self.pointer(
            &extensions,
            &request.namespace,
            &request.r#type,
            id.as_deref().unwrap_or_default(),
        )?;
        let options = request.options.unwrap_or_default();
        let start = start(&options)?;
        let knows_all = request.api_version >= 1;
        let most = if options.aggregated { AGGREGATED } else { 1 };
        let query = query(options.label_query, options.id_query)?;
        let watcher = if id.is_none() {
            self.store
                .watch_kind(pointer.namespace, pointer.type_name, query, start)
        } else if query.is_all() {
            self.store.watch(&pointer, start)
        } else {
            Err(StoreError::SingleWatch)
        };
        let frames = frames(watcher.map_err(refusal)?, most, knows_all, shown);
        // An empty frame tells the client that the watch has begun.
        let first = stream::iter([Ok(api::WatchResponse::default())]);
        Ok(Response::new(Box::pin(first.chain(frames))))
    }

    async fn create(&self, _: Request<api::CreateRequest>) -> Answer<api::CreateResponse> {
        Err(read_only())
    }

    async fn update(&self, _: Request<api::UpdateRequest>) -> Answer<api::UpdateResponse> {
        Err(read_only())
    }

    async fn destroy(&self, _: Request<api::DestroyRequest>) -> Answer<api::DestroyResponse> {
        Err(read_only())
    }

    async fn teardown(&self, _: Request<api::TeardownRequest>) -> Answer<api::TeardownResponse> {
        Err(read_only())
    }

    async fn teardown_and_destroy(
        &self,
        _: Request<api::TeardownAndDestroyRequest>,
    ) -> Answer<api::TeardownAndDestroyResponse> {
        Err(read_only())
    }
}

impl Resources {
    /// The requested resource, if the caller may read it, and how much of it.
    fn pointer(
        &self,
        extensions: &Extensions,
        namespace: &str,
        type_name: &str,
        id: &str,
    ) -> Result<(Pointer, Shown), Status> {
        let pointer = self.store.pointer(namespace, type_name, id);
        let pointer = pointer.map_err(refusal)?;
        let definition = self.store.definition(pointer.type_name);
        let sensitivity = definition.map(|definition| definition.sensitivity);
        let is_withheld = Withheld::is_with(extensions);
        match sensitivity {
            Some(Sensitivity::NonSensitive) => return Ok((pointer, Shown::Whole)),
            Some(Sensitivity::Masked) if is_withheld && Caller::is_admin(extensions) => {
                return Ok((pointer, Shown::Masked));
            }
            _ if is_withheld => return Err(refusal_of_secrets(type_name)),
            _ if Caller::is_admin(extensions) => return Ok((pointer, Shown::Whole)),
            _ => {}
        }
        Err(Status::permission_denied(format!(
            "resource type {type_name:?} holds secrets: it needs {}",
            Role::Admin.name()
        )))
    }
}

fn refusal_of_secrets(type_name: &str) -> Status {
    forwarded::refusal(&format!("resource type {type_name:?} holds secrets"))
}

fn read_only() -> Status {
    Status::permission_denied(
        "resources are read-only: change the machine config, or call the method for the action",
    )
}

fn refusal(error: StoreError) -> Status {
    let text = error.to_string();
    match error {
        StoreError::NotFound(_) => Status::not_found(text),
        StoreError::AlreadyExists(_) => Status::already_exists(text),
        StoreError::OwnerConflict { .. } | StoreError::Undeclared { .. } => {
            Status::permission_denied(text)
        }
        StoreError::UnknownType(name) => Status::permission_denied(format!(
            "resource type {name:?} is not supported; `get rd` lists the types"
        )),
        StoreError::UnknownNamespace(name) => {
            Status::permission_denied(format!("namespace {name:?} is not supported"))
        }
        StoreError::VersionConflict { .. }
        | StoreError::PendingFinalizers { .. }
        | StoreError::BookmarkGone
        | StoreError::FellBehind { .. } => Status::failed_precondition(text),
        StoreError::PhaseConflict { .. }
        | StoreError::InvalidExpression { .. }
        | StoreError::LabelQueryTooLarge { .. }
        | StoreError::ManyStarts => Status::invalid_argument(text),
        StoreError::SingleWatch => Status::unimplemented(text),
        StoreError::TypeTaken(_) => Status::internal(text),
    }
}

fn start(options: &api::WatchOptions) -> Result<Start, Status> {
    let bookmark = options.start_from_bookmark.as_deref();
    let bookmark = bookmark.map(Bookmark::from_bytes).transpose();
    let bookmark = bookmark.map_err(refusal)?;
    let tail = usize::try_from(options.tail_events)
        .map_err(|_| Status::invalid_argument("tail_events must not be negative"))?;
    let starts = [
        // The end of the contents has a bookmark, too.
        options.bootstrap_contents.then_some(Start::Contents),
        (options.bootstrap_bookmark && !options.bootstrap_contents).then_some(Start::Bookmarked),
        (tail > 0).then_some(Start::Tail(tail)),
        bookmark.map(Start::After),
    ];
    let mut starts = starts.into_iter().flatten();
    match (starts.next(), starts.next()) {
        (start, None) => Ok(start.unwrap_or_default()),
        (_, Some(_)) => Err(refusal(StoreError::ManyStarts)),
    }
}

fn query(labels: Vec<api::LabelQuery>, id: Option<api::IdQuery>) -> Result<Query, Status> {
    let term = |term: api::LabelTerm| LabelTerm {
        operator: match term.op() {
            Operation::Exists => Operator::Exists,
            Operation::Equal => Operator::Equal,
            Operation::NotExists => Operator::NotExists,
            Operation::In => Operator::In,
            Operation::Lt => Operator::Less,
            Operation::Lte => Operator::LessOrEqual,
            Operation::LtNumeric => Operator::LessNumeric,
            Operation::LteNumeric => Operator::LessOrEqualNumeric,
        },
        key: term.key,
        values: term.value,
        invert: term.invert,
    };
    let labels = labels
        .into_iter()
        .map(|query| query.terms.into_iter().map(term).collect())
        .collect();
    let id = id.filter(|query| !query.regexp.is_empty());
    let id = id.map(|query| IdQuery::new(&query.regexp)).transpose();
    let id = id.map_err(refusal)?;
    Query::new(labels, id).map_err(refusal)
}

/// Turns a watcher into frames of up to `most` events. Ends with the watch.
fn frames(
    watcher: Watcher,
    most: usize,
    knows_all: bool,
    shown: Shown,
) -> impl futures_util::Stream<Item = Result<api::WatchResponse, Status>> + Send {
    stream::unfold(watcher, move |mut watcher| async move {
        let mut frame = Vec::new();
        let mut next = watcher.next().await;
        while let Some(event) = next {
            match event_of(event, knows_all, shown) {
                Ok(event) => frame.extend(event),
                Err(status) => return Some((Err(status), watcher)),
            }
            next = if frame.is_empty() {
                watcher.next().await
            } else if frame.len() < most {
                watcher.next_now()
            } else {
                None
            };
        }
        (!frame.is_empty()).then_some((Ok(api::WatchResponse { event: frame }), watcher))
    })
}

/// Encodes an event; `None` for one that the client's API version does not have.
fn event_of(event: Event, knows_all: bool, shown: Shown) -> Result<Option<api::Event>, Status> {
    use api::EventType::{Bootstrapped, Created, Destroyed, Errored, Noop, Updated};
    let mut old_resource = None;
    let mut error = None;
    let (event_type, resource) = match &event.happened {
        Happened::Created(new) => (Created, encode(new, shown)?),
        Happened::Updated { new, old } => {
            old_resource = Some(encode(old, shown)?);
            (Updated, encode(new, shown)?)
        }
        Happened::Destroyed(last) => (Destroyed, encode(last, shown)?),
        Happened::Absent(pointer) => (Destroyed, nothing(Some(pointer))),
        Happened::Bootstrapped | Happened::Noop if !knows_all => return Ok(None),
        Happened::Bootstrapped => (Bootstrapped, nothing(None)),
        Happened::Noop => (Noop, nothing(None)),
        Happened::Errored(why) if !knows_all => return Err(refusal(why.clone())),
        Happened::Errored(why) => {
            error = Some(why.to_string());
            (Errored, nothing(None))
        }
    };
    Ok(Some(api::Event {
        resource: Some(resource),
        event_type: event_type.into(),
        old: old_resource,
        error,
        bookmark: event.bookmark.map(|bookmark| bookmark.to_bytes().to_vec()),
    }))
}

/// Placeholder where there is no resource.
fn nothing(pointer: Option<&Pointer>) -> api::Resource {
    let metadata = api::Metadata {
        namespace: pointer
            .map(|name| name.namespace.to_owned())
            .unwrap_or_default(),
        r#type: pointer
            .map(|name| name.type_name.to_owned())
            .unwrap_or_default(),
        id: pointer.map(|name| name.id.to_string()).unwrap_or_default(),
        version: "undefined".to_owned(),
        phase: "running".to_owned(),
        ..Default::default()
    };
    api::Resource {
        metadata: Some(metadata),
        spec: Some(api::Spec::default()),
    }
}

fn encode(resource: &Resource, shown: Shown) -> Result<api::Resource, Status> {
    let masked;
    let resource = match shown {
        Shown::Whole => resource,
        Shown::Masked => {
            let without = resource.masked();
            let type_name = resource.pointer().type_name;
            masked = without.ok_or_else(|| refusal_of_secrets(type_name))?;
            &masked
        }
    };
    let metadata = &resource.metadata;
    let spec = resource.spec();
    let yaml_spec = spec
        .to_yaml()
        .map_err(|error| Status::internal(format!("resource {}: {error}", resource.pointer())))?;
    Ok(api::Resource {
        metadata: Some(api::Metadata {
            namespace: metadata.pointer.namespace.to_owned(),
            r#type: metadata.pointer.type_name.to_owned(),
            id: metadata.pointer.id.to_string(),
            version: metadata.version.to_string(),
            owner: metadata.owner.to_owned(),
            phase: metadata.phase.to_string(),
            created: Some(metadata.created.into()),
            updated: Some(metadata.updated.into()),
            finalizers: metadata
                .finalizers
                .iter()
                .map(|who| (*who).to_owned())
                .collect(),
            labels: metadata.labels.clone().into_iter().collect(),
            annotations: metadata.annotations.clone().into_iter().collect(),
        }),
        spec: Some(api::Spec {
            proto_spec: proto(spec),
            yaml_spec,
        }),
    })
}

/// Encodes a spec as protobuf. The store's own types have messages, too, but the store does not depend on the API.
fn proto(spec: &dyn AnySpec) -> Vec<u8> {
    let any: &dyn Any = spec;
    if let Some(namespace) = any.downcast_ref::<Namespace>() {
        let description = namespace.description.clone();
        return NamespaceSpec { description }.encode_to_vec();
    }
    let Some(found) = any.downcast_ref::<ResourceDefinition>() else {
        return spec.to_proto();
    };
    let columns = found
        .print_columns
        .iter()
        .map(|column| definition::PrintColumn {
            name: column.name.clone(),
            json_path: column.json_path.clone(),
        });
    let sensitivity = if found.sensitivity.is_some() {
        definition::Sensitivity::Sensitive
    } else {
        definition::Sensitivity::NonSensitive
    };
    let message = ResourceDefinitionSpec {
        resource_type: found.type_name.clone(),
        display_type: found.display_type.clone(),
        default_namespace: found.default_namespace.clone(),
        aliases: found.aliases.clone(),
        all_aliases: found.all_aliases.clone(),
        print_columns: columns.collect(),
        sensitivity: sensitivity.into(),
    };
    message.encode_to_vec()
}
