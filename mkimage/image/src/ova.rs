//! OVA: an OVF description (DMTF DSP0243), its manifest, and the disk as VMDK, in one tar.

use std::io::Write as _;
use std::path::Path;

use corten_steps::arch::Arch;
use corten_steps::error::{Failure, Result};

use super::tarball::Tarball;
use super::{Release, checksums, output};

/// Resources of a node that runs pods; an importer may change both.
const CPUS: u32 = 2;
const MEMORY_MIB: u32 = 4096;

/// VMware's name of a guest of `arch`; an error if the architecture has no OVA.
pub fn guest(arch: Arch) -> Result<&'static str> {
    arch.names().vmware_guest.ok_or_else(|| {
        Failure::new(
            format!("there is no OVA for {arch}"),
            "use vmdk, the disk alone",
        )
    })
}

/// Writes to `out` the OVA of a disk. `vmdk` is [`super::vmdk::build`]'s output for the disk image
/// `raw`.
pub fn build(out: &Path, release: &Release, raw: &Path, vmdk: &Path) -> Result<()> {
    let guest = guest(release.arch)?;
    let stem = release.stem();
    let (ovf_name, vmdk_name) = (format!("{stem}.ovf"), format!("{stem}.vmdk"));
    let size = output::size_of(vmdk)?;
    let ovf = description(release, guest, &vmdk_name, size, output::size_of(raw)?);
    let manifest = format!(
        "SHA256({ovf_name})= {}\nSHA256({vmdk_name})= {}\n",
        checksums::of_bytes(ovf.as_bytes()),
        checksums::of_file(vmdk)?
    );
    let disk = output::open(vmdk)?;
    output::create(out, |file| {
        let mut tar = Tarball::new(std::io::BufWriter::new(file), release.epoch);
        tar.bytes(&ovf_name, ovf.as_bytes())?;
        tar.bytes(&format!("{stem}.mf"), manifest.as_bytes())?;
        tar.file(&vmdk_name, size, disk)?;
        Ok(tar.finish()?.flush()?)
    })
}

/// A device of the virtual hardware: CIM resource type, subtype, name, and more elements.
struct Device {
    kind: u32,
    subtype: &'static str,
    name: String,
    more: String,
}

fn description(release: &Release, guest: &str, vmdk: &str, size: u64, capacity: u64) -> String {
    let stem = release.stem();
    let devices: String = (1..)
        .zip(devices())
        .map(|(id, device)| item(id, &device))
        .collect();
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1" xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData" xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData" xmlns:vmw="http://www.vmware.com/schema/ovf">
  <References>
    <File ovf:id="file1" ovf:href="{vmdk}" ovf:size="{size}"/>
  </References>
  <DiskSection>
    <Info>Disks</Info>
    <Disk ovf:diskId="disk1" ovf:fileRef="file1" ovf:capacity="{capacity}" ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
  </DiskSection>
  <NetworkSection>
    <Info>Networks</Info>
    <Network ovf:name="VM Network">
      <Description>The node's network</Description>
    </Network>
  </NetworkSection>
  <VirtualSystem ovf:id="{stem}">
    <Info>A Kubernetes node</Info>
    <Name>{stem}</Name>
    <OperatingSystemSection ovf:id="101" vmw:osType="{guest}">
      <Info>Corten {version}</Info>
    </OperatingSystemSection>
    <VirtualHardwareSection ovf:transport="com.vmware.guestInfo">
      <Info>Virtual hardware</Info>
      <System>
        <vssd:ElementName>Virtual Hardware Family</vssd:ElementName>
        <vssd:InstanceID>0</vssd:InstanceID>
        <vssd:VirtualSystemIdentifier>{stem}</vssd:VirtualSystemIdentifier>
        <vssd:VirtualSystemType>vmx-15</vssd:VirtualSystemType>
      </System>
{devices}      <vmw:Config ovf:required="false" vmw:key="firmware" vmw:value="efi"/>
      <vmw:ExtraConfig ovf:required="false" vmw:key="disk.EnableUUID" vmw:value="TRUE"/>
    </VirtualHardwareSection>
    <ProductSection>
      <Info>What the node reads at its first start</Info>
      <Product>Corten</Product>
      <Version>{version}</Version>
{properties}    </ProductSection>
  </VirtualSystem>
</Envelope>
"#,
        version = release.version,
        properties = properties()
    )
}

/// The properties that an importer asks for; the node reads them from the OVF environment.
fn properties() -> String {
    let all = [
        ("corten.config", "Machine config", "Base64 of the config"),
        (
            "metadata",
            "Metadata",
            "Base64 of cloud-init's metadata: local-hostname, instance-id, network",
        ),
    ];
    let property = |(key, label, description): (&str, &str, &str)| {
        format!(
            "      <Property ovf:key=\"{key}\" ovf:type=\"string\" ovf:userConfigurable=\"true\">\n        \
             <Label>{label}</Label>\n        <Description>{description}</Description>\n      </Property>\n"
        )
    };
    all.into_iter().map(property).collect()
}

fn devices() -> [Device; 5] {
    let element = |name: &str, value: &dyn std::fmt::Display| {
        format!("        <rasd:{name}>{value}</rasd:{name}>\n")
    };
    [
        Device {
            kind: 3,
            subtype: "",
            name: format!("{CPUS} virtual CPUs"),
            more: element("VirtualQuantity", &CPUS),
        },
        Device {
            kind: 4,
            subtype: "",
            name: format!("{MEMORY_MIB} MiB of memory"),
            more: element("AllocationUnits", &"byte * 2^20")
                + &element("VirtualQuantity", &MEMORY_MIB),
        },
        Device {
            kind: 6,
            subtype: "VirtualSCSI",
            name: "SCSI controller 0".to_owned(),
            more: element("Address", &0),
        },
        Device {
            kind: 17,
            subtype: "",
            name: "Disk 0".to_owned(),
            more: element("AddressOnParent", &0)
                + &element("HostResource", &"ovf:/disk/disk1")
                + &element("Parent", &3),
        },
        Device {
            kind: 10,
            subtype: "VmxNet3",
            name: "Network adapter 0".to_owned(),
            more: element("AutomaticAllocation", &true) + &element("Connection", &"VM Network"),
        },
    ]
}

/// One `Item`; the schema requires its elements in alphabetical order.
fn item(id: u32, device: &Device) -> String {
    let mut lines: Vec<String> = device
        .more
        .lines()
        .map(|line| format!("{line}\n"))
        .collect();
    let mut add = |name: &str, value: &str| {
        lines.push(format!("        <rasd:{name}>{value}</rasd:{name}>\n"));
    };
    add("ElementName", &device.name);
    add("InstanceID", &id.to_string());
    add("ResourceType", &device.kind.to_string());
    if !device.subtype.is_empty() {
        add("ResourceSubType", device.subtype);
    }
    lines.sort();
    format!("      <Item>\n{}      </Item>\n", lines.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, disk, host, release, text};
    use crate::vmdk;

    #[test]
    fn ova_manifest_is_correct_and_reproducible() {
        let scratch = Scratch::new();
        let (raw, vmdk) = (disk(&scratch), scratch.path("disk.vmdk"));
        vmdk::build(&vmdk, &release(), &raw).unwrap();
        let (one, two) = (scratch.path("one.ova"), scratch.path("two.ova"));
        build(&one, &release(), &raw, &vmdk).unwrap();
        build(&two, &release(), &raw, &vmdk).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());
        let dir = scratch.path("x");
        std::fs::create_dir(&dir).unwrap();
        let listing = host("tar", &["-C", text(&dir), "-xvf", text(&one)]);
        let stem = "corten-1.2.3-x86_64";
        assert_eq!(listing, format!("{stem}.ovf\n{stem}.mf\n{stem}.vmdk\n"));
        let manifest = std::fs::read_to_string(dir.join(format!("{stem}.mf"))).unwrap();
        for line in manifest.lines() {
            let (name, digest) = line.split_once(")= ").unwrap();
            let file = dir.join(name.strip_prefix("SHA256(").unwrap());
            let said = host("sha256sum", &[text(&file)]);
            assert!(said.starts_with(digest), "{line}");
        }
        let ovf = std::fs::read_to_string(dir.join(format!("{stem}.ovf"))).unwrap();
        assert!(ovf.contains("ovf:capacity=\"67108864\""));
        let resource = ovf.find("<rasd:ResourceSubType>VirtualSCSI").unwrap();
        assert!(ovf[resource..].starts_with("<rasd:ResourceSubType>VirtualSCSI</rasd:ResourceSubType>\n        <rasd:ResourceType>6<"));
    }
}
