//! `machine.MachineService` of the fake nodes, except for etcd.

use std::sync::atomic::Ordering;

use corten_api::common::Data;
use corten_api::machine as api;
use corten_api::machine::machine_service_server::MachineService;
use tokio_stream::StreamExt as _;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming};

use super::files::chunks;
use super::{ACTOR, Fake, answer, etcd, files, names, runtime, services, system, up};

#[tonic::async_trait]
impl MachineService for Fake {
    async fn version(
        &self,
        request: Request<()>,
    ) -> Result<Response<api::VersionResponse>, Status> {
        system::version(&request)
    }

    async fn service_list(
        &self,
        request: Request<()>,
    ) -> Result<Response<api::ServiceListResponse>, Status> {
        system::service_list(&request)
    }

    async fn processes(
        &self,
        request: Request<()>,
    ) -> Result<Response<api::ProcessesResponse>, Status> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        if names(&request, "nodes").iter().any(|node| node == "silent") {
            std::future::pending::<()>().await;
        }
        system::processes(&request)
    }

    async fn logs(
        &self,
        request: Request<api::LogsRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        system::logs(&request)
    }

    async fn logs_containers(
        &self,
        request: Request<()>,
    ) -> Result<Response<api::LogsContainersResponse>, Status> {
        system::logs_containers(&request)
    }

    async fn dmesg(
        &self,
        request: Request<api::DmesgRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        system::dmesg(&request)
    }

    async fn events(
        &self,
        request: Request<api::EventsRequest>,
    ) -> Result<Response<BoxStream<api::Event>>, Status> {
        if names(&request, "nodes") == ["stuck"] {
            self.boots.fetch_add(1, Ordering::Relaxed);
        }
        system::events(&request)
    }

    async fn memory(&self, request: Request<()>) -> Result<Response<api::MemoryResponse>, Status> {
        system::memory(&request)
    }

    async fn disk_stats(
        &self,
        request: Request<()>,
    ) -> Result<Response<api::DiskStatsResponse>, Status> {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        answer!(
            request,
            api::DiskStatsResponse,
            api::DiskStats,
            |_, metadata| {
                let disk = |name: &str| api::DiskStat {
                    name: name.to_owned(),
                    write_sectors: 77 + 1_000_000 * u64::from(looks),
                    ..Default::default()
                };
                api::DiskStats {
                    metadata,
                    total: None,
                    devices: vec![disk("vda"), disk("vdb")],
                }
            }
        )
    }

    async fn mounts(&self, request: Request<()>) -> Result<Response<api::MountsResponse>, Status> {
        system::mounts(&request)
    }

    async fn meta_write(
        &self,
        request: Request<api::MetaWriteRequest>,
    ) -> Result<Response<api::MetaWriteResponse>, Status> {
        system::meta_write(&request)
    }

    async fn meta_delete(
        &self,
        request: Request<api::MetaDeleteRequest>,
    ) -> Result<Response<api::MetaDeleteResponse>, Status> {
        system::meta_delete(&request)
    }

    async fn service_restart(
        &self,
        request: Request<api::ServiceRestartRequest>,
    ) -> Result<Response<api::ServiceRestartResponse>, Status> {
        system::service_restart(&request)
    }

    async fn list(
        &self,
        request: Request<api::ListRequest>,
    ) -> Result<Response<BoxStream<api::FileInfo>>, Status> {
        files::list(&request)
    }

    async fn disk_usage(
        &self,
        request: Request<api::DiskUsageRequest>,
    ) -> Result<Response<BoxStream<api::DiskUsageInfo>>, Status> {
        files::disk_usage(&request)
    }

    async fn read(
        &self,
        request: Request<api::ReadRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        files::read(&request)
    }

    async fn copy(
        &self,
        request: Request<api::CopyRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        files::copy(&request)
    }

    async fn kubeconfig(&self, request: Request<()>) -> Result<Response<BoxStream<Data>>, Status> {
        files::kubeconfig(&request)
    }

    async fn packet_capture(
        &self,
        request: Request<api::PacketCaptureRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        files::packet_capture(&request)
    }

    async fn containers(
        &self,
        request: Request<api::ContainersRequest>,
    ) -> Result<Response<api::ContainersResponse>, Status> {
        runtime::containers(&request)
    }

    async fn stats(
        &self,
        request: Request<api::StatsRequest>,
    ) -> Result<Response<api::StatsResponse>, Status> {
        runtime::stats(&request)
    }

    async fn restart(
        &self,
        request: Request<api::RestartRequest>,
    ) -> Result<Response<api::RestartResponse>, Status> {
        if request.get_ref().id != "default/web:nginx" {
            return Err(Status::not_found("no such container"));
        }
        answer!(
            request,
            api::RestartResponse,
            api::Restart,
            |_, metadata| api::Restart { metadata }
        )
    }

    async fn netstat(
        &self,
        request: Request<api::NetstatRequest>,
    ) -> Result<Response<api::NetstatResponse>, Status> {
        runtime::netstat(&request)
    }

    async fn generate_client_configuration(
        &self,
        request: Request<api::GenerateClientConfigurationRequest>,
    ) -> Result<Response<api::GenerateClientConfigurationResponse>, Status> {
        runtime::generate_client_configuration(&request)
    }

    async fn apply_configuration(
        &self,
        request: Request<api::ApplyConfigurationRequest>,
    ) -> Result<Response<api::ApplyConfigurationResponse>, Status> {
        let node = up(&request)?;
        let asked = request.get_ref().clone();
        let text = String::from_utf8(asked.data).unwrap();
        if node == "strict" {
            return Err(Status::invalid_argument(
                "machine.type: it cannot be changed",
            ));
        }
        let shown: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("hostname:") || line.contains("type:"))
            .map(str::trim)
            .collect();
        answer!(
            request,
            api::ApplyConfigurationResponse,
            api::ApplyConfiguration,
            |_, metadata| api::ApplyConfiguration {
                metadata,
                mode_details: format!(
                    "mode {} dry run {}: {}",
                    asked.mode,
                    asked.dry_run,
                    shown.join(", ")
                ),
                ..Default::default()
            }
        )
    }

    async fn reboot(
        &self,
        request: Request<api::RebootRequest>,
    ) -> Result<Response<api::RebootResponse>, Status> {
        self.boots.fetch_add(1, Ordering::Relaxed);
        answer!(request, api::RebootResponse, api::Reboot, |_, metadata| {
            api::Reboot {
                metadata,
                ..Default::default()
            }
        })
    }

    async fn reset(
        &self,
        request: Request<api::ResetRequest>,
    ) -> Result<Response<api::ResetResponse>, Status> {
        let labels = request.get_ref().system_partitions_to_wipe.iter();
        if labels.clone().any(|spec| spec.label == "NONE") {
            return Err(Status::invalid_argument("there is no volume NONE"));
        }
        // A stuck node reboots after its events have been read.
        if names(&request, "nodes") != ["stuck"] {
            self.boots.fetch_add(1, Ordering::Relaxed);
        }
        answer!(request, api::ResetResponse, api::Reset, |_, metadata| {
            api::Reset {
                metadata,
                actor_id: ACTOR.to_owned(),
            }
        })
    }

    async fn upgrade(
        &self,
        request: Request<api::UpgradeRequest>,
    ) -> Result<Response<api::UpgradeResponse>, Status> {
        let image = request.get_ref().image.clone();
        answer!(
            request,
            api::UpgradeResponse,
            api::Upgrade,
            |_, metadata| api::Upgrade {
                metadata,
                ack: format!("upgrade to {image} accepted"),
                ..Default::default()
            }
        )
    }

    async fn bootstrap(
        &self,
        request: Request<api::BootstrapRequest>,
    ) -> Result<Response<api::BootstrapResponse>, Status> {
        if request.get_ref().recover_etcd {
            return answer!(
                request,
                api::BootstrapResponse,
                api::Bootstrap,
                |_, metadata| { api::Bootstrap { metadata } }
            );
        }
        Err(Status::already_exists("etcd data directory is not empty"))
    }

    async fn etcd_recover(
        &self,
        request: Request<Streaming<Data>>,
    ) -> Result<Response<api::EtcdRecoverResponse>, Status> {
        etcd::recover(request).await
    }

    async fn image_list(
        &self,
        request: Request<api::ImageListRequest>,
    ) -> Result<Response<BoxStream<api::ImageListResponse>>, Status> {
        services::images(&request)
    }

    async fn etcd_member_list(
        &self,
        request: Request<api::EtcdMemberListRequest>,
    ) -> Result<Response<api::EtcdMemberListResponse>, Status> {
        answer!(
            request,
            api::EtcdMemberListResponse,
            api::EtcdMembers,
            etcd::members
        )
    }

    async fn etcd_status(
        &self,
        request: Request<()>,
    ) -> Result<Response<api::EtcdStatusResponse>, Status> {
        answer!(
            request,
            api::EtcdStatusResponse,
            api::EtcdStatus,
            etcd::status
        )
    }

    async fn etcd_alarm_list(
        &self,
        request: Request<()>,
    ) -> Result<Response<api::EtcdAlarmListResponse>, Status> {
        answer!(
            request,
            api::EtcdAlarmListResponse,
            api::EtcdAlarm,
            etcd::alarms
        )
    }

    async fn etcd_remove_member_by_id(
        &self,
        request: Request<api::EtcdRemoveMemberByIdRequest>,
    ) -> Result<Response<api::EtcdRemoveMemberByIdResponse>, Status> {
        if request.get_ref().member_id != 0xabc {
            return Err(Status::not_found("no such member"));
        }
        answer!(
            request,
            api::EtcdRemoveMemberByIdResponse,
            api::EtcdRemoveMemberById,
            |_, metadata| api::EtcdRemoveMemberById { metadata }
        )
    }

    async fn etcd_forfeit_leadership(
        &self,
        request: Request<api::EtcdForfeitLeadershipRequest>,
    ) -> Result<Response<api::EtcdForfeitLeadershipResponse>, Status> {
        answer!(
            request,
            api::EtcdForfeitLeadershipResponse,
            api::EtcdForfeitLeadership,
            |_, metadata| api::EtcdForfeitLeadership {
                metadata,
                member: "node2".into(),
            }
        )
    }

    async fn etcd_downgrade_validate(
        &self,
        request: Request<api::EtcdDowngradeValidateRequest>,
    ) -> Result<Response<api::EtcdDowngradeValidateResponse>, Status> {
        answer!(
            request,
            api::EtcdDowngradeValidateResponse,
            api::EtcdDowngradeValidate,
            |_, metadata| api::EtcdDowngradeValidate {
                metadata,
                cluster_downgrade: Some(api::EtcdClusterDowngrade {
                    cluster_version: "3.6.0".into(),
                }),
            }
        )
    }

    async fn etcd_snapshot(
        &self,
        request: Request<api::EtcdSnapshotRequest>,
    ) -> Result<Response<BoxStream<Data>>, Status> {
        let mut bytes = vec![1; 1000];
        let sum = ring::digest::digest(&ring::digest::SHA256, &bytes);
        bytes.extend_from_slice(sum.as_ref());
        match &*up(&request)? {
            "evil" => bytes[0] = 2,
            "silent" => {
                let begun = chunks(&bytes).into_inner().chain(tokio_stream::pending());
                return Ok(Response::new(Box::pin(begun)));
            }
            _ => {}
        }
        Ok(chunks(&bytes))
    }
}
