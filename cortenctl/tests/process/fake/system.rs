//! Processes and logs of the fake nodes.

use corten_api::common::{Data, Error, Metadata};
use corten_api::machine as api;
use prost::Message as _;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status};

use super::{ACTOR, answer, each, frames, up};

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
                os: "linux".into(),
                arch: "riscv64".into(),
                ..Default::default()
            }),
            features: Some(api::FeaturesInfo { rbac: true }),
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
            let mut apid = service("apid");
            apid.state = "Running".into();
            apid.health = Some(api::ServiceHealth {
                healthy: true,
                ..Default::default()
            });
            let event = |state: &str, msg: &str| api::ServiceEvent {
                state: state.to_owned(),
                msg: msg.to_owned(),
                ts: None,
            };
            apid.events = Some(api::ServiceEvents {
                events: vec![
                    event("Preparing", "Starting"),
                    event("Running", "Started as\u{7} pid 7"),
                ],
            });
            let odd = if node == "evil" { "../../x" } else { "etcd" };
            api::ServiceList {
                metadata,
                services: vec![apid, service(odd)],
            }
        }
    )
}

/// The same lines for every node.
fn lines<T>(request: &Request<T>, lines: &[&str]) -> Response<BoxStream<Data>> {
    let line = |metadata: Option<Metadata>, line: &str| Data {
        metadata,
        bytes: line.as_bytes().to_vec(),
    };
    let all = each(
        request,
        |_, metadata| {
            let own = lines.iter().map(|text| line(metadata.clone(), text));
            own.collect::<Vec<_>>()
        },
        |metadata| vec![line(metadata, "")],
    );
    frames(all.concat())
}

pub(super) fn logs(
    request: &Request<api::LogsRequest>,
) -> Result<Response<BoxStream<Data>>, Status> {
    up(request)?;
    match &*request.get_ref().id {
        "etcd" => Err(Status::not_found("no log of etcd")),
        _ => Ok(lines(
            request,
            &["started\n", "token abcdef.0123456789abcdef refused\n"],
        )),
    }
}

/// The logs of services, and other logs.
pub(super) fn logs_containers(
    request: &Request<()>,
) -> Result<Response<api::LogsContainersResponse>, Status> {
    up(request)?;
    answer!(
        *request,
        api::LogsContainersResponse,
        api::LogsContainer,
        |node, metadata| {
            let odd = if node == "evil" { "../../x" } else { "etcd" };
            let ids = ["apid", "audit", odd].map(str::to_owned).to_vec();
            api::LogsContainer { metadata, ids }
        }
    )
}

pub(super) fn dmesg(
    request: &Request<api::DmesgRequest>,
) -> Result<Response<BoxStream<Data>>, Status> {
    up(request)?;
    Ok(lines(
        request,
        &["kern: notice: [2001-09-09T01:46:40.0Z]: Linux"],
    ))
}

pub(super) fn events(
    request: &Request<api::EventsRequest>,
) -> Result<Response<BoxStream<api::Event>>, Status> {
    up(request)?;
    let event = |metadata: &Option<Metadata>, id: &str, kind: &str, value: &[u8]| api::Event {
        metadata: metadata.clone(),
        id: id.to_owned(),
        actor_id: ACTOR.into(),
        data: Some(prost_types::Any {
            type_url: format!("talos/runtime/machine.{kind}"),
            value: value.to_vec(),
        }),
    };
    let service = api::ServiceStateEvent {
        service: "udevd".into(),
        action: 3,
        message: "ready\u{1b}[2J".into(),
        health: None,
    };
    let service = service.encode_to_vec();
    let begun = |metadata| api::Event {
        metadata,
        ..Default::default()
    };
    let failed = api::SequenceEvent {
        sequence: "reset".into(),
        error: Some(Error {
            message: "vda is in use".into(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let failed = failed.encode_to_vec();
    let all = each(
        request,
        |node, metadata| {
            if node == "stuck" {
                return vec![event(&metadata, "id1", "SequenceEvent", &failed)];
            }
            let new = event(&metadata, "id1", "NewEvent", &[1, 2, 3]);
            let service = event(&metadata, "id2", "ServiceStateEvent", &service);
            vec![begun(metadata), new, service]
        },
        |metadata| vec![begun(metadata)],
    );
    Ok(frames(all.concat()))
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

pub(super) fn memory(request: &Request<()>) -> Result<Response<api::MemoryResponse>, Status> {
    up(request)?;
    answer!(*request, api::MemoryResponse, api::Memory, |_, metadata| {
        let info = api::MemInfo {
            memtotal: 512 << 10,
            memfree: 200 << 10,
            memavailable: 300 << 10,
            buffers: 12 << 10,
            cached: 100 << 10,
            shmem: 1 << 10,
            hugepagestotal: 3,
            ..Default::default()
        };
        api::Memory {
            metadata,
            meminfo: Some(info),
        }
    })
}

pub(super) fn mounts(request: &Request<()>) -> Result<Response<api::MountsResponse>, Status> {
    up(request)?;
    answer!(
        *request,
        api::MountsResponse,
        api::Mounts,
        |node, metadata| {
            let stat = |filesystem: &str, size, available, mounted_on: &str| api::MountStat {
                filesystem: filesystem.to_owned(),
                size,
                available,
                mounted_on: mounted_on.to_owned(),
            };
            // An invalid value: more is available than exists.
            let available = if node == "evil" {
                u64::MAX
            } else {
                2_500_000_000
            };
            api::Mounts {
                metadata,
                stats: vec![
                    stat("/dev/vda6", 10_000_000_000, available, "/var"),
                    stat("proc", 0, 0, "/proc"),
                ],
            }
        }
    )
}

pub(super) fn meta_write(
    request: &Request<api::MetaWriteRequest>,
) -> Result<Response<api::MetaWriteResponse>, Status> {
    up(request)?;
    if request.get_ref().value.len() > 20 {
        return Err(Status::invalid_argument("value: too long for META"));
    }
    answer!(
        *request,
        api::MetaWriteResponse,
        api::MetaWrite,
        |_, metadata| api::MetaWrite { metadata }
    )
}

pub(super) fn meta_delete(
    request: &Request<api::MetaDeleteRequest>,
) -> Result<Response<api::MetaDeleteResponse>, Status> {
    up(request)?;
    if request.get_ref().key != 12 {
        return Err(Status::not_found("key: META has no such value"));
    }
    answer!(
        *request,
        api::MetaDeleteResponse,
        api::MetaDelete,
        |_, metadata| api::MetaDelete { metadata }
    )
}

pub(super) fn service_restart(
    request: &Request<api::ServiceRestartRequest>,
) -> Result<Response<api::ServiceRestartResponse>, Status> {
    up(request)?;
    let id = request.get_ref().id.clone();
    if id == "apid" {
        return Err(Status::failed_precondition("service apid is not restarted"));
    }
    answer!(
        *request,
        api::ServiceRestartResponse,
        api::ServiceRestart,
        |_, metadata| api::ServiceRestart {
            metadata,
            resp: format!("Service {id:?} restarted"),
        }
    )
}
