//! `ID_PATH`: the location of a device as a name. It is stable across reboots as long as the device stays plugged in
//! there.

use crate::sysfs::{Ancestor, Sysfs};

/// The path of `devpath`, such as `pci-0000:00:1f.2-ata-1` or `pci-0000:00:05.0`. `None` if no ancestor has a stable
/// location. A partition has its disk's path; the caller adds `-partN`.
pub fn id_path(sysfs: &Sysfs, devpath: &str) -> Option<String> {
    let chain = sysfs.chain(devpath);
    let block = chain
        .first()
        .is_some_and(|device| device.subsystem == "block");
    let mut walk = Walk {
        sysfs,
        parts: Vec::new(),
        placed: false,
        transport: false,
    };
    let mut rest = chain.as_slice();
    while let Some((device, above)) = rest.split_first() {
        let skip = walk.step(device, above)?;
        rest = above.get(skip..).unwrap_or_default();
    }
    // A disk behind an unknown bus could share its path with a neighbour.
    if !walk.placed || (block && !walk.transport) {
        return None;
    }
    walk.parts.reverse();
    Some(walk.parts.join("-"))
}

struct Walk<'a> {
    sysfs: &'a Sysfs,
    /// Parts of the path, device first.
    parts: Vec<String>,
    /// An ancestor with a unique location was found.
    placed: bool,
    /// The bus that distinguishes disks was found.
    transport: bool,
}

impl Walk<'_> {
    /// Names one device. Returns the number of ancestors that the name covers, too. `None` if the whole path cannot be
    /// named.
    fn step(&mut self, device: &Ancestor, above: &[Ancestor]) -> Option<usize> {
        let name = device.sysname();
        let same = |kind: &str| above.iter().take_while(|a| a.subsystem == kind).count();
        match device.subsystem.as_str() {
            "scsi" => return self.scsi(device, above),
            "nvme" => self.transport = true,
            "block" if self.parts.is_empty() => {
                if let Some(nsid) = self.sysfs.text(&device.devpath, "nsid") {
                    self.parts.push(format!("nvme-{nsid}"));
                    self.transport = true;
                }
            }
            "virtio" | "mmc" => self.transport = true,
            "usb" => {
                // 1-1.2:1.0 is port 1.2, configuration 1, interface 0 of bus 1. Bus numbers change between boots.
                if let Some((_, port)) = name.split_once('-') {
                    self.parts.push(format!("usb-0:{port}"));
                    self.transport = true;
                    return Some(same("usb"));
                }
            }
            "pci" => {
                self.parts.push(format!("pci-{name}"));
                self.placed = true;
                return Some(same("pci"));
            }
            "platform" | "acpi" | "amba" => {
                self.parts.push(format!("{}-{name}", device.subsystem));
                self.placed = true;
                return Some(same(&device.subsystem));
            }
            "vmbus" => {
                self.parts.push(format!("vmbus-{name}"));
                (self.placed, self.transport) = (true, true);
            }
            "xen" => {
                self.parts.push(format!("xen-{name}"));
                (self.placed, self.transport) = (true, true);
            }
            _ => {}
        }
        Some(0)
    }

    /// Names a SCSI device `H:B:T:L` by its transport.
    fn scsi(&mut self, device: &Ancestor, above: &[Ancestor]) -> Option<usize> {
        let numbers: Vec<u64> = device
            .sysname()
            .split(':')
            .map_while(|number| number.parse().ok())
            .collect();
        let [_, bus, target, lun] = numbers.try_into().ok()?;
        let lun = self.lun(lun);
        // Skip up to the host and the next device above it, which is not a SCSI device.
        let skip = above
            .iter()
            .position(|a| is_numbered(a.sysname(), "host"))
            .map_or(0, |i| i + 1);
        let path = &device.devpath;
        let part = |prefix: &str| path.split('/').find(|p| is_numbered(p, prefix));
        self.transport = true;
        if let Some(session) = part("session") {
            self.parts.push(self.iscsi(session, &lun)?);
        } else if let Some(rport) = part("rport-") {
            let port = format!("/class/fc_remote_ports/{rport}");
            let name = self.sysfs.text(&port, "port_name")?;
            self.parts.push(format!("fc-{name}-lun-{lun}"));
        } else if let Some(end) = part("end_device-") {
            let sas = format!("/class/sas_device/{end}");
            let address = self.sysfs.text(&sas, "sas_address")?;
            self.parts.push(format!("sas-{address}-lun-{lun}"));
        } else if let Some(port) = part("ata") {
            let number = self
                .sysfs
                .text(&format!("/class/ata_port/{port}"), "port_no");
            let number = number.unwrap_or_else(|| port.trim_start_matches("ata").to_owned());
            // Behind a port multiplier the target distinguishes the disks.
            let dot = if target > 0 {
                format!(".{target}")
            } else {
                String::new()
            };
            self.parts.push(format!("ata-{number}{dot}"));
        } else if above.iter().any(|a| a.subsystem == "vmbus") {
            self.parts.push(format!("lun-{lun}"));
        } else {
            // Host numbers change between boots; their order below one parent does not.
            let host = part("host")?;
            let parent = path.split(&format!("/{host}/")).next()?;
            let number = |name: &str| name.strip_prefix("host")?.parse::<u64>().ok();
            let hosts = self.sysfs.names(parent);
            let first = hosts.iter().filter_map(|name| number(name)).min();
            let offset = number(host)?.saturating_sub(first.unwrap_or_default());
            self.parts
                .push(format!("scsi-{offset}:{bus}:{target}:{lun}"));
        }
        Some(skip)
    }

    fn iscsi(&self, session: &str, lun: &str) -> Option<String> {
        let target = self
            .sysfs
            .text(&format!("/class/iscsi_session/{session}"), "targetname")?;
        let number = session.strip_prefix("session")?;
        let connection = format!("/class/iscsi_connection/connection{number}:0");
        let address = self.sysfs.text(&connection, "persistent_address")?;
        let port = self.sysfs.text(&connection, "persistent_port")?;
        Some(format!("ip-{address}:{port}-iscsi-{target}-lun-{lun}"))
    }

    /// A LUN above 255 is written as the eight bytes on the wire.
    fn lun(&self, lun: u64) -> String {
        if lun < 256 {
            return lun.to_string();
        }
        let wire = ((lun & 0xffff) << 48)
            | ((lun & 0xffff_0000) << 16)
            | ((lun >> 16) & 0xffff_0000)
            | ((lun >> 48) & 0xffff);
        format!("0x{wire:016x}")
    }
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .is_some_and(|n| n.starts_with(|c: char| c.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::id_path;
    use crate::sysfs::Sysfs;
    use crate::testing::Tree;

    #[test]
    fn virtio_and_nvme_disks_have_paths() {
        let tree = Tree::new();
        tree.device("/devices/pci0000:00", "");
        tree.device("/devices/pci0000:00/0000:00:05.0", "pci");
        tree.device("/devices/pci0000:00/0000:00:05.0/virtio2", "virtio");
        let vda = "/devices/pci0000:00/0000:00:05.0/virtio2/block/vda";
        tree.device(vda, "block");
        tree.device("/devices/pci0000:00/0000:00:06.0", "pci");
        tree.device("/devices/pci0000:00/0000:00:06.0/nvme/nvme0", "nvme");
        let nvme = "/devices/pci0000:00/0000:00:06.0/nvme/nvme0/nvme0n1";
        tree.device(nvme, "block").attribute(nvme, "nsid", "1\n");
        let sysfs = Sysfs::new(tree.path());
        assert_eq!(id_path(&sysfs, vda).as_deref(), Some("pci-0000:00:05.0"));
        assert_eq!(
            id_path(&sysfs, nvme).as_deref(),
            Some("pci-0000:00:06.0-nvme-1")
        );
    }

    #[test]
    fn scsi_ata_and_usb_disks_have_paths() {
        let tree = Tree::new();
        let chain = |parts: &[(&str, &str)]| {
            let mut path = "/devices".to_owned();
            for (name, subsystem) in parts {
                path = format!("{path}/{name}");
                if *subsystem != "-" {
                    tree.device(&path, subsystem);
                }
            }
            path
        };
        let sda = chain(&[
            ("pci0000:00", ""),
            ("0000:00:1f.2", "pci"),
            ("ata3", ""),
            ("host2", "scsi"),
            ("target2:0:0", "scsi"),
            ("2:0:0:0", "scsi"),
            ("block", "-"),
            ("sda", "block"),
        ]);
        tree.attribute("/class/ata_port/ata3", "port_no", "3");
        let sdb = chain(&[
            ("pci0000:00", ""),
            ("0000:00:07.0", "pci"),
            ("virtio4", "virtio"),
            ("host7", "scsi"),
            ("target7:0:1", "scsi"),
            ("7:0:1:0", "scsi"),
            ("block", "-"),
            ("sdb", "block"),
        ]);
        let sdc = chain(&[
            ("pci0000:00", ""),
            ("0000:00:08.0", "pci"),
            ("usb1", "usb"),
            ("1-2", "usb"),
            ("1-2:1.0", "usb"),
            ("host9", "scsi"),
            ("target9:0:0", "scsi"),
            ("9:0:0:0", "scsi"),
            ("block", "-"),
            ("sdc", "block"),
        ]);
        let sysfs = Sysfs::new(tree.path());
        let path = |devpath: &str| id_path(&sysfs, devpath);
        assert_eq!(path(&sda).as_deref(), Some("pci-0000:00:1f.2-ata-3"));
        assert_eq!(path(&sdb).as_deref(), Some("pci-0000:00:07.0-scsi-0:0:1:0"));
        assert_eq!(
            path(&sdc).as_deref(),
            Some("pci-0000:00:08.0-usb-0:2:1.0-scsi-0:0:0:0")
        );
    }

    #[test]
    fn devices_without_a_bus_have_no_path() {
        let tree = Tree::new();
        tree.device("/devices/virtual/block/loop0", "block");
        tree.device("/devices/platform/weird", "platform");
        tree.device("/devices/platform/weird/block/sdz", "block");
        let sysfs = Sysfs::new(tree.path());
        assert_eq!(id_path(&sysfs, "/devices/virtual/block/loop0"), None);
        assert_eq!(id_path(&sysfs, "/devices/platform/weird/block/sdz"), None);
        assert_eq!(
            id_path(&sysfs, "/devices/platform/weird").as_deref(),
            Some("platform-weird")
        );
        assert_eq!(id_path(&sysfs, "/devices/gone"), None);
    }
}
