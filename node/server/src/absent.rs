//! Methods that this version does not implement, and the feature each waits for. docs/api.md lists them.

const DEBUGGING: &str = "containers for debugging";
const SIGNATURES: &str = "the check of images' signatures";
const LOGICAL_VOLUMES: &str = "logical volumes";
const SOFTWARE_RAID: &str = "software RAID";

/// A method's path, and the missing feature.
pub(super) const ABSENT: &[(&str, &str)] = &[
    ("/machine.DebugService/ContainerRun", DEBUGGING),
    ("/machine.ImageService/Verify", SIGNATURES),
    ("/machine.LVMService/LogicalVolumeRemove", LOGICAL_VOLUMES),
    ("/machine.LVMService/VolumeGroupRemove", LOGICAL_VOLUMES),
    ("/machine.LVMService/PhysicalVolumeRemove", LOGICAL_VOLUMES),
    ("/machine.MDService/Destroy", SOFTWARE_RAID),
];

/// Error text for a method without an implementation.
pub(super) fn sentence(path: &str) -> String {
    let method = path.trim_start_matches('/');
    match ABSENT.iter().find(|(absent, _)| *absent == path) {
        Some((_, what)) => {
            format!("{method} needs {what}, which this version of the node does not have")
        }
        None => format!("this version of the node does not answer {method}"),
    }
}
