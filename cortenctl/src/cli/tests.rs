//! The meaning of command lines.

mod docs;
mod reference;

use std::path::PathBuf;

use corten_client::endpoint::Endpoint;
use corten_generate::args::{GenVerb, OutputType};
use corten_operate::args::{ImageNamespace, ImageVerb};

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("cortenctl").chain(line.split_whitespace()))
}

/// The program's verdict on a line: refused or not.
fn asked(line: &str) -> Result<Cli, Failure> {
    let words = std::iter::once("cortenctl").chain(line.split_whitespace());
    read(&command().try_get_matches_from(words).unwrap())
}

#[test]
fn the_command_line_is_consistent() {
    command().debug_assert();
}

#[test]
fn nodes_and_endpoints_repeat_and_split_at_commas() {
    let cli = parse("-e a,b:1 memory -n x -n y,z --talosconfig /f").unwrap();
    let hosts: Vec<&str> = cli.global.endpoints.iter().map(Endpoint::host).collect();
    // Given before the verb.
    assert_eq!(hosts, ["a", "b"]);
    assert_eq!(cli.global.nodes, ["x", "y", "z"]);
    assert_eq!(cli.global.cortenconfig, Some("/f".into()));
}

/// Lines of scripts there are.
const EXISTING: &[&str] = &[
    "gen config c https://h:6443 -o /d --additional-sans a,b --force",
    "gen config c https://h:6443 --output /d",
    "apply-config -i -n 10.0.0.1 -f c.yaml -m no-reboot --cert-fingerprint x",
    "apply -f c.yaml -p @a.yaml --config-patch machine:{} --dry-run",
    "gen config c https://h:6443 --config-patch @a --config-patch-worker @b --config-patch-control-plane @c --with-secrets s.yaml",
    "gen secrets -o s.yaml --force",
    "machineconfig patch c.yaml -p @a.yaml --patch x:1 -o out.yaml",
    "mc patch -p @a.yaml -",
    "validate -c c.yaml -m cloud --strict",
    "validate --config c.yaml --mode metal",
    "services",
    "get members",
    "get addresses --namespace network -o yaml -w",
    "get machinestatus machine -o json",
    "service etcd status",
    "ps -s cpu",
    "free -o json",
    "dmesg -f --tail",
    "logs apid -f --tail 10",
    "logs apid --tail -1",
    "events --tail -1",
    "events --duration 5m --actor-id x",
    "events --since 9m4e2mr0ui3e8a215n4g",
    "meta write 0x0a x",
    "meta delete 12",
    "logs apid --previous --tail 5",
    "dmesg --previous",
    "reboot -m powercycle",
    "reboot --wait=false --timeout 5m",
    "config context x",
    "config node a b",
    "config endpoint 10.0.0.1 10.0.0.2:50000",
    "config merge file",
    "config remove x -y",
    "config new x.yaml --roles os:reader --crt-ttl 24h",
    "gen ca --organization x --hours 10",
    "gen crt --ca x --csr y.csr --name z",
    "ls -l -r -d 3 -t f -t d,l /var",
    "du -a -H -d 1 -t -100 /var /etc",
    "df -b -i EPHEMERAL -o json",
    "cat /etc/hosts",
    "cp /var/log -",
    "ss -t -u -U -w -4 -6 -a -p -x -o -k -v",
    "pcap -i eth0 -s 100 --promiscuous --duration 10s -o x",
    "stats -k",
    "containers --kubernetes",
    "c -k",
    "logs -k default/web:nginx -f",
    "cgroups --preset psi",
    "time --check x",
    "health --wait-timeout 1m --control-plane-nodes a,b --worker-nodes c",
    "image ls --namespace system",
    "images pull x",
    "image default",
    "image k8s-bundle --k8s-version 1.36.4 --etcd-version v3.6.1 --coredns-version 1.14.0 --flannel-version 0.28.0 --kube-network-policies-version 1.0.0",
    "conformance kubernetes",
    "conformance k8s --mode certified --image r/conformance:v1.37.2 --timeout 6h",
    "conformance kubernetes --mode network-policy",
    "inspect dependencies",
    "get rd -o jsonpath={.spec}",
    "get -i disks -n 10.0.0.1",
    "version -i",
    "patch mc -p @a -p @b -m staged",
    "edit machineconfig --mode try --timeout 2m",
    "reset --graceful=false --reboot --wait --system-labels-to-wipe STATE,EPHEMERAL",
    "reset --wipe-mode user-disks --user-disks-to-wipe /dev/vdb,/dev/vdc --timeout 5m",
    "wipe disk vdb vdb1 --method ZEROES --drop-partition -i -n 10.0.0.1",
    "install --insecure --disk /dev/vda --wipe -n 10.0.0.1",
    "install -i --disk /dev/vda --image registry.example.org/installer:1",
    "install --disk /dev/vda --file installer.tar",
    "wipe disk vdb --skip-volume-check --skip-secondary-check --method fast",
    "upgrade -i x -m powercycle -s -f --preserve --wait",
    "rollback",
    "upgrade-k8s --to 1.37.2 --from v1.36.4 --dry-run --endpoint https://h:6443 --pre-pull-images=false",
    "upgrade-k8s --upgrade-kubelet=false --apiserver-image r/a --kubelet-image r/k --scheduler-image r/s",
    "upgrade-k8s --proxy-image r/p --controller-manager-image r/c --manifests-reconcile-timeout 0 --manifests-no-prune",
    "bootstrap --recover-from x --recover-skip-hash-check",
    "kubeconfig -f -m=false --force-context-name x dir",
    "etcd alarm disarm",
    "etcd downgrade enable 3.5",
    "etcd remove-member 8e9e05c52164694d",
    "support -O x.zip",
    "rotate-ca --control-plane-nodes a,b --worker-nodes c --dry-run=false --kubernetes=false -o x",
    "rotate-ca --talos=false --kubernetes --k8s-endpoint https://h:6443",
    "dashboard -d 1s",
    "completion bash",
    "version --short --client",
    "processes -w",
    "p -s cpu",
    "time -c x",
    "gen ca --organization x -f",
    "gen -f ca --organization x",
    "mc gen c https://h:6443",
    "meta -i write 10 x -n 10.0.0.1",
    "meta delete 10 -i -n 10.0.0.1",
    "dmesg -i -n 10.0.0.1",
    "logs machined -i",
    "m -i -v",
    "service -i",
    "support -i -v --no-encryption",
    "inspect dependencies --with-resources",
    "cgroups --preset cpu --skip-cri-resolve",
    "health --init-node a --control-plane-nodes b",
    "patch mc v1alpha1 --namespace config -p x",
    "edit machineconfig v1alpha1",
    "rotate-ca --init-node a --control-plane-nodes b --kubernetes=false",
    "netstat default/web -a",
    "wipe lv vg0/lv0",
    "wipe vg vg0 -i",
    "wipe pv /dev/sda1",
    "wipe md /dev/disk/by-id/md-name-data",
    "image --namespace system list",
    "reboot --progress plain",
    "upgrade -i x --legacy --progress auto",
    "upgrade -i x --dry-run --max-unavailable 3",
    "config info -o text",
    "inject serviceaccount -f a.yaml",
    "inject serviceaccount --roles=os:reader,os:admin -f -",
    "inject tsa -r os:etcd:backup --file a.yaml",
];

#[test]
fn command_lines_of_existing_scripts_parse() {
    for line in EXISTING {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
    }
}

#[test]
fn output_formats_are_accepted() {
    for line in [
        "version -o yaml",
        "memory -v -o jsonpath={.MemTotal}",
        "time -o json",
        "events --tail 5 -o json",
        "list -l /etc -o yaml",
        "du -o jsonpath={.size} /var",
        "cg -o json --preset io",
        "image ls -o json",
        "netstat --output jsonpath={.sockets}",
        "etcd members -o json",
        "etcd alarm list -o yaml",
        "etcd downgrade cancel -o json",
        "config info -o jsonpath={.roles}",
        "gen config c https://h:6443 -t controlplane,worker -o /d --install-image x --kubernetes-version 1.34.1",
        "gen config c https://h:6443 -t talosconfig -o -",
        "gen config c https://h:6443 --talos-version v1.10 --version v1alpha1 --with-cluster-discovery",
        "gen config c https://h:6443 --registry-mirror a=https://b --registry-mirror c=https://d",
        "gen secrets --from-controlplane-config c.yaml --talos-version v1.14 -o -",
        "gen secrets -p pki -t abcdef.0123456789abcdef --force",
    ] {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
    }
}

#[test]
fn init_node_counts_as_a_control_plane_node() {
    let Verb::Health(health) = parse("health --init-node a --control-plane-nodes b,c")
        .unwrap()
        .verb
    else {
        panic!("no health");
    };
    assert_eq!(health.control_plane_nodes, ["a", "b", "c"]);
    let Verb::RotateCa(rotate) = parse("rotate-ca --control-plane-nodes b --init-node a")
        .unwrap()
        .verb
    else {
        panic!("no rotate-ca");
    };
    assert_eq!(rotate.control_plane_nodes, ["b", "a"]);
}

#[test]
fn defaults_need_no_flag() {
    let Verb::Reboot(reboot) = parse("reboot").unwrap().verb else {
        panic!("no reboot");
    };
    assert!(reboot.wait.wait);
    let Verb::Gen(Gen {
        verb: GenVerb::Config(args),
        ..
    }) = parse("gen config c https://h:6443").unwrap().verb
    else {
        panic!("no gen config");
    };
    let all = [
        OutputType::ControlPlane,
        OutputType::Worker,
        OutputType::ClientConfig,
    ];
    assert_eq!(args.output_types, all);
}

#[test]
fn invalid_command_lines_exit_with_2() {
    for line in [
        "",
        "nonsense",
        "apply-config",
        "machineconfig patch c.yaml",
        "validate -c c.yaml -m boat",
        "logs",
        "logs a --tail -2",
        "memory -e a:b:c",
        "dmesg --tail",
        "events --tail 1 --since x",
        "meta write 0 x",
        "meta delete 256",
        "dmesg --previous -f",
        "logs a --previous -f",
        "list -d -1",
        "netstat -a -l",
        "bootstrap --recover-skip-hash-check",
        "patch mc",
        "patch hostname -p x",
        "patch mc other -p x",
        "patch mc --namespace other -p x",
        "netstat -k default/web",
        "etcd remove-member n1",
        "get x -o jsonpath={.a[",
        "get x -o wide",
        "reboot --wait maybe",
        "install",
        "install --disk /dev/vda --image a --file b",
        "upgrade -i x --max-unavailable 0",
        "wipe disk",
        "wipe disk vdb --method SLOW",
        "config add x --ca a",
        "memory -o wide",
        "events -o jsonpath={.a[",
        "gen config c https://h:6443 -o a --output-dir b",
        "gen config c https://h:6443 -t boat",
        "inject serviceaccount",
        "inject serviceaccount -f a --roles os:impersonator",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn flags_of_a_group_apply_to_its_verbs() {
    for line in [
        "gen -f ca --organization x",
        "gen ca --organization x -f",
        "gen ca --organization x --force",
    ] {
        let Verb::Gen(Gen {
            verb: GenVerb::Ca(args),
            ..
        }) = asked(line).unwrap().verb
        else {
            panic!("{line}");
        };
        assert!(args.force, "{line}");
    }
    for line in ["image --namespace system ls", "image ls --namespace system"] {
        let Verb::Image(Image {
            verb: ImageVerb::List(args),
            ..
        }) = asked(line).unwrap().verb
        else {
            panic!("{line}");
        };
        assert_eq!(args.namespace, ImageNamespace::System, "{line}");
    }
    for line in [
        "meta -i delete 10",
        "meta delete 10 -i",
        "dmesg -i",
        "--insecure logs x",
    ] {
        assert!(asked(line).unwrap().globals().insecure, "{line}");
    }
    assert!(!asked("meta delete 10").unwrap().globals().insecure);
}

#[test]
fn refused_verbs_and_flags_name_an_alternative() {
    for (line, word) in [
        ("disks -i --whatever", "get disks"),
        ("debug x --args /bin/sh", "pcap"),
        ("image cache-create --images x", "mirror"),
        ("image talos-bundle", "mkimage"),
        ("config proxy-url", "endpoint"),
        ("cluster create qemu --workers 2", "--provisioner qemu"),
        ("cluster logs", "cluster show"),
        ("reboot --debug", "dmesg"),
        (
            "gen config c https://h:6443 --with-docs",
            "docs/configuration.md",
        ),
        (
            "mc gen c https://h:6443 --with-kubespan",
            "not supported yet",
        ),
        ("-c lab memory", "--context"),
        ("memory -c lab", "--context"),
        ("memory --siderov1-keys-dir /k", "--context"),
        ("support -w 4", "leave it out"),
        ("upgrade-k8s --manifests-force", "kubectl"),
        (
            "upgrade-k8s --manifests-inventory-policy AdoptAll",
            "leave it out",
        ),
        ("upgrade-k8s --with-docs", "docs/configuration.md"),
        ("completion --no-descriptions bash", "leave it out"),
    ] {
        match asked(line) {
            Err(Failure::Usage(text)) => assert!(text.contains(word), "{line}: {text}"),
            other => panic!("{line}: {other:?}"),
        }
    }
    for line in [
        "upgrade -i x --drain=false",
        "upgrade -i x --drain --drain-timeout 1m",
        "reboot --drain --drain-timeout 1m",
        "gen config c https://h:6443 --with-docs=false --with-examples=false --with-kubespan=false",
        "validate -c x",
        "time -c x",
    ] {
        asked(line).unwrap_or_else(|failure| panic!("{line}: {failure:?}"));
    }
}

/// `UPDATE=1 cargo test -p cortenctl page` writes it.
#[test]
fn page_lists_every_refused_verb_and_flag() {
    const BEGIN: &str =
        "<!-- Below: written from the tables by `UPDATE=1 cargo test -p cortenctl page`. -->\n";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/client.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    let expected = format!("{before}{BEGIN}{}\n{after}", refused::table());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, expected).unwrap();
        return;
    }
    assert!(
        page == expected,
        "docs/client.md differs from the tables: UPDATE=1 cargo test -p cortenctl page writes it"
    );
}
