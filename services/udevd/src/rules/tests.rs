use super::{Problem, Rules, World};
use crate::database::{Database, Record};
use crate::event::{Event, Properties};
use crate::plan::{Permission, Plan, Write};
use crate::sysfs::Sysfs;
use crate::testing::Tree;
use std::fs;

const PCI: &str = "/devices/pci0/0000:00:05.0";
const UNIT: &str = "/devices/pci0/0000:00:05.0/host0/target0:0:0/0:0:0:1";
const SDA: &str = "/devices/pci0/0000:00:05.0/host0/target0:0:0/0:0:0:1/block/sda";

/// A machine with one SCSI disk, its partition, and an interface.
pub(super) struct Machine {
    pub(super) tree: Tree,
    pub(super) run: tempfile::TempDir,
    pub(super) proc: tempfile::TempDir,
    old: Record,
}

impl Machine {
    pub(super) fn new() -> Self {
        let (tree, proc) = (Tree::new(), tempfile::tempdir().unwrap());
        tree.device(PCI, "pci")
            .device(UNIT, "scsi")
            .device(SDA, "block");
        tree.attribute(PCI, "vendor", "0x1af4\n");
        tree.attribute(UNIT, "vendor", "QEMU    \n")
            .attribute(UNIT, "type", "0\n");
        tree.attribute(UNIT, "model", "A/B $x;*\n");
        tree.attribute(SDA, "size", "2048\n")
            .attribute(SDA, "queue/rotational", "1\n");
        tree.attribute(
            SDA,
            "uevent",
            "MAJOR=8\nMINOR=0\nDEVNAME=sda\nDEVTYPE=disk\n",
        );
        tree.device(&format!("{SDA}/sda1"), "block");
        tree.device("/devices/virtual/net/eth0", "net");
        fs::create_dir_all(proc.path().join("sys/vm")).unwrap();
        fs::write(proc.path().join("sys/vm/swappiness"), "60\n").unwrap();
        fs::write(proc.path().join("cmdline"), "quiet net.ifnames=0 nompath\n").unwrap();
        Self {
            tree,
            run: tempfile::tempdir().unwrap(),
            proc,
            old: Record::default(),
        }
    }

    fn plan(&self, rules: &str, event: &str, start: Plan) -> Plan {
        let (mut all, mut problems) = (Rules::default(), Vec::new());
        all.add("test.rules", rules.as_bytes(), &mut problems);
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert!(problems.is_empty(), "{rules}: {problems:?}");
        let (sysfs, database) = (Sysfs::new(self.tree.path()), Database::new(self.run.path()));
        let world = World {
            sysfs: &sysfs,
            database: &database,
            proc: self.proc.path(),
            read: &|_| None,
        };
        let event = Event::parse(event.as_bytes()).unwrap();
        all.apply(&world, &event, start, Some(&self.old))
    }

    /// The plan of an `add` of the disk.
    fn disk(&self, rules: &str) -> Plan {
        self.plan(rules, &disk("add"), Plan::default())
    }

    /// Whether the conditions hold for the disk.
    fn holds(&self, conditions: &str) -> bool {
        self.disk(&format!("{conditions}, TAG+=\"yes\""))
            .tags
            .contains("yes")
    }

    /// The expanded value after the line `before`.
    fn value(&self, before: &str, value: &str) -> String {
        let plan = self.disk(&format!("{before}, ENV{{X}}=\"{value}\""));
        plan.properties.get("X").cloned().unwrap_or_default()
    }
}

pub(super) fn disk(action: &str) -> String {
    format!(
        "ACTION={action}\nDEVPATH={SDA}\nSUBSYSTEM=block\nMAJOR=8\nMINOR=0\nDEVNAME=sda\n\
         DEVTYPE=disk\nDISKSEQ=9"
    )
}

fn links(plan: &Plan) -> Vec<&str> {
    plan.links.iter().map(String::as_str).collect()
}

pub(super) fn told(rules: &str) -> Vec<String> {
    let mut problems: Vec<Problem> = Vec::new();
    Rules::default().add("t", rules.as_bytes(), &mut problems);
    problems.iter().map(ToString::to_string).collect()
}

/// Rules test one tag of several with `*:tag:*`.
#[test]
fn each_tag_is_enclosed_in_colons() {
    let machine = Machine::new();
    let rules = r#"
TAG+="a", TAG+="b"
ENV{TAGS}=="*:a:*", ENV{A}="yes"
ENV{TAGS}=="*:b:*", ENV{B}="yes"
ENV{TAGS}=="*:c:*", ENV{C}="yes"
"#;
    let plan = machine.disk(rules);
    let found: Vec<&str> = plan.properties.keys().map(String::as_str).collect();
    assert_eq!(found, ["A", "B"]);
    assert!(machine.holds(r#"ENV{TAGS}=="""#));
}

#[test]
fn match_keys_are_evaluated() {
    let machine = Machine::new();
    for yes in [
        r#"ACTION=="add|change", SUBSYSTEM=="block", KERNEL=="sd*[!0-9]""#,
        r#"DEVPATH=="*/host0/*", ENV{DEVTYPE}!="partition", ENV{DEVNAME}=="/dev/sda""#,
        r#"KERNEL==i"SDA", ENV{ABSENT}=="", ENV{ABSENT}!="1""#,
        r#"ATTR{size}=="2048", ATTR{queue/rotational}!="0""#,
        r#"SUBSYSTEMS=="scsi", KERNELS=="?:0:0:1", ATTRS{vendor}=="QEMU""#,
        r#"ATTRS{vendor}=="QEMU    ""#,
        r#"SUBSYSTEMS=="pci", ATTRS{vendor}=="0x1af4", DRIVERS=="""#,
        r#"TEST=="size", TEST!="whole_disk", TEST{0400}=="size""#,
        r#"SYSCTL{vm/swappiness}=="60", SYSCTL{vm.swappiness}!="1""#,
        r#"CONST{arch}=="x86-64|arm64", CONST{virt}=="none", CONST{cvm}!="sev""#,
        r#"SYMLINK!="disk/*", TAG!="seat", NAME=="", RESULT=="""#,
        r#"KERNEL==e"sd\x61""#,
    ] {
        assert!(machine.holds(yes), "{yes}");
    }
    for no in [
        r#"KERNEL=="SDA""#,
        // Each key holds, but for different devices.
        r#"SUBSYSTEMS=="pci", ATTRS{vendor}=="QEMU""#,
        // A missing attribute does not match `!=`.
        r#"ATTR{absent}!="1""#,
        r#"ATTR{queue}!="1""#,
        r#"TEST{0111}=="size""#,
        // A file name is not a pattern.
        r#"TEST=="size|uevent""#,
        r#"SUBSYSTEMS=="usb""#,
        r#"RESULT=="?*""#,
        r#"IMPORT{cmdline}="absent""#,
        r#"IMPORT{file}="/nowhere""#,
        r#"IMPORT{db}="ID_OLD""#,
    ] {
        assert!(!machine.holds(no), "{no}");
    }
}

#[test]
fn substitutions_are_expanded() {
    let machine = Machine::new();
    let long = "$kernel $number $devpath $id $driver $major $minor $parent $name $links $root $sys \
                $devnode $$ $env{DISKSEQ} $attr{size} $result.";
    let short = "%k %n %p %b %d %M %m %P %D %L %r %S %N %% %E{DISKSEQ} %s{size} %c{1}.";
    let before = r#"SUBSYSTEMS=="scsi", SYMLINK+="a b""#;
    let expected =
        |sign: &str| format!("sda  {SDA} 0:0:0:1  8 0  sda a b /dev /sys /dev/sda {sign} 9 2048 .");
    // Links are assigned after properties, so an earlier line has to assign them.
    let rules = |value: &str| format!("{before}\n{before}, ENV{{X}}=\"{value}\"");
    for (value, sign) in [(long, "$"), (short, "%")] {
        let plan = machine.disk(&rules(value));
        assert_eq!(plan.properties.get("X"), Some(&expected(sign)));
    }
    // From the selected parent, with unsafe characters replaced.
    assert_eq!(
        machine.value(r#"SUBSYSTEMS=="scsi""#, "$attr{model}"),
        "A/B $x__"
    );
    assert_eq!(machine.value(r#"KERNEL=="sda""#, "$attr{model}"), "");
    let part = disk("add")
        .replace("/sda\n", "/sda/sda1\n")
        .replace("disk", "partition");
    let plan = machine.plan(r#"SYMLINK+="$parent-part%n""#, &part, Plan::default());
    assert_eq!(links(&plan), ["sda-part1"]);
}

#[test]
fn assignments_are_applied_in_order() {
    let machine = Machine::new();
    let plan = machine.disk(
        r#"
        ENV{A}="1", ENV{A}+="2", ENV{.PRIVATE}="x"
        ENV{.PRIVATE}=="x", ENV{SEEN}="yes"
        ENV{DISKSEQ}="", ENV{GONE}="x"
        ENV{GONE}=""
        TAG+="one", TAG+="two"
        TAG-="one"
        OWNER="nobody", GROUP="disk", MODE="0640"
        OPTIONS+="link_priority=-7", OPTIONS:="nowatch"
        ATTR{queue/rotational}="0", SYSCTL{vm/swappiness}="$number"
        ATTR{../*/size}="%k"
        RUN{builtin}+="kmod load sg $env{A}"
    "#,
    );
    let expected: Properties = [("A", "1 2"), ("SEEN", "yes"), ("DISKSEQ", "")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    assert_eq!(plan.properties, expected);
    assert_eq!(
        (plan.tags.len(), plan.tags.contains("two"), plan.priority),
        (1, true, -7)
    );
    let permission = Permission {
        mode: 0o640,
        uid: 65534,
        gid: 6,
    };
    assert_eq!(plan.permission, Some(permission));
    assert_eq!(plan.modules, ["sg", "1 2"]);
    assert_eq!(plan.watch, Some(false));
    let at = |path: String| machine.tree.path().join(path.trim_start_matches('/'));
    let write = |path, value: &str| Write {
        path,
        value: value.into(),
    };
    assert_eq!(
        plan.writes,
        [
            write(at(format!("{SDA}/queue/rotational")), "0"),
            write(machine.proc.path().join("sys/vm/swappiness"), ""),
            write(at(format!("{SDA}/size")), "sda"),
        ]
    );
}

#[test]
fn unsafe_characters_in_names_are_replaced() {
    let machine = Machine::new();
    let of = |rule: &str| {
        let plan = machine.disk(rule);
        links(&plan).join(",")
    };
    assert_eq!(of(r#"SYMLINK+="a/b c;d ../up /dev/x sda""#), "a/b,c_d,x");
    // Only white space that the rule itself contains separates names.
    assert_eq!(
        of(r#"ENV{X}=" p  q/r ", SYMLINK+="by/$env{X} z""#),
        "by/p_q/r,z"
    );
    assert_eq!(
        of(r#"ENV{X}="p q", OPTIONS="string_escape=none", SYMLINK+="$env{X}""#),
        "p,q"
    );
    assert_eq!(
        of(r#"OPTIONS="string_escape=replace", SYMLINK+="a b""#),
        "a_b"
    );
    assert_eq!(of(r#"ENV{X}="\x20", SYMLINK+="l$env{X}""#), "l\\x20");
    assert_eq!(of("SYMLINK+=\"a b c\"\nSYMLINK-=\"b\""), "a,c");
    assert_eq!(
        of("SYMLINK+=\"a\"\nSYMLINK=\"b\"\nSYMLINK:=\"c\"\nSYMLINK=\"d\""),
        "c"
    );
}

#[test]
fn rules_refine_the_default_plan() {
    let machine = Machine::new();
    let start = || Plan {
        links: ["disk/by-id/x".into()].into(),
        permission: Some(Permission {
            mode: 0o660,
            uid: 0,
            gid: 6,
        }),
        modules: vec!["pci:v1".into()],
        ..Plan::default()
    };
    let plan = |rules: &str| machine.plan(rules, &disk("add"), start());
    assert_eq!(plan(""), start());
    let refined = plan(r#"SYMLINK=="disk/by-id/x", GROUP="1001", SYMLINK="", RUN="""#);
    assert_eq!(
        refined.permission,
        Some(Permission {
            mode: 0o660,
            uid: 0,
            gid: 1001
        })
    );
    assert_eq!((links(&refined).len(), refined.modules.len()), (0, 1));
    // The driver's mode, and the mode of a group.
    let driver = disk("add") + "\nDEVMODE=0622";
    let mode = |rules: &str, event: &str| {
        machine
            .plan(rules, event, Plan::default())
            .permission
            .map(|p| (p.mode, p.gid))
    };
    assert_eq!(mode(r#"GROUP="disk""#, &driver), Some((0o622, 6)));
    assert_eq!(mode(r#"GROUP="disk""#, &disk("add")), Some((0o660, 6)));
    assert_eq!(
        mode(
            "GROUP:=\"disk\"\nGROUP=\"tty\", MODE=\"$env{DISKSEQ}\"",
            &disk("add")
        ),
        Some((0o660, 6))
    );
    assert_eq!(
        mode("MODE=\"0$major\"", &disk("add")),
        None,
        "8 is no octal digit"
    );
}

#[test]
fn goto_jumps_forward_and_imports_run_before_assignments() {
    let machine = Machine::new();
    let plan = machine.disk(
        r#"# a comment
        KERNEL=="sda", GOTO="end"
        TAG+="skipped"
        LABEL="end"
        KERNEL=="sdb", GOTO="later"
        ENV{A}="$env{nompath}", \
            # a comment in between
            IMPORT{cmdline}="nompath"  ,, IMPORT{cmdline}!="absent" , \

        LABEL="later", TAG+="done"
        KERNEL=="sdb" TAG+="never"
        ENV{B}="without a line feed"\"#,
    );
    assert_eq!(plan.tags.iter().collect::<Vec<_>>(), ["done"]);
    assert_eq!(plan.properties.get("A").map(String::as_str), Some("1"));
    assert!(plan.properties.contains_key("B"));
}

#[test]
fn imports_read_files_database_command_line_and_parents() {
    let mut machine = Machine::new();
    machine.old.properties.insert("ID_OLD".into(), "x".into());
    let file = machine.run.path().join("facts");
    fs::write(&file, "# none\nA=1\nB = \"two words\"\nbroken\n").unwrap();
    let database = Database::new(machine.run.path());
    let parent = Record {
        properties: [("ID_BUS".into(), "scsi".into()), ("DM".into(), "1".into())].into(),
        ..Record::default()
    };
    database.store("b8:0", &parent).unwrap();
    let part = disk("add")
        .replace("/sda\n", "/sda/sda1\n")
        .replace("MINOR=0", "MINOR=1");
    let rules = format!(
        "IMPORT{{file}}=\"{}\", IMPORT{{db}}=\"ID_OLD\", IMPORT{{parent}}=\"ID_*\"\n\
         IMPORT{{cmdline}}=\"net.ifnames\"\n\
         IMPORT{{builtin}}=\"path_id\", ENV{{PLACE}}=\"$env{{ID_PATH}}\"\n\
         IMPORT{{program}}=\"scsi_id --export -d $devnode\", TAG+=\"never\"\n",
        file.display()
    );
    let plan = machine.plan(&rules, &part, Plan::default());
    let get = |key: &str| plan.properties.get(key).map_or("", String::as_str);
    assert_eq!((get("A"), get("B"), get("ID_OLD")), ("1", "two words", "x"));
    assert_eq!(
        (get("ID_BUS"), get("DM"), get("net.ifnames")),
        ("scsi", "", "0")
    );
    assert!(
        get("PLACE").starts_with("pci-0000:00:05.0-scsi-"),
        "{}",
        get("PLACE")
    );
    assert!(plan.tags.is_empty());
    let dm = machine.disk(
        r#"IMPORT{program}="/usr/sbin/dmsetup udevflags 4194304"
        IMPORT{program}="dmsetup splitname --rows v--g-lv", SYMLINK+="$env{DM_VG_NAME}/x""#,
    );
    let primary = dm.properties.get("DM_UDEV_PRIMARY_SOURCE_FLAG");
    assert_eq!(primary.map(String::as_str), Some("1"));
    assert_eq!(links(&dm), ["v-g/x"]);
}

#[test]
fn only_network_interfaces_are_renamed() {
    let machine = Machine::new();
    let event = "ACTION=add\nDEVPATH=/devices/virtual/net/eth0\nSUBSYSTEM=net\nIFINDEX=2";
    let name = |rules: &str| machine.plan(rules, event, Plan::default()).name;
    assert_eq!(
        name(r#"KERNEL=="eth0", NAME="lan0""#).as_deref(),
        Some("lan0")
    );
    assert_eq!(
        name("NAME:=\"a\"\nNAME=\"b\"\nNAME==\"a\", TAG+=\"x\"").as_deref(),
        Some("a")
    );
    for refused in ["a/b", "sixteen-letters-", "..", "12", "a:1", "all", "a%%d"] {
        assert_eq!(name(&format!("NAME=\"{refused}\"")), None, "{refused}");
    }
    assert_eq!(machine.disk(r#"NAME="x""#).name, None);
}

#[test]
fn removed_device_gets_no_new_settings() {
    let machine = Machine::new();
    let gone = Plan {
        links: ["old".into()].into(),
        ..Plan::default()
    };
    let rules = "ACTION==\"remove\", SYMLINK==\"old\", SYMLINK+=\"new\", ENV{A}=\"1\"";
    let plan = machine.plan(rules, &disk("remove"), gone);
    assert_eq!((links(&plan), plan.properties.len()), (vec!["old"], 1));
}
