//! What the node is.

use corten_api::machine as api;
use tonic::Status;

use super::{Paths, procfile};

pub(super) fn version(paths: &Paths, configured: bool) -> Result<api::VersionResponse, Status> {
    let cmdline = procfile::text(&paths.proc, "cmdline")?;
    let platform = platform(&cmdline);
    let mode = match platform {
        "metal" => "metal",
        "container" => "container",
        _ => "cloud",
    };
    let version = api::Version {
        metadata: None,
        version: Some(api::VersionInfo {
            tag: corten_api::version_tag(),
            os: "linux".to_owned(),
            arch: architecture().to_owned(),
            ..Default::default()
        }),
        platform: Some(api::PlatformInfo {
            name: platform.to_owned(),
            mode: mode.to_owned(),
        }),
        features: Some(api::FeaturesInfo { rbac: configured }),
    };
    Ok(api::VersionResponse {
        messages: vec![version],
    })
}

/// The platform named on the kernel command line; ours before the alias.
fn platform(cmdline: &str) -> &str {
    let named = |key: &str| {
        cmdline
            .split_whitespace()
            .find_map(|word| word.strip_prefix(key))
    };
    named("corten.platform=")
        .or_else(|| named("talos.platform="))
        .unwrap_or("metal")
}

/// The architecture's name as clients compare it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) fn hostname(paths: &Paths) -> Result<api::HostnameResponse, Status> {
    let name = procfile::text(&paths.proc, "sys/kernel/hostname")?;
    let hostname = api::Hostname {
        metadata: None,
        hostname: name.trim().to_owned(),
    };
    Ok(api::HostnameResponse {
        messages: vec![hostname],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platform_comes_from_the_command_line() {
        assert_eq!(
            platform("a corten.platform=qemu talos.platform=aws"),
            "qemu"
        );
        assert_eq!(platform("talos.platform=aws"), "aws");
        assert_eq!(platform("quiet"), "metal");
    }
}
