//! Feature gates in the machine config that a later release of Kubernetes no longer knows: its programs do not start with
//! them.

use corten_config::Document;
use corten_config::kinds::{
    KubeAPIServerConfig, KubeControllerManagerConfig, KubeProxyConfig, KubeSchedulerConfig,
    KubeletConfig,
};

use super::component::Component;
use super::version::Version;

/// Gates of 1.35 that the source of 1.36 does not define.
const GONE_IN_1_36: [&str; 9] = [
    "CSIMigrationPortworx",
    "HonorPVReclaimPolicy",
    "InPlacePodVerticalScalingAllocatedStatus",
    "InTreePluginPortworxUnregister",
    "MemoryManager",
    "ServiceTrafficDistribution",
    "StructuredAuthorizationConfiguration",
    "TopologyAwareHints",
    "WatchFromStorageWithoutResourceVersion",
];

/// Gates of 1.36 that the source of 1.37 does not define.
const GONE_IN_1_37: [&str; 25] = [
    "APIServerTracing",
    "AnonymousAuthConfigurableEndpoints",
    "AnyVolumeDataSource",
    "AuthorizeNodeWithSelectors",
    "AuthorizeWithSelectors",
    "BtreeWatchCache",
    "ConsistentListFromCache",
    "GangScheduling",
    "JobBackoffLimitPerIndex",
    "JobPodReplacementPolicy",
    "JobSuccessPolicy",
    "LogarithmicScaleDown",
    "OrderedNamespaceDeletion",
    "PodLifecycleSleepAction",
    "PodLifecycleSleepActionAllowZero",
    "PreventStaticPodAPIReferences",
    "RelaxedDNSSearchValidation",
    "ResilientWatchCacheInitialization",
    "RetryGenerateName",
    "SchedulerQueueingHints",
    "SidecarContainers",
    "StreamingCollectionEncodingToJSON",
    "StreamingCollectionEncodingToProtobuf",
    "StructuredAuthenticationConfiguration",
    "WorkloadAwarePreemption",
];

/// The feature gates that the config sets for a component.
pub(super) fn used(component: Component, document: &Document) -> Vec<String> {
    let cluster = &document.cluster;
    let mut config = None;
    let arguments = match component {
        Component::ApiServer => document
            .all::<KubeAPIServerConfig>()
            .next()
            .map_or(&cluster.api_server.extra_args, |own| &own.extra_args),
        Component::ControllerManager => document
            .all::<KubeControllerManagerConfig>()
            .next()
            .map_or(&cluster.controller_manager.extra_args, |own| {
                &own.extra_args
            }),
        Component::Scheduler => document
            .all::<KubeSchedulerConfig>()
            .next()
            .map_or(&cluster.scheduler.extra_args, |own| &own.extra_args),
        Component::Proxy => document
            .all::<KubeProxyConfig>()
            .next()
            .map_or(&cluster.proxy.extra_args, |own| &own.extra_args),
        Component::Kubelet => match document.all::<KubeletConfig>().next() {
            Some(own) => {
                config = own.config.as_ref();
                &own.extra_args
            }
            None => {
                let kubelet = &document.machine.kubelet;
                config = kubelet.extra_config.as_ref();
                &kubelet.extra_args
            }
        },
    };
    let given = arguments.0.get("feature-gates").into_iter().flatten();
    let given = given.flat_map(|gates| gates.split(','));
    let name = |gate: &str| gate.split('=').next().unwrap_or_default().trim().to_owned();
    let mut used: Vec<String> = given.map(name).filter(|gate| !gate.is_empty()).collect();
    let config = config.map(|config| config.json());
    let of_config = config
        .as_ref()
        .and_then(|config| config.get("featureGates")?.as_object());
    used.extend(
        of_config
            .into_iter()
            .flat_map(|gates| gates.keys().cloned()),
    );
    used
}

/// Whether this release of Kubernetes no longer knows the gate.
pub(super) fn is_gone(gate: &str, release: &Version) -> bool {
    let gone = |since, gates: &[&str]| release.release() >= since && gates.contains(&gate);
    gone((1, 36), &GONE_IN_1_36) || gone((1, 37), &GONE_IN_1_37)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upgrade_k8s::component::tests::{config, document};

    #[test]
    fn gates_are_found_in_both_forms_of_the_config() {
        let kubelet = "  kubelet: {extraArgs: {feature-gates: 'A=true,B=false'}, extraConfig: {featureGates: {C: true}}}\n";
        let server = "  apiServer: {extraArgs: {feature-gates: [D=true, 'E=true, F=true']}}\n";
        let old = document(&config("controlplane", kubelet, server));
        let new = config("controlplane", "", "")
            + "---\napiVersion: v1alpha1\nkind: KubeletConfig\nimage: r/kubelet:v1\n\
               extraArgs: {feature-gates: 'A=true,B=false'}\nconfig: {featureGates: {C: true}}\n\
               ---\napiVersion: v1alpha1\nkind: KubeAPIServerConfig\nimage: r/kube-apiserver:v1\n\
               extraArgs: {feature-gates: [D=true, 'E=true, F=true']}\n";
        for document in [old, document(&new)] {
            assert_eq!(used(Component::Kubelet, &document), ["A", "B", "C"]);
            assert_eq!(used(Component::ApiServer, &document), ["D", "E", "F"]);
            assert!(used(Component::Scheduler, &document).is_empty());
        }
    }

    #[test]
    fn gate_is_gone_from_its_release_on() {
        let is_gone = |gate, release| is_gone(gate, &Version::parse(release).unwrap());
        assert!(is_gone("MemoryManager", "1.36.0") && is_gone("MemoryManager", "1.37.2"));
        assert!(!is_gone("SidecarContainers", "1.36.3") && is_gone("SidecarContainers", "1.37.0"));
        assert!(!is_gone("InPlacePodVerticalScaling", "1.37.2"));
    }
}
