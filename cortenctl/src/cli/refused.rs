//! Verbs and flags of the reference's client that this client refuses, and the answer to each. No help shows them;
//! docs/client.md lists them.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use corten_client::failure::Failure;

const COMMENTS: &str =
    "configs are written without comments: docs/configuration.md explains every field";
const PROXY: &str = "there is no proxy for several clusters: --context selects the cluster";
const CACHE: &str = "`mkimage build --with-images` makes an image cache; the machine config sets a local registry as \
     a mirror";
const BUNDLE: &str = "no registry has images of Corten itself: `mkimage build --output installer` makes the installer; \
     `image k8s-bundle` lists the images of Kubernetes";
const UNENCRYPTED: &str = "the file is written as it is, without secrets: encrypt it before you pass it on, for example with age";
const NO_MACHINES: &str = "`cluster create --provisioner qemu` makes machines, all of one cluster";
const QEMU: &str = "`cluster create --provisioner qemu` makes the nodes in QEMU";
const DOCKER: &str = "`cluster create --provisioner docker` makes the nodes in Docker";
const PODS: &str = "use --kubernetes: it selects the containers of Kubernetes";

/// Refused verbs by their path, with the reason.
pub(super) const VERBS: &[(&str, &str)] = &[
    ("disks", "use `cortenctl get disks`"),
    ("interfaces", "use `cortenctl get addresses`"),
    ("routes", "use `cortenctl get routes`"),
    (
        "debug",
        "nodes run no debug containers yet: use `list`, `read`, `logs`, `dmesg`, `processes` and `pcap`",
    ),
    ("cluster create dev", QEMU),
    ("cluster create docker", DOCKER),
    ("cluster create qemu", QEMU),
    (
        "cluster logs",
        "`cluster show --name NAME` names the console of each node",
    ),
    (
        "cluster reboot",
        "`cortenctl -n NODE reboot` reboots a node in a container, too",
    ),
    (
        "cluster sync",
        "nodes keep the configs of their creation: `apply-config` changes one",
    ),
    ("remote-provision-launch", NO_MACHINES),
    (
        "config proxy-url",
        "proxies are not supported: set a reachable endpoint with `config endpoint`",
    ),
    (
        "gen keypair",
        "`gen ca` makes a CA; `gen key`, `gen csr` and `gen crt` make a key and a certificate it signs",
    ),
    (
        "gen secureboot",
        "`mkimage keys DIR` makes the keys of Secure Boot, see docs/building.md",
    ),
    ("image cache-cert-gen", CACHE),
    ("image cache-create", CACHE),
    ("image cache-serve", CACHE),
    ("image talos-bundle", BUNDLE),
];

/// The values of a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// None, or `=true`. `=false` is accepted.
    Nothing,
    Value,
}

/// A flag that is refused.
pub(super) struct Flag {
    /// Paths of the verbs; empty for every verb.
    verbs: &'static [&'static str],
    short: Option<char>,
    /// Name with dashes, so that no other argument has the same ID.
    name: &'static str,
    takes: Takes,
    why: &'static str,
}

const fn flag(
    verbs: &'static [&'static str],
    name: &'static str,
    takes: Takes,
    why: &'static str,
) -> Flag {
    Flag {
        verbs,
        short: None,
        name,
        takes,
        why,
    }
}

impl Flag {
    const fn or(mut self, short: char) -> Flag {
        self.short = Some(short);
        self
    }

    fn is_of(&self, path: &str) -> bool {
        self.verbs.is_empty() || self.verbs.contains(&path)
    }

    /// The argument for a command. It has the short flag only if no other argument of the command has it.
    fn argument(&self, command: &Command) -> Arg {
        let letter = |short: &char| {
            let mut taken = command.get_arguments().filter_map(Arg::get_short);
            taken.all(|other| other != *short)
        };
        let argument = Arg::new(self.name)
            .long(self.name.trim_start_matches('-'))
            .hide(true);
        let argument = match self.short.filter(letter) {
            Some(short) => argument.short(short),
            None => argument,
        };
        match self.takes {
            Value => argument
                .action(ArgAction::Append)
                .value_parser(value_parser!(OsString)),
            Nothing => argument
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .value_parser(value_parser!(bool)),
        }
    }

    fn is_asked(&self, matches: &ArgMatches) -> bool {
        let off = || self.takes == Nothing && matches.get_one(self.name) == Some(&false);
        matches.value_source(self.name) == Some(ValueSource::CommandLine) && !off()
    }
}

use Takes::{Nothing, Value};

/// Refused flags, with the reason.
pub(super) const FLAGS: &[Flag] = &[
    flag(&[], "--cluster", Value, PROXY).or('c'),
    flag(&[], "--siderov1-keys-dir", Value, PROXY),
    flag(
        &[],
        "--debug",
        Nothing,
        "there is no further output: `dmesg --follow` in another terminal shows the kernel log",
    ),
    flag(
        &["upgrade"],
        "--namespace",
        Value,
        "the node chooses the namespace of the installer's image; leave it out",
    ),
    flag(
        &["cgroups"],
        "--schema-file",
        Value,
        "schema files are not supported: --preset selects columns, and -o jsonpath= selects cells",
    ),
    flag(
        &["containers", "stats", "restart", "logs"],
        "--use-cri",
        Nothing,
        PODS,
    ),
    flag(
        &["gen ca"],
        "--rsa",
        Nothing,
        "this client makes CAs with Ed25519 keys alone: make one with an RSA key with a tool such as openssl",
    ),
    flag(
        &["gen config", "machineconfig gen"],
        "--with-kubespan",
        Nothing,
        "KubeSpan is not supported yet: a node would refuse the config",
    ),
    flag(
        &["gen config", "machineconfig gen", "rotate-ca", "upgrade-k8s"],
        "--with-docs",
        Nothing,
        COMMENTS,
    ),
    flag(
        &["gen config", "machineconfig gen", "rotate-ca", "upgrade-k8s"],
        "--with-examples",
        Nothing,
        COMMENTS,
    ),
    flag(
        &["health"],
        "--run-e2e",
        Nothing,
        "use `cortenctl conformance kubernetes`",
    ),
    flag(&["support"], "--encryption-recipients", Value, UNENCRYPTED),
    flag(
        &["support"],
        "--encryption-no-default-recipients",
        Nothing,
        UNENCRYPTED,
    ),
    flag(
        &["support"],
        "--num-workers",
        Value,
        "a node sends one source at a time, which limits the load of a node in trouble; leave it out",
    )
    .or('w'),
    flag(
        &["upgrade-k8s"],
        "--manifests-force",
        Nothing,
        "objects are never deleted and made again: the verb names an object that the cluster refuses to change; \
         delete it with kubectl, and repeat the verb",
    ),
    flag(
        &["upgrade-k8s"],
        "--manifests-inventory-policy",
        Value,
        "objects of the manifests are always adopted, and the inventory lists them; leave it out",
    ),
    flag(&["version"], "--json", Nothing, "use -o json"),
    flag(
        &["completion"],
        "--no-descriptions",
        Nothing,
        "completions have descriptions if the shell shows them; leave it out",
    ),
];

fn below(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path} {name}")
    }
}

/// The command line with the refused verbs and flags as hidden arguments.
pub(super) fn with(command: Command) -> Command {
    add(command, "")
}

fn add(command: Command, path: &str) -> Command {
    let flags = FLAGS.iter().filter(|flag| flag.is_of(path));
    let command = flags.fold(command, |command, flag| {
        let argument = flag.argument(&command);
        command.arg(argument)
    });
    let command = command.mut_subcommands(|sub| {
        let path = below(path, sub.get_name());
        add(sub, &path)
    });
    let verbs = VERBS.iter().filter_map(|(verb, _)| {
        let (parent, name) = verb.rsplit_once(' ').unwrap_or(("", verb));
        (parent == path).then_some(name)
    });
    verbs.fold(command, |command, name| command.subcommand(verb(name)))
}

/// A verb that accepts all further arguments.
fn verb(name: &'static str) -> Command {
    let rest = Arg::new("rest")
        .num_args(0..)
        .trailing_var_arg(true)
        .allow_hyphen_values(true)
        .value_parser(value_parser!(OsString));
    Command::new(name)
        .hide(true)
        .disable_help_flag(true)
        .arg(rest)
}

/// Refuses a line with a refused verb or flag.
///
/// # Errors
/// The first refused verb or flag from the left, with the reason.
pub(super) fn check(matches: &ArgMatches) -> Result<(), Failure> {
    let (mut path, mut at) = (String::new(), matches);
    loop {
        let mut flags = FLAGS.iter().filter(|flag| flag.is_of(&path));
        if let Some(flag) = flags.find(|flag| flag.is_asked(at)) {
            return Err(Failure::usage(format!("{}: {}", flag.name, flag.why)));
        }
        let Some((name, sub)) = at.subcommand() else {
            return Ok(());
        };
        path = below(&path, name);
        if let Some((verb, why)) = VERBS.iter().find(|(verb, _)| *verb == path) {
            return Err(Failure::usage(format!("{verb}: {why}")));
        }
        at = sub;
    }
}

#[cfg(test)]
pub(super) fn table() -> String {
    let verbs = VERBS
        .iter()
        .map(|(verb, why)| format!("| `{verb}` | {why} |\n"));
    let flags = FLAGS.iter().map(|flag| {
        let of = match flag.verbs {
            [] => "every verb".to_owned(),
            some => some
                .iter()
                .map(|verb| format!("`{verb}`"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        format!("| `{}` of {of} | {} |\n", flag.name, flag.why)
    });
    let rows: String = verbs.chain(flags).collect();
    format!("| refused | reason and alternative |\n|---|---|\n{rows}")
}
