//! Verbs and flags of the reference's client that are refused: what each is answered. They are not in any help,
//! and docs/client.md lists them.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::failure::Failure;

const COMMENTS: &str =
    "configs are written without comments: docs/configuration.md explains every field";
const PROXY: &str =
    "these nodes have no proxy of several clusters in front of them: --context chooses the cluster";
const CACHE: &str = "`mkimage build --with-images` makes an image cache; a registry beside the nodes is a mirror of the \
     machine config";
const BUNDLE: &str = "nodes need no images but those of their config: `image list --namespace system` shows what one has";
const UNENCRYPTED: &str = "the file is written as it is, without secrets: encrypt it before you pass it on, for example with age";
const NO_MACHINES: &str = "this client starts no machines: `make run` of the source tree starts one in QEMU, see docs/building.md";
const PROVISIONERS: &str = "`cluster create` makes nodes out of namespaces, without Docker; `make run` of the source tree starts a \
     machine in QEMU, see docs/building.md";
const PODS: &str = "--kubernetes asks for the containers of Kubernetes, whoever runs them";

/// Verbs by their path, and why.
pub(super) const VERBS: &[(&str, &str)] = &[
    ("disks", "use `cortenctl get disks`"),
    ("interfaces", "use `cortenctl get addresses`"),
    ("routes", "use `cortenctl get routes`"),
    (
        "debug",
        "a node runs no container for debugging yet: `list`, `read`, `logs`, `dmesg`, `processes` and `pcap` look \
         into it",
    ),
    (
        "conformance",
        "the suite is not built here: run Kubernetes' own `e2e.test` with the file of `cortenctl kubeconfig`",
    ),
    (
        "inject",
        "pods have no access to the node API by themselves yet: `config new --roles` makes a client config for a program",
    ),
    ("cluster create dev", PROVISIONERS),
    ("cluster create docker", PROVISIONERS),
    ("cluster create qemu", PROVISIONERS),
    (
        "cluster logs",
        "each node's console is a file: `cluster show --name NAME` names it",
    ),
    (
        "cluster reboot",
        "`cortenctl -n NODE reboot` reboots a node in a container, too",
    ),
    (
        "cluster sync",
        "nodes keep the configs they were made with: `apply-config` changes one",
    ),
    ("remote-provision-launch", NO_MACHINES),
    (
        "config proxy-url",
        "connections are made without a proxy: name an endpoint that can be reached, with `config endpoint`",
    ),
    (
        "gen keypair",
        "`gen ca` makes an authority; `gen key`, `gen csr` and `gen crt` make a key and a certificate it signs",
    ),
    (
        "gen secureboot",
        "`mkimage keys DIR` makes the keys of Secure Boot, see docs/building.md",
    ),
    ("image cache-cert-gen", CACHE),
    ("image cache-create", CACHE),
    ("image cache-serve", CACHE),
    ("image default", BUNDLE),
    ("image k8s-bundle", BUNDLE),
    ("image talos-bundle", BUNDLE),
];

/// What a flag takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// Nothing, or `=true`; with `=false` there is nothing to refuse
    Nothing,
    Value,
}

/// A flag that is refused.
pub(super) struct Flag {
    /// The verbs' paths; none are all verbs
    verbs: &'static [&'static str],
    short: Option<char>,
    /// Its name, with dashes: no argument of another kind has such an id
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

    /// Its argument of a command, where it has the letter unless another flag does.
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

/// Flags, and why.
pub(super) const FLAGS: &[Flag] = &[
    flag(&[], "--cluster", Value, PROXY).or('c'),
    flag(&[], "--siderov1-keys-dir", Value, PROXY),
    flag(
        &[],
        "--debug",
        Nothing,
        "there is nothing more to tell: `dmesg --follow` shows the kernel's messages, in another terminal",
    ),
    flag(
        &["upgrade"],
        "--namespace",
        Value,
        "the node knows where it keeps the installer's image; leave it out",
    ),
    flag(
        &["cgroups"],
        "--schema-file",
        Value,
        "such a file is a program of another template language: --preset chooses columns, and -o jsonpath= cells of \
         them",
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
        "authorities of the node API are of Ed25519: for others use a tool such as openssl",
    ),
    flag(
        &["gen config", "machineconfig gen"],
        "--with-kubespan",
        Nothing,
        "it waits for a later version: a node would refuse the config",
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
        &["gen secrets"],
        "--from-kubernetes-pki",
        Value,
        "secrets of a running Kubernetes cluster cannot be taken over yet: make new ones, and move the workloads",
    )
    .or('p'),
    flag(
        &["gen secrets"],
        "--kubernetes-bootstrap-token",
        Value,
        "secrets of a running Kubernetes cluster cannot be taken over yet: make new ones, and move the workloads",
    )
    .or('t'),
    flag(
        &["health"],
        "--run-e2e",
        Nothing,
        "the suite is not built here: run Kubernetes' own `e2e.test` with the file of `cortenctl kubeconfig`",
    ),
    flag(
        &["rotate-ca"],
        "--k8s-endpoint",
        Value,
        "only the authority of the node API is rotated, and Kubernetes not asked; leave it out",
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
        "a node is asked for one thing after the other, as one in trouble can bear; leave it out",
    )
    .or('w'),
    flag(
        &["upgrade-k8s"],
        "--manifests-force",
        Nothing,
        "no object is deleted to be made anew: the verb names one that the cluster does not change; delete it with \
         kubectl, and call the verb again",
    ),
    flag(
        &["upgrade-k8s"],
        "--manifests-inventory-policy",
        Value,
        "objects of the manifests are always taken over, and the inventory lists them; leave it out",
    ),
    flag(&["version"], "--json", Nothing, "use -o json"),
    flag(
        &["completion"],
        "--no-descriptions",
        Nothing,
        "completions have descriptions where a shell shows them; leave it out",
    ),
];

fn below(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path} {name}")
    }
}

/// The command line with everything that is refused, hidden.
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

/// A verb that takes whatever follows.
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

/// Refuses a line that asks for one of them.
///
/// # Errors
/// The first of them, from left to right of the verbs, with why.
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
    format!("| refused | why, and what to do |\n|---|---|\n{rows}")
}
