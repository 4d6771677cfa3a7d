//! The description of a machine: a plain value that [`crate::args`] turns into a command line and
//! [`Machine::start`] into a process.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::disk::Disk;
use crate::network::{NetBoot, Segment, Service, Tap, Wire};
use crate::{Accel, Arch, Firmware, Running, VmError};

/// The drive of an ISO.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Media {
    /// In a CD drive: SATA, or SCSI where the machine has no SATA.
    Cdrom(PathBuf),
    /// As the content of a USB stick.
    Usb(PathBuf),
}

impl Media {
    /// The ISO file.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Cdrom(path) | Self::Usb(path) => path,
        }
    }
}

/// Kernel and initramfs loaded by QEMU itself, without a boot loader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectBoot {
    /// The kernel image.
    pub kernel: PathBuf,
    /// The initramfs, if the kernel needs one.
    pub initrd: Option<PathBuf>,
    /// Complete kernel parameters; a console parameter is not added.
    pub append: String,
}

/// A read-only disk with a FAT volume that has the files of a directory (QEMU's `vvfat`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The directory.
    pub directory: PathBuf,
    /// Label of the volume; at most 11 characters.
    pub label: String,
}

/// The description of a machine. Building it has no side effects.
///
/// ```no_run
/// # use std::time::Duration;
/// use qemu::{Disk, Firmware, Machine};
/// let machine = Machine::new("try", "target/vm")
///     .firmware(Firmware::Uefi)
///     .disk(Disk::raw("_out/corten.raw"))
///     .start()?;
/// machine.wait_tls(Duration::from_secs(120))?;
/// println!("API at {}", machine.api());
/// # Ok::<(), qemu::VmError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a machine does nothing until it is started"]
pub struct Machine {
    pub(crate) name: String,
    pub(crate) dir: PathBuf,
    pub(crate) arch: Arch,
    pub(crate) firmware: Option<Firmware>,
    pub(crate) accel: Option<Accel>,
    pub(crate) memory_mib: u32,
    pub(crate) cpus: u32,
    pub(crate) disks: Vec<Disk>,
    pub(crate) media: Vec<Media>,
    pub(crate) direct: Option<DirectBoot>,
    pub(crate) netboot: Option<NetBoot>,
    pub(crate) kernel_parameters: Option<String>,
    pub(crate) console: Option<PathBuf>,
    pub(crate) volume: Option<Volume>,
    pub(crate) tap: Option<Tap>,
    pub(crate) wires: Vec<Wire>,
    pub(crate) segment: Option<Segment>,
    pub(crate) sockets: u32,
    pub(crate) randomless: bool,
    pub(crate) api_port: Option<u16>,
    pub(crate) guest_port: u16,
    pub(crate) forwards: Vec<(u16, u16)>,
    pub(crate) subnet: Option<String>,
    pub(crate) services: Vec<Service>,
    pub(crate) uuid: Option<String>,
    pub(crate) serial_number: Option<String>,
    pub(crate) second_serial: bool,
    pub(crate) watchdog: bool,
    pub(crate) clock: Option<String>,
    pub(crate) display: bool,
    pub(crate) stop_on_reboot: bool,
    pub(crate) blocks: Option<(PathBuf, RangeInclusive<u64>)>,
}

impl Machine {
    /// A 64-bit PC with 2 CPUs, 1 GiB of memory, BIOS firmware and no disk. Its virtio NIC is on
    /// QEMU's user network, whose port 50000 is forwarded to a free local port. Its files are in
    /// `parent/name`, which is emptied when the machine starts.
    pub fn new(name: impl Into<String>, parent: impl AsRef<Path>) -> Self {
        let name = name.into();
        let dir = parent.as_ref().join(&name);
        Self {
            name,
            dir,
            arch: Arch::X86_64,
            firmware: None,
            accel: None,
            memory_mib: 1024,
            cpus: 2,
            disks: Vec::new(),
            media: Vec::new(),
            direct: None,
            netboot: None,
            kernel_parameters: None,
            console: None,
            volume: None,
            tap: None,
            wires: Vec::new(),
            segment: None,
            sockets: 0,
            randomless: false,
            api_port: None,
            guest_port: 50000,
            forwards: Vec::new(),
            subnet: None,
            services: Vec::new(),
            uuid: None,
            serial_number: None,
            second_serial: false,
            watchdog: false,
            clock: None,
            display: false,
            stop_on_reboot: false,
            blocks: None,
        }
    }

    /// Architecture of the guest.
    pub fn arch(mut self, arch: Arch) -> Self {
        self.arch = arch;
        self
    }

    /// Firmware; by default BIOS, or UEFI on an architecture without BIOS.
    pub fn firmware(mut self, firmware: Firmware) -> Self {
        self.firmware = Some(firmware);
        self
    }

    /// Accelerator; by default the result of the probe.
    pub fn accel(mut self, accel: Accel) -> Self {
        self.accel = Some(accel);
        self
    }

    /// Memory, in MiB.
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Number of virtual CPUs.
    pub fn cpus(mut self, cpus: u32) -> Self {
        self.cpus = cpus;
        self
    }

    /// Adds a virtio disk.
    pub fn disk(mut self, disk: Disk) -> Self {
        self.disks.push(disk);
        self
    }

    /// Adds a CD drive with `iso`.
    pub fn cdrom(mut self, iso: impl Into<PathBuf>) -> Self {
        self.media.push(Media::Cdrom(iso.into()));
        self
    }

    /// Adds a USB stick with `iso`.
    pub fn usb(mut self, iso: impl Into<PathBuf>) -> Self {
        self.media.push(Media::Usb(iso.into()));
        self
    }

    /// Boots a kernel without a boot loader.
    pub fn direct(mut self, boot: DirectBoot) -> Self {
        self.direct = Some(boot);
        self
    }

    /// Boots from the network.
    pub fn netboot(mut self, tftp: impl Into<PathBuf>, bootfile: impl Into<String>) -> Self {
        self.netboot = Some(NetBoot {
            tftp: tftp.into(),
            bootfile: bootfile.into(),
        });
        self
    }

    /// Adds parameters to those in a unified kernel image, through the firmware's SMBIOS table. The image's stub ignores
    /// them under Secure Boot (systemd-stub(7), `io.systemd.stub.kernel-cmdline-extra`).
    pub fn kernel_parameters(mut self, parameters: impl Into<String>) -> Self {
        self.kernel_parameters = Some(parameters.into());
        self
    }

    /// Appends the serial console to a file of the caller's; by default to a new one in the machine's directory.
    pub fn console(mut self, file: impl Into<PathBuf>) -> Self {
        self.console = Some(file.into());
        self
    }

    /// Adds a disk with the files of a directory.
    pub fn volume(mut self, volume: Volume) -> Self {
        self.volume = Some(volume);
        self
    }

    /// Connects the NIC to a link of this host, instead of QEMU's user network.
    pub fn tap(mut self, tap: Tap) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Adds a NIC that is connected to another machine's NIC.
    pub fn wire(mut self, wire: Wire) -> Self {
        self.wires.push(wire);
        self
    }

    /// Adds a NIC on a network shared with other machines.
    pub fn segment(mut self, segment: Segment) -> Self {
        self.segment = Some(segment);
        self
    }

    /// Number of empty hotplug ports of the bus, named `socket1` and so on.
    pub fn sockets(mut self, count: u32) -> Self {
        self.sockets = count;
        self
    }

    /// Emulates the CPUs, and logs each block of instructions at these addresses before its first run to `file`.
    pub fn blocks(mut self, file: impl Into<PathBuf>, addresses: RangeInclusive<u64>) -> Self {
        self.blocks = Some((file.into(), addresses));
        self.accel(Accel::Tcg)
    }

    /// Removes every source of random numbers, as in cheap or old virtual machines.
    pub fn randomless(mut self) -> Self {
        self.randomless = true;
        self
    }

    /// Local port of the API; by default a free port.
    pub fn api_port(mut self, port: u16) -> Self {
        self.api_port = Some(port);
        self
    }

    /// Forwarded port of the guest; by default 50000.
    pub fn guest_port(mut self, port: u16) -> Self {
        self.guest_port = port;
        self
    }

    /// UUID that the firmware reports; by default none is set.
    pub fn uuid(mut self, uuid: impl Into<String>) -> Self {
        self.uuid = Some(uuid.into());
        self
    }

    /// Serial number that the firmware reports; by default none is set.
    pub fn serial_number(mut self, number: impl Into<String>) -> Self {
        self.serial_number = Some(number.into());
        self
    }

    /// Network of the NIC, such as `192.0.2.0/24`; by default QEMU's. Its host number 2 is this
    /// host and the gateway, and its first lease is host number 15.
    pub fn subnet(mut self, network: impl Into<String>) -> Self {
        self.subnet = Some(network.into());
        self
    }

    /// Gives a server on this host an address of its own in the guest's network.
    pub fn service(mut self, service: Service) -> Self {
        self.services.push(service);
        self
    }

    /// Forwards another port of the guest to `local` on this host's loopback interface.
    pub fn forward(mut self, local: u16, guest: u16) -> Self {
        self.forwards.push((local, guest));
        self
    }

    /// Adds a second serial port, reachable through
    /// [`Running::second_serial`].
    pub fn second_serial(mut self) -> Self {
        self.second_serial = true;
        self
    }

    /// Adds a watchdog (Intel 6300ESB) that resets the machine when it is not fed.
    pub fn watchdog(mut self) -> Self {
        self.watchdog = true;
        self
    }

    /// Starts the hardware clock at a date, such as `2001-01-01`, instead of this host's time.
    pub fn clock(mut self, date: &str) -> Self {
        self.clock = Some(date.to_owned());
        self
    }

    /// Adds a display adapter, for [`Qmp::screendump`](crate::Qmp::screendump).
    pub fn display(mut self) -> Self {
        self.display = true;
        self
    }

    /// Ends QEMU when the guest reboots.
    pub fn stop_on_reboot(mut self) -> Self {
        self.stop_on_reboot = true;
        self
    }

    /// Starts the machine.
    ///
    /// # Errors
    /// An image, firmware or host program is missing, or QEMU refuses its command line; each error
    /// contains a remedy.
    pub fn start(self) -> Result<Running, VmError> {
        Running::start(self)
    }

    /// Every file that must exist before QEMU starts.
    pub(crate) fn inputs(&self) -> Vec<&Path> {
        let mut all: Vec<&Path> = self.disks.iter().map(|disk| disk.path.as_path()).collect();
        all.extend(self.media.iter().map(Media::path));
        all.extend(self.volume.iter().map(|volume| volume.directory.as_path()));
        if let Some(direct) = &self.direct {
            all.push(&direct.kernel);
            all.extend(direct.initrd.as_deref());
        }
        if let Some(netboot) = &self.netboot {
            all.push(&netboot.tftp);
        }
        all
    }
}
