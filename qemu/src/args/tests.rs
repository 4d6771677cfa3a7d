use super::*;
use crate::{Arch, Bus, DirectBoot, Disk, DiskMode, Segment, Service, Tap, Volume, Wire};

fn layout() -> Layout {
    Layout {
        console: "/vm/console.log".into(),
        qmp: "/vm/qmp".into(),
        second_serial: "/vm/second".into(),
        firmware: None,
        overlays: vec!["/vm/overlay0.qcow2".into()],
        api_port: 4242,
        accel: Accel::Tcg,
    }
}

fn line(machine: &Machine, purpose: Purpose) -> String {
    shell_line("qemu", &arguments(machine, &layout(), purpose).unwrap())
}

#[test]
fn images_are_not_changed_unless_asked() {
    let machine = Machine::new("m", "/vm")
        .disk(Disk::raw("/a.raw"))
        .disk(Disk::raw("/b.raw").mode(DiskMode::Overlay))
        .disk(Disk::qcow2("/c.qcow2").mode(DiskMode::Direct))
        .usb("/d.iso")
        .cdrom("/e.iso");
    let line = line(&machine, Purpose::Captured);
    assert!(
        line.contains("snapshot=on,format=raw,file=/a.raw"),
        "{line}"
    );
    assert!(
        line.contains("snapshot=off,cache=unsafe,format=qcow2,file=/vm/overlay0.qcow2"),
        "{line}"
    );
    assert!(!line.contains("/b.raw"), "{line}");
    assert!(
        line.contains("snapshot=off,format=qcow2,file=/c.qcow2"),
        "{line}"
    );
    assert!(
        line.contains("snapshot=on,format=raw,file=/d.iso"),
        "{line}"
    );
    assert!(
        line.contains("readonly=on,format=raw,file=/e.iso"),
        "{line}"
    );
}

#[test]
fn writes_to_a_logged_disk_are_recorded_beside_it() {
    let disk = Disk::raw("/a.raw").mode(DiskMode::Logged);
    let line = line(&Machine::new("m", "/vm").disk(disk), Purpose::Captured);
    let drive = "driver=blklogwrites,file.driver=raw,file.file.driver=file,file.file.filename=/a.raw,\
                 log.driver=file,log.filename=/a.raw.writes,log-sector-size=512";
    assert!(line.contains(drive), "{line}");
    assert!(
        line.contains(",request-merging=off,write-zeroes=off,discard=off"),
        "{line}"
    );
}

#[test]
fn disk_is_on_the_bus_that_the_machine_names() {
    let expected = [
        (
            Bus::Virtio,
            "virtio-blk-pci,drive=disk0,serial=corten-disk0,bootindex=1",
        ),
        (
            Bus::Nvme,
            "nvme,drive=disk0,serial=corten-disk0,bootindex=1",
        ),
        (
            Bus::Sata,
            "ich9-ahci,id=bus-disk0 -device ide-hd,id=device-disk0,bus=bus-disk0.0,drive=disk0,serial=corten-disk0,bootindex=1",
        ),
        (
            Bus::Usb,
            "qemu-xhci,id=bus-disk0 -device usb-storage,id=device-disk0,bus=bus-disk0.0,drive=disk0,serial=corten-disk0,bootindex=1",
        ),
        (Bus::Sd, "sdhci-pci -device sd-card,drive=disk0"),
    ];
    for (bus, device) in expected {
        let disk = Disk::raw("/a.raw").bus(bus);
        let line = line(&Machine::new("m", "/vm").disk(disk), Purpose::Captured);
        assert!(line.contains(&format!("-device {device}")), "{line}");
    }
}

#[test]
fn network_boot_comes_first_and_keeps_the_option_rom() {
    let machine = Machine::new("m", "/vm").netboot("/srv/p,x e", "boot.ipxe");
    let line = line(&machine, Purpose::Captured);
    assert!(
        line.contains("tftp=/srv/p,,x e,bootfile=boot.ipxe"),
        "{line}"
    );
    assert!(
        line.contains("virtio-net-pci,netdev=net0,bootindex=0"),
        "{line}"
    );
    assert!(!line.contains("romfile="), "{line}");
}

#[test]
fn api_port_is_only_reachable_from_this_host() {
    let machine = Machine::new("m", "/vm").uuid("4c4c-x").forward(6443, 6443);
    let line = line(&machine, Purpose::Captured);
    assert!(line.contains("-uuid 4c4c-x "), "{line}");
    let ports = "hostfwd=tcp:127.0.0.1:4242-:50000,hostfwd=tcp:127.0.0.1:6443-:6443";
    assert!(line.contains(ports), "{line}");
    assert!(line.contains("romfile="), "{line}");
}

#[test]
fn server_of_this_host_has_an_address_in_the_guest_network() {
    let service = Service {
        guest: "169.254.169.254:80".parse().unwrap(),
        local: 4280,
    };
    let machine = Machine::new("m", "/vm")
        .subnet("168.0.0.0/7")
        .serial_number("ds=nocloud;s=http://h/,x")
        .service(service);
    let arguments = arguments(&machine, &layout(), Purpose::Captured).unwrap();
    let line = arguments.join("\n");
    assert!(
        line.contains(",net=168.0.0.0/7,guestfwd=tcp:169.254.169.254:80-cmd:bash -c '"),
        "{line}"
    );
    assert!(line.contains("/dev/tcp/127.0.0.1/4280"), "{line}");
    assert!(
        line.contains("-smbios\ntype=1,serial=ds=nocloud;s=http://h/,,x\n"),
        "{line}"
    );
}

#[test]
fn wire_connects_two_sockets() {
    let machine = Machine::new("m", "/vm").wire(Wire {
        local: "/w/a".into(),
        remote: "/w/b".into(),
        mac: "52:54:00:00:01:01".to_owned(),
    });
    let line = line(&machine, Purpose::Captured);
    let netdev = "dgram,id=wire0,local.type=unix,local.path=/w/a,remote.type=unix,remote.path=/w/b";
    assert!(line.contains(netdev), "{line}");
    let nic = "virtio-net-pci,netdev=wire0,mac=52:54:00:00:01:01,romfile=";
    assert!(line.contains(nic), "{line}");
}

#[test]
fn segment_connects_any_number_of_machines() {
    let machine = Machine::new("m", "/vm").segment(Segment {
        port: 4000,
        mac: "52:54:00:00:01:01".to_owned(),
    });
    let line = line(&machine, Purpose::Captured);
    let netdev = "socket,id=segment,mcast=230.0.0.1:4000,localaddr=127.0.0.1";
    assert!(line.contains(netdev), "{line}");
    let nic = "virtio-net-pci,netdev=segment,mac=52:54:00:00:01:01,romfile=";
    assert!(line.contains(nic), "{line}");
}

#[test]
fn replay_puts_the_console_on_the_terminal() {
    let machine = Machine::new("m", "/vm").second_serial().direct(DirectBoot {
        kernel: "/k".into(),
        initrd: Some("/i".into()),
        append: "console=ttyS0 panic='1'".into(),
    });
    let line = line(&machine, Purpose::Replay);
    assert!(line.contains("-serial mon:stdio"), "{line}");
    assert!(
        !line.contains("/vm/qmp") && !line.contains("console.log"),
        "{line}"
    );
    assert!(
        line.ends_with(r"-append 'console=ttyS0 panic='\''1'\'''"),
        "{line}"
    );
}

#[test]
fn uefi_code_is_read_only() {
    let mut layout = layout();
    layout.firmware = Some(("/code".into(), "/vm/vars".into()));
    let machine = Machine::new("m", "/vm").firmware(Firmware::Uefi);
    let args = arguments(&machine, &layout, Purpose::Captured).unwrap();
    let line = shell_line("qemu", &args);
    assert!(
        line.contains("unit=0,format=raw,readonly=on,file=/code"),
        "{line}"
    );
    assert!(line.contains("unit=1,format=raw,file=/vm/vars"), "{line}");
    assert!(!line.contains("secure") && !line.contains("smm"), "{line}");
    let machine = machine.firmware(Firmware::SecureBoot);
    let args = arguments(&machine, &layout, Purpose::Captured).unwrap();
    let line = shell_line("qemu", &args);
    let secure = "-global driver=cfi.pflash01,property=secure,value=on";
    assert!(
        line.contains(secure) && line.contains("-machine q35,graphics=off,smm=on "),
        "{line}"
    );
}

#[test]
fn each_architecture_has_its_own_devices() {
    let machine = |arch| {
        Machine::new("m", "/vm")
            .arch(arch)
            .cdrom("/e.iso")
            .second_serial()
    };
    let pc = line(&machine(Arch::X86_64), Purpose::Captured);
    assert!(pc.contains("-machine q35,graphics=off "), "{pc}");
    assert!(pc.contains("-device ide-cd,drive=media0"), "{pc}");
    assert!(pc.contains("-serial chardev:second"), "{pc}");
    let arm = line(&machine(Arch::Arm64), Purpose::Captured);
    assert!(arm.contains("-machine virt,gic-version=3 "), "{arm}");
    assert!(
        arm.contains("-device virtio-scsi-pci -device scsi-cd,drive=media0"),
        "{arm}"
    );
    assert!(arm.contains("-device pci-serial,chardev=second"), "{arm}");
    for word in ["q35", "graphics", "ide-cd"] {
        assert!(!arm.contains(word), "{arm}");
    }
}

#[test]
fn machine_on_a_link_of_the_host_has_no_user_network() {
    let machine = Machine::new("m", "/vm").tap(Tap {
        link: "port2".to_owned(),
        mac: "52:54:00:05:00:02".to_owned(),
        address: [10, 5, 0, 2].into(),
    });
    let line = line(&machine, Purpose::Captured);
    assert!(
        line.contains("-netdev tap,id=net0,ifname=port2,script=no,downscript=no "),
        "{line}"
    );
    assert!(line.contains("netdev=net0,mac=52:54:00:05:00:02"), "{line}");
    assert!(!line.contains("user,id"), "{line}");
}

#[test]
fn files_and_parameters_reach_an_image_without_a_change_of_it() {
    let machine = Machine::new("m", "/vm")
        .kernel_parameters("a=b c=d,e")
        .volume(Volume {
            directory: "/vm/config,1".into(),
            label: "metal-iso".to_owned(),
        });
    let args = arguments(&machine, &layout(), Purpose::Captured).unwrap();
    let has = |expected: &str| assert!(args.iter().any(|arg| arg == expected), "{args:?}");
    has("type=11,value=io.systemd.stub.kernel-cmdline-extra=a=b c=d,,e");
    has("if=none,id=volume,readonly=on,driver=vvfat,dir=/vm/config,,1,label=metal-iso");
}

#[test]
fn blocks_of_instructions_are_logged_at_the_given_addresses() {
    let machine = Machine::new("m", "/vm").blocks("/log", 0x1000..=0x2fff);
    let line = line(&machine, Purpose::Captured);
    assert!(
        line.contains("-d in_asm -D /log -dfilter 0x1000..0x2fff"),
        "{line}"
    );
}
