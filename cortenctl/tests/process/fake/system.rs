//! What the made-up nodes run and write.

use corten_api::common::Data;
use corten_api::machine as api;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::files::chunks;
use super::{answer, frames, up};

pub(super) fn version(request: &Request<()>) -> Result<Response<api::VersionResponse>, Status> {
    up(request)?;
    answer!(
        *request,
        api::VersionResponse,
        api::Version,
        |_, metadata| api::Version {
            metadata,
            version: Some(api::VersionInfo {
                tag: "v1.14.0+corten.test".into(),
                ..Default::default()
            }),
            ..Default::default()
        }
    )
}

pub(super) fn service_list(
    request: &Request<()>,
) -> Result<Response<api::ServiceListResponse>, Status> {
    up(request)?;
    answer!(
        *request,
        api::ServiceListResponse,
        api::ServiceList,
        |node, metadata| {
            let service = |id: &str| api::ServiceInfo {
                id: id.to_owned(),
                ..Default::default()
            };
            let odd = if node == "evil" { "../../x" } else { "etcd" };
            api::ServiceList {
                metadata,
                services: vec![service("apid"), service(odd)],
            }
        }
    )
}

pub(super) fn logs(
    request: &Request<api::LogsRequest>,
) -> Result<Response<BoxStream<Data>>, Status> {
    up(request)?;
    match &*request.get_ref().id {
        "etcd" => Err(Status::not_found("no log of etcd")),
        _ => Ok(chunks(b"started\ntoken abcdef.0123456789abcdef refused\n")),
    }
}

pub(super) fn dmesg(
    request: &Request<api::DmesgRequest>,
) -> Result<Response<BoxStream<Data>>, Status> {
    up(request)?;
    Ok(chunks(b"kern: notice: [2001-09-09T01:46:40.0Z]: Linux\n"))
}

pub(super) fn events(
    request: &Request<api::EventsRequest>,
) -> Result<Response<BoxStream<api::Event>>, Status> {
    up(request)?;
    let begun = api::Event::default();
    let event = api::Event {
        id: "id1".into(),
        data: Some(prost_types::Any {
            type_url: "talos/runtime/machine.NewEvent".into(),
            value: vec![1, 2, 3],
        }),
        ..Default::default()
    };
    Ok(frames(vec![begun, event]))
}

pub(super) fn processes(request: &Request<()>) -> Result<Response<api::ProcessesResponse>, Status> {
    up(request)?;
    answer!(
        *request,
        api::ProcessesResponse,
        api::Process,
        |_, metadata| {
            let init = api::ProcessInfo {
                pid: 1,
                command: "machined".into(),
                ..Default::default()
            };
            api::Process {
                metadata,
                processes: vec![init],
            }
        }
    )
}
