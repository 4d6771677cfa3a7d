//! Settings of the control plane's components.

use std::collections::BTreeMap;

use corten_config::Document;
use corten_kubernetes::etcd::CLIENT_PORT;
use corten_kubernetes::pods::{Program, programs, volume_name};
use corten_kubernetes::{ControlPlane, Extra, Settings};
use corten_resources::controller::{Context, Failure};
use corten_resources::{Draft, Spec};
use corten_types::kubernetes_components::{
    ApiServerConfig, ControllerManagerConfig, ExtraVolume, FINAL, Resources, SchedulerConfig,
};
use serde_json::json;

use super::args;

/// Version of each component's settings, by the name of its pod.
pub(crate) type Versions = BTreeMap<&'static str, String>;

/// Shows the settings of a config's components, or none, and returns their versions.
pub(crate) fn show(context: &mut Context, config: Option<&Document>) -> Result<Versions, Failure> {
    context.start_outputs();
    let mut versions = Versions::new();
    let settings = config.and_then(|config| Settings::of(config).ok());
    let own = config.and_then(|config| ControlPlane::of(config).ok());
    if let (Some(config), Some(settings), Some(own)) = (config, settings, own) {
        let [server, manager, scheduler] = programs(&settings, &own);
        let spec = api_server(config, &settings, &own, &server);
        let set = |spec: &mut ApiServerConfig, args| spec.args = args;
        versions.insert(server.id, put(context, &server, spec, set)?);
        let spec = controller_manager(config, &settings, &own, &manager);
        let set = |spec: &mut ControllerManagerConfig, args| spec.args = args;
        versions.insert(manager.id, put(context, &manager, spec, set)?);
        let set = |spec: &mut SchedulerConfig, args| spec.args = args;
        let spec = kube_scheduler(&own, &scheduler);
        versions.insert(scheduler.id, put(context, &scheduler, spec, set)?);
    }
    context.remove_others::<ApiServerConfig>()?;
    context.remove_others::<ControllerManagerConfig>()?;
    context.remove_others::<SchedulerConfig>()?;
    Ok(versions)
}

/// Writes a component's settings, and the same with its command line. Returns the version of the former.
fn put<S: Spec>(
    context: &mut Context,
    program: &Program,
    spec: S,
    set_args: fn(&mut S, Vec<String>),
) -> Result<String, Failure> {
    let mut whole = spec.clone();
    if !program.extra.is_disabled {
        set_args(&mut whole, program.command.clone());
    }
    context.put(Draft::new(&format!("{FINAL}{}", program.id), whole))?;
    let written = context.put(Draft::new(program.id, spec))?;
    Ok(written.metadata.version.to_string())
}

/// Whether a cloud controller manager initializes the nodes, in the form of Kubernetes' argument.
fn cloud_provider(config: &Document) -> String {
    let provider = config.cluster.external_cloud_provider.as_ref();
    let is_external = provider.is_some_and(|provider| provider.enabled);
    if is_external { "external" } else { "" }.to_owned()
}

fn volumes(extra: &Extra) -> Vec<ExtraVolume> {
    let volumes = extra.volumes.iter().enumerate();
    let volumes = volumes.map(|(number, volume)| ExtraVolume {
        name: volume_name(number),
        host_path: volume.host_path.to_string(),
        mount_path: volume.mount_path.to_string(),
        read_only: volume.readonly,
    });
    volumes.collect()
}

fn environment(extra: &Extra) -> BTreeMap<String, String> {
    extra.env.iter().cloned().collect()
}

/// Requests and limits.
pub(super) fn resources(own: &corten_manifests::Resources) -> Resources {
    Resources {
        requests: own.requests.clone(),
        limits: own.limits.clone(),
    }
}

fn api_server(
    config: &Document,
    settings: &Settings,
    own: &ControlPlane,
    program: &Program,
) -> ApiServerConfig {
    let has_file = |line: &String| line.starts_with("--authentication-config=");
    ApiServerConfig {
        image: program.image.clone(),
        cloud_provider: cloud_provider(config),
        control_plane_endpoint: settings.endpoint.clone(),
        etcd_servers: vec![format!("https://127.0.0.1:{CLIENT_PORT}")],
        local_port: settings.api_port,
        service_cidrs: settings.services.iter().map(ToString::to_string).collect(),
        extra_args: args(&program.extra.args),
        args: Vec::new(),
        extra_volumes: volumes(&program.extra),
        environment_variables: environment(&program.extra),
        advertised_address: if own.advertises { "$(POD_IP)" } else { "" }.to_owned(),
        resources: resources(&program.resources),
        startup_probes_enabled: own.has_probes,
        use_authentication_config: program.command.iter().any(has_file),
    }
}

fn controller_manager(
    config: &Document,
    settings: &Settings,
    own: &ControlPlane,
    program: &Program,
) -> ControllerManagerConfig {
    let (v4, v6) = own.node_masks;
    ControllerManagerConfig {
        enabled: !program.extra.is_disabled,
        image: program.image.clone(),
        cloud_provider: cloud_provider(config),
        pod_cidrs: settings.pods.iter().map(ToString::to_string).collect(),
        service_cidrs: settings.services.iter().map(ToString::to_string).collect(),
        extra_args: args(&program.extra.args),
        args: Vec::new(),
        extra_volumes: volumes(&program.extra),
        environment_variables: environment(&program.extra),
        resources: resources(&program.resources),
        node_mask_v4: v4.unwrap_or_default(),
        node_mask_v6: v6.unwrap_or_default(),
    }
}

fn kube_scheduler(own: &ControlPlane, program: &Program) -> SchedulerConfig {
    SchedulerConfig {
        enabled: !program.extra.is_disabled,
        image: program.image.clone(),
        extra_args: args(&program.extra.args),
        args: Vec::new(),
        config: own.scheduler_config.clone().unwrap_or_else(|| json!({})),
        extra_volumes: volumes(&program.extra),
        environment_variables: environment(&program.extra),
        resources: resources(&program.resources),
    }
}
