//! Kinds known by name only: refused as not supported yet. Their fields are listed because a patch may be made for a
//! system that supports them.

use corten_yaml::table::{Field, Support};

use super::KindInfo;

macro_rules! known {
    ($( $name:ident $named:literal [ $( $field:literal $(. $flag:ident)? )* ] )*) => {
        /// Kinds that are known by name only.
        pub const KNOWN: &[KindInfo] = &[ $( KindInfo {
            name: stringify!($name),
            doc: "",
            named: $named,
            support: Support::Later,
            table: &[ $( Field::known($field) $(.$flag())? , )* ],
        }, )* ];
    };
}

known! {
    ExternalVolumeConfig true ["name" "filesystemType" "mount"]
    ContainerConfig true ["name" "image" "entrypoint" "args" "workingDir" "runAs" "environment".secret "mounts" "security" "network" "resources" "dependsOn"]
    ImageVerificationConfig false ["rules"]
    BGPInstanceConfig true ["name" "vrf" "localASN" "routerID" "routeSource" "advertise".replace "multipath" "maxPaths" "installRoutes" "importRoutes".replace "neighbors".replace]
    HCloudVIPConfig true ["name" "link" "apiToken".secret]
    SideroLinkConfig false ["apiUrl" "uniqueToken".secret]
    LVMLogicalVolumeConfig true ["name" "type" "mirrors" "stripes" "provisioning"]
    LVMVolumeGroupConfig true ["name" "provisioning"]
    RAIDArrayConfig true ["name" "level" "metadata" "provisioning"]
}
