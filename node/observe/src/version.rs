//! Version and platform of the node.

use corten_api::machine as api;
use corten_base::cmdline::Cmdline;
use corten_base::{os_release, proc};
use tonic::Status;

use crate::Paths;

/// The image's version and source commit, the platform and the architecture. `configured` says whether the node has a
/// config, and so checks roles.
///
/// # Errors
/// INTERNAL if the kernel's file is unreadable; the text names it.
pub fn version(paths: &Paths, configured: bool) -> Result<api::VersionResponse, Status> {
    let cmdline = Cmdline::parse(&proc::text(&paths.proc, "cmdline")?);
    let platform = cmdline.platform();
    let mode = match platform {
        "metal" => "metal",
        "container" => "container",
        _ => "cloud",
    };
    let version = api::Version {
        metadata: None,
        version: Some(api::VersionInfo {
            tag: corten_api::version_tag(&os_release::image_version()),
            sha: commit(&cmdline).to_owned(),
            os: "linux".to_owned(),
            arch: corten_api::ARCH.to_owned(),
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

/// The source commit, which `mkimage` writes into the image's command line.
fn commit(cmdline: &Cmdline) -> &str {
    let commit = cmdline.ours("commit").unwrap_or_default();
    let hash = commit.trim_end_matches("-dirty");
    let is_one = hash.len() <= 40 && hash.chars().all(|c| c.is_ascii_hexdigit());
    if is_one { commit } else { "" }
}

/// The kernel's host name.
///
/// # Errors
/// INTERNAL if the kernel's file is unreadable; the text names it.
pub fn hostname(paths: &Paths) -> Result<api::HostnameResponse, Status> {
    let name = proc::text(&paths.proc, "sys/kernel/hostname")?;
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
    fn platform_and_commit_come_from_the_command_line() {
        let directory = tempfile::tempdir().unwrap();
        let paths = Paths {
            proc: directory.path().to_owned(),
            ..Paths::default()
        };
        let of = |cmdline: &str| {
            std::fs::write(directory.path().join("cmdline"), cmdline).unwrap();
            let message = version(&paths, true).unwrap().messages.remove(0);
            let platform = message.platform.unwrap();
            (platform.name, platform.mode, message.version.unwrap().sha)
        };
        let is = |name: &str, mode: &str, sha: &str| (name.into(), mode.into(), sha.into());
        let aws = "corten.platform=metal talos.platform=aws corten.commit=0f3a-dirty";
        assert_eq!(of(aws), is("aws", "cloud", "0f3a-dirty"));
        assert_eq!(of("quiet corten.commit=main"), is("metal", "metal", ""));
    }
}
