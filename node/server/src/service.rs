//! The implemented methods; each delegates to the file of its family.

use std::fs::File;
use std::path::Path;

use corten_api::common::Data;
use corten_api::machine as api;
use corten_api::machine::machine_service_server::MachineService;
use corten_containerd::client::{Containerd, PODS};
use corten_observe::{
    capture, cpu, devices, dmesg, files, frequency, memory, mounts, netstat, stream, version,
};
use corten_types::runtime::LastStop;
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, Streaming, async_trait};

use super::forwarded::{Withheld, check_file, check_tree};
use super::machine::{Answer, Machine, asks_for_previous};
use super::{
    actions, apply, containers, etcd, events, images, lifecycle, logs, meta, operator, pod_logs,
    services,
};
use crate::node::Control;

#[async_trait]
impl MachineService for Machine {
    async fn version(&self, _: Request<()>) -> Answer<api::VersionResponse> {
        let configured = self.node.config().is_some();
        self.view(move |paths| version::version(paths, configured))
            .await
    }

    async fn hostname(&self, _: Request<()>) -> Answer<api::HostnameResponse> {
        self.view(version::hostname).await
    }

    async fn memory(&self, _: Request<()>) -> Answer<api::MemoryResponse> {
        self.view(memory::memory).await
    }

    async fn load_avg(&self, _: Request<()>) -> Answer<api::LoadAvgResponse> {
        self.view(cpu::load).await
    }

    async fn system_stat(&self, _: Request<()>) -> Answer<api::SystemStatResponse> {
        self.view(cpu::system_stat).await
    }

    async fn cpu_info(&self, _: Request<()>) -> Answer<api::CpuInfoResponse> {
        self.view(cpu::info).await
    }

    async fn cpu_freq_stats(&self, _: Request<()>) -> Answer<api::CpuFreqStatsResponse> {
        self.view(|paths| Ok(frequency::frequencies(paths))).await
    }

    async fn network_device_stats(
        &self,
        _: Request<()>,
    ) -> Answer<api::NetworkDeviceStatsResponse> {
        self.view(devices::network).await
    }

    async fn disk_stats(&self, _: Request<()>) -> Answer<api::DiskStatsResponse> {
        self.view(devices::disks).await
    }

    async fn mounts(&self, _: Request<()>) -> Answer<api::MountsResponse> {
        let table = self.view(mounts::table).await?.into_inner();
        Ok(Response::new(self.mounts.measured(table).await))
    }

    async fn processes(&self, _: Request<()>) -> Answer<api::ProcessesResponse> {
        let processes = self.processes.list(&self.paths.machine).await;
        processes.map(Response::new)
    }

    async fn service_list(&self, _: Request<()>) -> Answer<api::ServiceListResponse> {
        Ok(Response::new(services::list(&self.node.services())))
    }

    async fn service_start(
        &self,
        request: Request<api::ServiceStartRequest>,
    ) -> Answer<api::ServiceStartResponse> {
        let id = request.into_inner().id;
        let resp = services::control(self.node.as_ref(), &id, Control::Start).await?;
        let metadata = None;
        let messages = vec![api::ServiceStart { metadata, resp }];
        Ok(Response::new(api::ServiceStartResponse { messages }))
    }

    async fn service_stop(
        &self,
        request: Request<api::ServiceStopRequest>,
    ) -> Answer<api::ServiceStopResponse> {
        let id = request.into_inner().id;
        let resp = services::control(self.node.as_ref(), &id, Control::Stop).await?;
        let metadata = None;
        let messages = vec![api::ServiceStop { metadata, resp }];
        Ok(Response::new(api::ServiceStopResponse { messages }))
    }

    async fn service_restart(
        &self,
        request: Request<api::ServiceRestartRequest>,
    ) -> Answer<api::ServiceRestartResponse> {
        let id = request.into_inner().id;
        let resp = services::control(self.node.as_ref(), &id, Control::Restart).await?;
        let metadata = None;
        let messages = vec![api::ServiceRestart { metadata, resp }];
        Ok(Response::new(api::ServiceRestartResponse { messages }))
    }

    async fn dmesg(&self, request: Request<api::DmesgRequest>) -> Answer<BoxStream<Data>> {
        let previous = asks_for_previous(&request);
        let wanted = request.into_inner();
        let lines = if previous {
            let last = self.node.store().get_as::<LastStop>(LastStop::ID);
            logs::previous_dmesg(&self.paths, &wanted, last.as_deref()).await
        } else {
            dmesg::dmesg(&self.paths.machine, &wanted).await
        };
        lines.map(Response::new)
    }

    async fn events(&self, request: Request<api::EventsRequest>) -> Answer<BoxStream<api::Event>> {
        events::stream(self.node.events(), &request.into_inner()).map(Response::new)
    }

    async fn logs(&self, request: Request<api::LogsRequest>) -> Answer<BoxStream<Data>> {
        let previous = asks_for_previous(&request);
        if logs::is_of_pod(request.get_ref()) {
            let place = self.streams.enter(request.extensions())?;
            let api::LogsRequest {
                id,
                tail_lines,
                follow,
                ..
            } = request.into_inner();
            let containerd = Containerd::new(&self.paths.containerd);
            let containers = containerd.containers(PODS).await?;
            let path = pod_logs::path_of(pod_logs::DIRECTORY.as_ref(), &containers, &id)?;
            let send = move |sink: &_| files::tail(&path, tail_lines, follow, sink);
            return stream::stream(place, send).map(Response::new);
        }
        let services = self.node.services();
        logs::logs(&self.paths, &services, request.into_inner(), previous)
            .await
            .map(Response::new)
    }

    async fn logs_containers(&self, _: Request<()>) -> Answer<api::LogsContainersResponse> {
        logs::ids(&self.paths).await.map(Response::new)
    }

    async fn containers(
        &self,
        request: Request<api::ContainersRequest>,
    ) -> Answer<api::ContainersResponse> {
        let answer = containers::containers(&self.paths, request.into_inner()).await;
        answer.map(Response::new)
    }

    async fn stats(&self, request: Request<api::StatsRequest>) -> Answer<api::StatsResponse> {
        let (namespace, running) = containers::running(&self.paths, request.into_inner()).await?;
        self.view(move |paths| Ok(containers::stats(paths, namespace, running)))
            .await
    }

    async fn restart(&self, request: Request<api::RestartRequest>) -> Answer<api::RestartResponse> {
        let answer = containers::restart(&self.paths, request.into_inner()).await;
        answer.map(Response::new)
    }

    async fn image_list(
        &self,
        request: Request<api::ImageListRequest>,
    ) -> Answer<BoxStream<api::ImageListResponse>> {
        let namespace = request.into_inner().namespace();
        let answer = images::list(&self.paths, namespace).await;
        answer.map(Response::new)
    }

    async fn image_pull(
        &self,
        request: Request<api::ImagePullRequest>,
    ) -> Answer<api::ImagePullResponse> {
        let answer = images::pull(&self.paths, &*self.node, request.into_inner()).await;
        answer.map(Response::new)
    }

    async fn netstat(&self, request: Request<api::NetstatRequest>) -> Answer<api::NetstatResponse> {
        let request = request.into_inner();
        self.view(move |paths| netstat::netstat(paths, &request))
            .await
    }

    async fn packet_capture(
        &self,
        request: Request<api::PacketCaptureRequest>,
    ) -> Answer<BoxStream<Data>> {
        let place = self.streams.enter(request.extensions())?;
        let request = request.into_inner();
        let paths = self.paths.machine.clone();
        let send = move |sink: &_| capture::capture(&paths, &request, sink);
        stream::stream(place, send).map(Response::new)
    }

    async fn list(&self, request: Request<api::ListRequest>) -> Answer<BoxStream<api::FileInfo>> {
        let place = self.streams.enter(request.extensions())?;
        let request = request.into_inner();
        stream::stream(place, move |sink| files::list(&request, sink)).map(Response::new)
    }

    async fn disk_usage(
        &self,
        request: Request<api::DiskUsageRequest>,
    ) -> Answer<BoxStream<api::DiskUsageInfo>> {
        let place = self.streams.enter(request.extensions())?;
        let request = request.into_inner();
        stream::stream(place, move |sink| files::usage(&request, sink)).map(Response::new)
    }

    async fn read(&self, request: Request<api::ReadRequest>) -> Answer<BoxStream<Data>> {
        let place = self.streams.enter(request.extensions())?;
        let withheld = Withheld::is_with(request.extensions());
        let request = request.into_inner();
        let check = move |file: &File| if withheld { check_file(file) } else { Ok(()) };
        stream::stream(place, move |sink| files::read(&request, check, sink)).map(Response::new)
    }

    async fn copy(&self, request: Request<api::CopyRequest>) -> Answer<BoxStream<Data>> {
        let place = self.streams.enter(request.extensions())?;
        let withheld = Withheld::is_with(request.extensions());
        let request = request.into_inner();
        let check = move |root: &Path| if withheld { check_tree(root) } else { Ok(()) };
        stream::stream(place, move |sink| files::copy(&request, check, sink)).map(Response::new)
    }

    async fn apply_configuration(
        &self,
        request: Request<api::ApplyConfigurationRequest>,
    ) -> Answer<api::ApplyConfigurationResponse> {
        apply::apply(self, request).await.map(Response::new)
    }

    async fn meta_write(
        &self,
        request: Request<api::MetaWriteRequest>,
    ) -> Answer<api::MetaWriteResponse> {
        meta::write(self.node.clone(), request)
            .await
            .map(Response::new)
    }

    async fn meta_delete(
        &self,
        request: Request<api::MetaDeleteRequest>,
    ) -> Answer<api::MetaDeleteResponse> {
        meta::delete(self.node.clone(), request)
            .await
            .map(Response::new)
    }

    async fn reboot(&self, request: Request<api::RebootRequest>) -> Answer<api::RebootResponse> {
        let who = actions::who(&request);
        let mode = request.into_inner().mode();
        let node = self.node.clone();
        let reboot = async move { actions::reboot(node.as_ref(), &who, mode).await };
        actions::to_its_end(reboot).await.map(Response::new)
    }

    async fn shutdown(
        &self,
        request: Request<api::ShutdownRequest>,
    ) -> Answer<api::ShutdownResponse> {
        let (who, forced) = (actions::who(&request), request.get_ref().force);
        let node = self.node.clone();
        let shutdown = async move { actions::shutdown(node.as_ref(), &who, forced).await };
        actions::to_its_end(shutdown).await.map(Response::new)
    }

    async fn reset(&self, request: Request<api::ResetRequest>) -> Answer<api::ResetResponse> {
        let who = actions::who(&request);
        let reset = actions::reset(self.node.as_ref(), &who, &request.into_inner()).await;
        reset.map(Response::new)
    }

    async fn upgrade(&self, request: Request<api::UpgradeRequest>) -> Answer<api::UpgradeResponse> {
        let who = actions::who(&request);
        let upgraded = lifecycle::upgrade(self.node.clone(), who, request.into_inner()).await;
        upgraded.map(Response::new)
    }

    async fn rollback(
        &self,
        request: Request<api::RollbackRequest>,
    ) -> Answer<api::RollbackResponse> {
        let who = actions::who(&request);
        let node = self.node.clone();
        let rollback = async move { lifecycle::roll_back(node.as_ref(), &who).await };
        actions::to_its_end(rollback).await.map(Response::new)
    }

    async fn bootstrap(
        &self,
        request: Request<api::BootstrapRequest>,
    ) -> Answer<api::BootstrapResponse> {
        let (request, etcd) = (request.into_inner(), &self.paths.etcd);
        let patience = operator::TIME_PATIENCE;
        operator::bootstrap(self.node.as_ref(), &request, etcd, patience)
            .await
            .map(Response::new)
    }

    async fn etcd_member_list(
        &self,
        request: Request<api::EtcdMemberListRequest>,
    ) -> Answer<api::EtcdMemberListResponse> {
        let request = request.into_inner();
        if request.query_local {
            return self
                .etcd(async |etcd| etcd::local_members(&etcd).await)
                .await;
        }
        self.any_etcd(|etcd| async move { etcd::members(&etcd).await })
            .await
    }

    async fn etcd_remove_member_by_id(
        &self,
        request: Request<api::EtcdRemoveMemberByIdRequest>,
    ) -> Answer<api::EtcdRemoveMemberByIdResponse> {
        let id = request.into_inner().member_id;
        self.any_etcd(|etcd| async move { etcd::remove(&etcd, id).await })
            .await
    }

    async fn etcd_leave_cluster(
        &self,
        _: Request<api::EtcdLeaveClusterRequest>,
    ) -> Answer<api::EtcdLeaveClusterResponse> {
        etcd::leave(self.node.clone(), &self.paths)
            .await
            .map(Response::new)
    }

    async fn etcd_forfeit_leadership(
        &self,
        _: Request<api::EtcdForfeitLeadershipRequest>,
    ) -> Answer<api::EtcdForfeitLeadershipResponse> {
        self.etcd(async |etcd| etcd::forfeit(&etcd).await).await
    }

    async fn etcd_recover(
        &self,
        parts: Request<Streaming<Data>>,
    ) -> Answer<api::EtcdRecoverResponse> {
        etcd::keep_snapshot(&self.paths.snapshot(), parts.into_inner()).await?;
        let messages = vec![api::EtcdRecover { metadata: None }];
        Ok(Response::new(api::EtcdRecoverResponse { messages }))
    }

    async fn etcd_snapshot(&self, _: Request<api::EtcdSnapshotRequest>) -> Answer<BoxStream<Data>> {
        self.etcd(async |etcd| Ok(etcd::snapshot(&etcd))).await
    }

    async fn etcd_alarm_list(&self, _: Request<()>) -> Answer<api::EtcdAlarmListResponse> {
        self.etcd(async |etcd| etcd::alarms(&etcd).await).await
    }

    async fn etcd_alarm_disarm(&self, _: Request<()>) -> Answer<api::EtcdAlarmDisarmResponse> {
        self.etcd(async |etcd| etcd::disarm(&etcd).await).await
    }

    async fn etcd_defragment(&self, _: Request<()>) -> Answer<api::EtcdDefragmentResponse> {
        self.etcd(async |etcd| etcd::defragment(&etcd).await).await
    }

    async fn etcd_status(&self, _: Request<()>) -> Answer<api::EtcdStatusResponse> {
        self.etcd(async |etcd| etcd::status(&etcd).await).await
    }

    async fn etcd_downgrade_validate(
        &self,
        request: Request<api::EtcdDowngradeValidateRequest>,
    ) -> Answer<api::EtcdDowngradeValidateResponse> {
        let version = request.into_inner().version;
        self.etcd(async |etcd| etcd::validate_downgrade(&etcd, &version).await)
            .await
    }

    async fn etcd_downgrade_enable(
        &self,
        request: Request<api::EtcdDowngradeEnableRequest>,
    ) -> Answer<api::EtcdDowngradeEnableResponse> {
        let version = request.into_inner().version;
        self.etcd(async |etcd| etcd::enable_downgrade(&etcd, &version).await)
            .await
    }

    async fn etcd_downgrade_cancel(
        &self,
        _: Request<()>,
    ) -> Answer<api::EtcdDowngradeCancelResponse> {
        self.etcd(async |etcd| etcd::cancel_downgrade(&etcd).await)
            .await
    }

    async fn kubeconfig(&self, _: Request<()>) -> Answer<BoxStream<Data>> {
        let text = operator::kubeconfig(self.node.as_ref())?;
        let archive = files::archive_of("kubeconfig", &text);
        let bytes = archive.map_err(|error| Status::internal(error.to_string()))?;
        let metadata = None;
        let whole = futures_util::stream::iter([Ok(Data { metadata, bytes })]);
        Ok(Response::new(Box::pin(whole)))
    }

    async fn generate_client_configuration(
        &self,
        request: Request<api::GenerateClientConfigurationRequest>,
    ) -> Answer<api::GenerateClientConfigurationResponse> {
        operator::client_config(self.node.as_ref(), &request.into_inner()).map(Response::new)
    }
}
