//! What lines mean.

use clap::{CommandFactory as _, Parser as _};

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("cortenctl").chain(line.split_whitespace()))
}

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
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

#[test]
fn aliases_and_short_flags_of_existing_scripts() {
    for line in [
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
        "inspect dependencies",
        "get rd -o jsonpath={.spec}",
        "get -i disks -n 10.0.0.1",
        "version -i",
        "patch mc -p @a -p @b -m staged",
        "edit machineconfig --mode try --timeout 2m",
        "reset --graceful=false --reboot --wait --system-labels-to-wipe STATE,EPHEMERAL",
        "reset --wipe-mode user-disks --user-disks-to-wipe /dev/vdb,/dev/vdc --timeout 5m",
        "wipe disk vdb vdb1 --method ZEROES --drop-partition -i -n 10.0.0.1",
        "wipe disk vdb --skip-volume-check --skip-secondary-check --method fast",
        "upgrade -i x -m powercycle -s -f --preserve --wait",
        "rollback",
        "bootstrap --recover-from x --recover-skip-hash-check",
        "kubeconfig -f -m=false --force-context-name x dir",
        "etcd alarm disarm",
        "etcd downgrade enable 3.5",
        "etcd remove-member 8e9e05c52164694d",
        "support -O x.zip",
        "rotate-ca --control-plane-nodes a,b --worker-nodes c --dry-run=false --kubernetes=false -o x",
        "dashboard -d 1s",
        "completion bash",
        "disks -i --whatever",
        "version --short --client",
    ] {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
    }
}

#[test]
fn forms_of_output_and_flags_that_are_refused_later() {
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
        "gen config c https://h:6443 --talos-version v1.10 --version v1alpha1 --with-docs=false --with-examples=false --with-kubespan=false --with-cluster-discovery",
        "gen config c https://h:6443 --registry-mirror a=https://b --registry-mirror c=https://d",
        "gen secrets --from-controlplane-config c.yaml --talos-version v1.14 -o -",
        "gen secrets -p /etc/kubernetes/pki -t a.b",
        "reboot --drain --drain-timeout 5m --debug",
        "upgrade -i x --drain=false --debug",
        "memory --cluster lab --siderov1-keys-dir /k",
    ] {
        assert!(parse(line).is_ok(), "{line}: {:?}", parse(line).err());
    }
}

#[test]
fn what_is_usual_needs_no_flag() {
    let Verb::Reboot(reboot) = parse("reboot").unwrap().verb else {
        panic!("no reboot");
    };
    assert!(reboot.wait.wait && !reboot.drain.drain);
    let Verb::Gen(Gen::Config(args)) = parse("gen config c https://h:6443").unwrap().verb else {
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
fn wrong_lines_exit_with_2() {
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
        "etcd remove-member n1",
        "get x -o jsonpath={.a[",
        "get x -o wide",
        "reboot --wait maybe",
        "wipe disk",
        "wipe disk vdb --method SLOW",
        "config add x --ca a",
        "memory -o wide",
        "events -o jsonpath={.a[",
        "gen config c https://h:6443 -o a --output-dir b",
        "gen config c https://h:6443 -t boat",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}
