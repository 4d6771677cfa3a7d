//! The platforms an image can be for, one line each: the image format and the kernel parameters.

use std::fmt;
use std::str::FromStr;

use corten_steps::arch::Arch;
use serde::{Deserialize, Serialize};

use crate::output::Output;

/// The facts about a platform.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// Name, as in `corten.platform`.
    name: &'static str,
    /// The image format that it imports.
    output: Output,
    /// The serial port that it shows, if it is not the first one of a PC.
    console: Option<&'static str>,
    /// Other kernel parameters.
    arguments: &'static [&'static str],
}

const fn row(name: &'static str, output: Output) -> Row {
    Row {
        name,
        output,
        console: None,
        arguments: &[],
    }
}

static ROWS: &[Row] = &[
    row("akamai", Output::Raw),
    row("alibabacloud", Output::Qcow2),
    Row {
        // A slow volume is not a broken one (Amazon: "NVMe I/O operation timeout").
        arguments: &["nvme_core.io_timeout=4294967295"],
        ..row("aws", Output::Raw)
    },
    row("azure", Output::Vhd),
    row("cloudstack", Output::Qcow2),
    row("digital-ocean", Output::Qcow2),
    Row {
        console: Some("ttyS1,115200n8"),
        ..row("equinixMetal", Output::Pxe)
    },
    row("exoscale", Output::Qcow2),
    row("gcp", Output::Gcp),
    row("hcloud", Output::Raw),
    row("metal", Output::Raw),
    row("nocloud", Output::Qcow2),
    row("opennebula", Output::Qcow2),
    row("openstack", Output::Qcow2),
    row("oracle", Output::Qcow2),
    row("scaleway", Output::Qcow2),
    row("upcloud", Output::Raw),
    row("vmware", Output::Ova),
    row("vultr", Output::Raw),
];

/// The platform an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Platform(&'static Row);

impl Platform {
    /// Bare metal: the default.
    pub const METAL: Self = Self(&row("metal", Output::Raw));

    /// The name in `corten.platform`, in flags and profiles.
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// The image format that it imports; a VMDK where the architecture has no OVA.
    pub fn output(self, arch: Arch) -> Output {
        match self.0.output {
            Output::Ova if arch.names().vmware_guest.is_none() => Output::Vmdk,
            output => output,
        }
    }

    /// Its kernel parameters. `/dev/console` is the last console.
    pub fn arguments(self, arch: Arch) -> Vec<String> {
        let console = self.0.console.filter(|_| arch == Arch::X86_64);
        let console = console.unwrap_or(arch.names().console);
        let mut arguments = vec![
            "console=tty0".to_owned(),
            format!("console={console}"),
            format!("corten.platform={}", self.0.name),
        ];
        arguments.extend(self.0.arguments.iter().map(|one| (*one).to_owned()));
        arguments
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = ROWS.iter().find(|row| row.name == text);
        found.map(Self).ok_or_else(|| {
            let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            format!("unknown platform; use one of {}", known.join(", "))
        })
    }
}

impl TryFrom<String> for Platform {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Platform> for String {
    fn from(platform: Platform) -> String {
        platform.name().to_owned()
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_platform_of_the_node_has_an_image() {
        for platform in corten_platform::PLATFORMS {
            // The former name of equinixMetal, which has no image of its own.
            if platform.name != "packet" {
                platform.name.parse::<Platform>().unwrap();
            }
        }
        let error = "cloud9".parse::<Platform>().unwrap_err();
        assert!(
            error.contains("use one of akamai, alibabacloud, aws"),
            "{error}"
        );
    }

    #[test]
    fn platform_determines_image_format_and_kernel_parameters() {
        let of = |name: &str| name.parse::<Platform>().unwrap();
        assert_eq!(of("azure").output(Arch::X86_64), Output::Vhd);
        assert_eq!(of("vmware").output(Arch::X86_64), Output::Ova);
        assert_eq!(of("vmware").output(Arch::Arm64), Output::Vmdk);
        assert_eq!(
            of("aws").arguments(Arch::Arm64),
            [
                "console=tty0",
                "console=ttyAMA0,115200n8",
                "corten.platform=aws",
                "nvme_core.io_timeout=4294967295"
            ]
        );
        let metal = of("equinixMetal").arguments(Arch::X86_64);
        assert_eq!(metal[1], "console=ttyS1,115200n8");
        assert_eq!(
            of("equinixMetal").arguments(Arch::Arm64)[1],
            "console=ttyAMA0,115200n8"
        );
    }
}
