use super::{plan, properties};
use crate::event::{Event, Properties};
use crate::plan::Plan;
use crate::sysfs::Sysfs;
use crate::testing::Tree;

fn event(text: &str) -> Event {
    Event::parse(text.as_bytes()).unwrap()
}

fn props(pairs: &[(&str, &str)]) -> Properties {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn links(plan: &Plan) -> Vec<&str> {
    plan.links.iter().map(String::as_str).collect()
}

const VDA1: &str = "ACTION=add\nDEVPATH=/devices/x/block/vda/vda1\nSUBSYSTEM=block\nMAJOR=254\n\
    MINOR=1\nDEVNAME=vda1\nDEVTYPE=partition\nDISKSEQ=9\nPARTN=1\nPARTNAME=EFI\nPARTUUID=AB-01";

#[test]
fn a_partition_has_all_its_names() {
    let tree = Tree::new();
    tree.device("/devices/x", "virtio")
        .device("/devices/x/block/vda", "block");
    tree.attribute(
        "/devices/x/block/vda",
        "uevent",
        "MAJOR=254\nMINOR=0\nDEVNAME=vda\n",
    );
    tree.attribute("/devices/x/block/vda", "serial", "s1");
    tree.device("/devices/x/block/vda/vda1", "block");
    tree.attribute("/devices/x/block/vda/vda1", "size", "2048\n");
    let read = |node: &str| {
        let mut head = vec![0; 70_000];
        match node {
            "vda" => head[512..520].copy_from_slice(b"EFI PART"),
            "vda1" => {
                head[..4].copy_from_slice(b"XFSB");
                head[32] = 1;
                head[108..115].copy_from_slice(b"a b/c\xc3\xa4");
            }
            _ => return None,
        }
        Some(head)
    };
    let event = event(VDA1);
    let found = properties(&Sysfs::new(tree.path()), &event, read);
    let get = |key: &str| found.get(key).map_or("", String::as_str);
    assert_eq!(get("ID_PART_ENTRY_SCHEME"), "gpt");
    assert_eq!(
        (get("ID_FS_TYPE"), get("ID_FS_USAGE")),
        ("xfs", "filesystem")
    );
    let plan = plan(&event, found.clone());
    assert_eq!(
        links(&plan),
        [
            "block/254:1",
            "disk/by-diskseq/9-part1",
            "disk/by-id/virtio-s1-part1",
            "disk/by-label/a\\x20b\\x2fc\u{e4}",
            "disk/by-partlabel/EFI",
            "disk/by-partuuid/ab-01",
            "disk/by-uuid/01000000-0000-0000-0000-000000000000",
        ]
    );
    assert_eq!(
        plan.permission.map(|p| (p.mode, p.uid, p.gid)),
        Some((0o660, 0, 6))
    );
}

#[test]
fn disks_of_every_bus_get_their_links() {
    let disk = "ACTION=add\nDEVPATH=/devices/x/nvme0n1\nSUBSYSTEM=block\nMAJOR=259\nMINOR=0\n\
                DEVNAME=nvme0n1\nDEVTYPE=disk";
    let nvme = [
        ("ID_BUS", "nvme"),
        ("ID_SERIAL", "M_S"),
        ("ID_NSID", "1"),
        ("ID_WWN", "eui.01"),
        ("ID_PATH", "pci-0000:00:06.0-nvme-1"),
    ];
    assert_eq!(
        links(&plan(&event(disk), props(&nvme))),
        [
            "block/259:0",
            "disk/by-id/nvme-M_S",
            "disk/by-id/nvme-M_S_1",
            "disk/by-id/nvme-eui.01",
            "disk/by-path/pci-0000:00:06.0-nvme-1",
        ]
    );
    let dm = "ACTION=change\nDEVPATH=/devices/virtual/block/dm-0\nSUBSYSTEM=block\nMAJOR=253\n\
              MINOR=0\nDEVNAME=dm-0\nDEVTYPE=disk";
    let mapped = plan(
        &event(dm),
        props(&[("DM_NAME", "vg-lv"), ("DM_UUID", "LVM-x")]),
    );
    assert_eq!(
        links(&mapped),
        [
            "block/253:0",
            "disk/by-id/dm-name-vg-lv",
            "disk/by-id/dm-uuid-LVM-x",
            "mapper/vg-lv"
        ]
    );
    assert_eq!(mapped.priority, 50);
    let named = props(&[("ID_FS_USAGE", "filesystem"), ("ID_FS_UUID_ENC", "u")]);
    let on_loop = plan(&event(&dm.replace("dm-0", "loop0")), named.clone());
    assert_eq!(
        links(&on_loop),
        ["block/253:0"],
        "a loop device takes no disk's name"
    );
    assert!(plan(&event(dm), named).links.contains("disk/by-uuid/u"));
}

#[test]
fn character_devices_get_links_and_permissions() {
    let device = |subsystem: &str, name: &str| {
        event(&format!(
            "ACTION=add\nDEVPATH=/devices/v/{name}\nSUBSYSTEM={subsystem}\nMAJOR=10\nMINOR=1\n\
             DEVNAME={name}\nMODALIAS=char-major-10-1"
        ))
    };
    let mode = |subsystem: &str, name: &str| {
        plan(&device(subsystem, name), Properties::new())
            .permission
            .map(|p| (p.mode, p.gid))
    };
    assert_eq!(mode("misc", "kvm"), Some((0o666, 0)));
    assert_eq!(mode("tty", "ttyS0"), Some((0o660, 20)));
    assert_eq!(mode("tty", "tty1"), Some((0o620, 5)));
    assert_eq!(mode("tty", "console"), Some((0o600, 5)));
    assert_eq!(mode("misc", "cpu_dma_latency"), None);
    assert_eq!(
        [super::static_mode("net/tun"), super::static_mode("ppp")],
        [0o666, 0o600]
    );
    let rtc = plan(&device("rtc", "rtc0"), Properties::new());
    assert_eq!(
        (links(&rtc), rtc.modules.clone()),
        (vec!["char/10:1", "rtc"], vec!["char-major-10-1".to_owned()])
    );
    let port = props(&[("ID_PORT_NAME", "../org.qemu")]);
    let port = plan(&device("virtio-ports", "vport1p1"), port);
    assert_eq!(links(&port), ["char/10:1", "virtio-ports/..\\x2forg.qemu"]);
}

#[test]
fn removal_and_change_load_nothing() {
    let text = "ACTION=change\nDEVPATH=/devices/p\nSUBSYSTEM=pci\nMODALIAS=pci:v1";
    assert_eq!(plan(&event(text), Properties::new()), Plan::default());
    let added = plan(&event(&text.replace("change", "add")), Properties::new());
    assert_eq!(added.modules, ["pci:v1"]);
    let removed = event(&text.replace("change", "remove"));
    let tree = Tree::new();
    assert_eq!(
        properties(&Sysfs::new(tree.path()), &removed, |_| None),
        Properties::new()
    );
}
