//! `netstat`: sockets of nodes and of pods.

use corten_api::machine::connect_record::{State, TimerActive};
use corten_api::machine::netstat_request::{Feature, Filter, L4proto, NetNs};
use corten_api::machine::{ConnectRecord, Netstat as Answer, NetstatRequest};
use corten_client::answers::{Answers, ask};
use corten_client::clients::Machine;
use corten_client::connect::{Route, opened};
use corten_client::failure::Failure;
use corten_client::output::show;
use corten_client::stream::{Failed, each};
use corten_client::table::{Table, printable};
use serde_json::{Value, json};

use crate::cli::{Kubernetes, Netstat};
use crate::verbs::containers;

/// Nodes, network namespaces there, and the pods they belong to.
type Pods = Vec<(String, String, String)>;

pub(crate) async fn run(routes: Vec<Route>, args: &Netstat) -> Result<(), Failure> {
    let body = request(args);
    if args.verbose {
        eprintln!("asking for {}", asked(&body));
    }
    let mut names = Pods::new();
    if args.pods {
        let (pods, failed) = pods(routes.clone()).await?;
        names = pods;
        for (node, why) in &failed {
            let (node, why) = (printable(node), printable(why));
            eprintln!("{node}: the names of its pods are unknown: {why}");
        }
    }
    let answers = match &args.pod {
        Some(pod) => of_pod(routes, &body, pod).await?,
        None => {
            let call = |mut client: Machine, request| async move { client.netstat(request).await };
            ask(routes, body, call).await?
        }
    };
    show(
        answers,
        &args.output,
        |messages| table(messages, args, &names).render(),
        fields,
    )
}

/// The sockets of a pod, from the pod's node.
async fn of_pod(
    routes: Vec<Route>,
    body: &NetstatRequest,
    pod: &str,
) -> Result<Answers<Answer>, Failure> {
    let (pods, mut failed) = pods(routes.clone()).await?;
    let mut good = Vec::new();
    let late = each(opened(&routes), async |node| {
        let mut here = pods.iter().filter(|(of, _, _)| *of == node.name);
        let Some((_, namespace, _)) = here.find(|(_, _, name)| name == pod) else {
            return Ok(());
        };
        let body = NetstatRequest {
            netns: Some(NetNs {
                hostnetwork: false,
                netns: vec![namespace.clone()],
                allnetns: false,
            }),
            ..body.clone()
        };
        let answer = node.client::<Machine>().netstat(node.brief(body)).await?;
        let messages = answer.into_inner().messages.into_iter();
        good.extend(messages.map(|message| (node.name.clone(), message)));
        Ok(())
    })
    .await?;
    failed.extend(late);
    if good.is_empty() && failed.is_empty() {
        return Err(Failure::call(format!(
            "{pod:?} is not a pod with its own network on these nodes; `containers -k` lists pods as NAMESPACE/POD"
        )));
    }
    Ok(Answers { good, failed })
}

/// No protocol means all protocols; the same holds for families.
fn request(args: &Netstat) -> NetstatRequest {
    let protocols = [args.tcp, args.udp, args.udplite, args.raw];
    let any = !protocols.contains(&true);
    let four = args.ipv4 || !args.ipv6;
    let six = args.ipv6 || !args.ipv4;
    let [tcp, udp, udplite, raw] = protocols.map(|asked| asked || any);
    let filter = if args.all {
        Filter::All
    } else if args.listening {
        Filter::Listening
    } else {
        Filter::Connected
    };
    NetstatRequest {
        filter: filter.into(),
        feature: Some(Feature { pid: args.programs }),
        l4proto: Some(L4proto {
            tcp: tcp && four,
            tcp6: tcp && six,
            udp: udp && four,
            udp6: udp && six,
            udplite: udplite && four,
            udplite6: udplite && six,
            raw: raw && four,
            raw6: raw && six,
        }),
        netns: Some(NetNs {
            hostnetwork: true,
            netns: Vec::new(),
            allnetns: args.pods,
        }),
    }
}

fn asked(body: &NetstatRequest) -> String {
    let p = body.l4proto.unwrap_or_default();
    let all = [
        (p.tcp, "tcp"),
        (p.tcp6, "tcp6"),
        (p.udp, "udp"),
        (p.udp6, "udp6"),
        (p.udplite, "udplite"),
        (p.udplite6, "udplite6"),
        (p.raw, "raw"),
        (p.raw6, "raw6"),
    ];
    let names = all.iter().filter(|(wanted, _)| *wanted);
    names.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

/// The pods with a network namespace of their own, and the nodes that could not be asked.
async fn pods(routes: Vec<Route>) -> Result<(Pods, Failed), Failure> {
    let answers = containers::all(routes, Kubernetes { kubernetes: true }).await?;
    let mut pods = Pods::new();
    for (node, message) in answers.good {
        let with_pods = message.containers.into_iter();
        pods.extend(
            with_pods
                .filter(|one| !one.network_namespace.is_empty())
                .map(|one| (node.clone(), one.network_namespace, one.pod_id)),
        );
    }
    Ok((pods, answers.failed))
}

fn table(messages: &[(String, Answer)], args: &Netstat, pods: &Pods) -> Table {
    let mut header = vec![
        "NODE",
        "Proto",
        "Recv-Q",
        "Send-Q",
        "Local Address",
        "Foreign Address",
        "State",
    ];
    for (wanted, columns) in [
        (args.extend, &["Uid", "Inode"][..]),
        (args.programs, &["PID/Program name"]),
        (args.pods, &["Pod"]),
        (args.timers, &["Timer"]),
    ] {
        if wanted {
            header.extend(columns);
        }
    }
    let mut table = Table::new(&header);
    for (node, message) in messages {
        for socket in &message.connectrecord {
            let mut cells = vec![
                node.clone(),
                socket.l4proto.clone(),
                socket.rxqueue.to_string(),
                socket.txqueue.to_string(),
                address(&socket.localip, socket.localport),
                address(&socket.remoteip, socket.remoteport),
                state(socket),
            ];
            if args.extend {
                cells.extend([socket.uid.to_string(), socket.inode.to_string()]);
            }
            if args.programs {
                cells.push(program(socket));
            }
            if args.pods {
                let found = pods
                    .iter()
                    .find(|(of, namespace, _)| of == node && *namespace == socket.netns);
                let pod = found.map_or(&socket.netns, |(_, _, pod)| pod);
                cells.push(pod.clone());
            }
            if args.timers {
                cells.push(timer(socket));
            }
            table.row(cells);
        }
    }
    table
}

/// Port 0 is any port.
fn address(ip: &str, port: u32) -> String {
    if port == 0 {
        format!("{ip}:*")
    } else {
        format!("{ip}:{port}")
    }
}

/// Connectionless sockets, such as UDP's, have no meaningful state.
fn state(socket: &ConnectRecord) -> String {
    match State::try_from(socket.state) {
        Ok(State::Close | State::Reserved) if !socket.l4proto.starts_with("tcp") => String::new(),
        Ok(state) => state.as_str_name().to_owned(),
        Err(_) => socket.state.to_string(),
    }
}

fn program(socket: &ConnectRecord) -> String {
    match &socket.process {
        Some(process) if process.pid != 0 => format!("{}/{}", process.pid, process.name),
        _ => "-".to_owned(),
    }
}

/// The running timer with its remaining time, the retransmissions, and the unanswered probes. The
/// kernel counts in hundredths of a second.
fn timer(socket: &ConnectRecord) -> String {
    let name = match TimerActive::try_from(socket.tr) {
        Ok(timer) => timer.as_str_name().to_lowercase(),
        Err(_) => socket.tr.to_string(),
    };
    let seconds = socket.timerwhen as f64 / 100.0;
    format!(
        "{name} ({seconds:.2}/{}/{})",
        socket.retrnsmt, socket.timeout
    )
}

fn fields(message: &Answer) -> Value {
    let sockets = message.connectrecord.iter().map(|socket| {
        let process = socket.process.as_ref();
        json!({
            "protocol": socket.l4proto,
            "localAddress": socket.localip,
            "localPort": socket.localport,
            "foreignAddress": socket.remoteip,
            "foreignPort": socket.remoteport,
            "state": state(socket),
            "receiveQueue": socket.rxqueue,
            "sendQueue": socket.txqueue,
            "uid": socket.uid,
            "inode": socket.inode,
            "pid": process.map(|process| process.pid),
            "program": process.map(|process| &process.name),
            "networkNamespace": socket.netns,
        })
    });
    json!({ "sockets": sockets.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Verb};

    fn asked_by(line: &str) -> NetstatRequest {
        match Cli::try_parse_from(line.split_whitespace()).unwrap().verb {
            Verb::Netstat(args) => request(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_choose_protocols_families_and_states() {
        let all = asked_by("cortenctl netstat");
        assert_eq!(all.filter(), Filter::Connected);
        assert_eq!(asked(&all).split(", ").count(), 8);
        let tcp = asked_by("cortenctl ss -4 -t -l -p");
        assert_eq!(asked(&tcp), "tcp");
        assert_eq!(tcp.filter(), Filter::Listening);
        assert!(tcp.feature.unwrap().pid);
        assert!(!tcp.netns.unwrap().allnetns);
        let both = asked_by("cortenctl netstat -a -t -u -6 -k");
        assert_eq!(asked(&both), "tcp6, udp6");
        assert_eq!(both.filter(), Filter::All);
        assert!(both.netns.unwrap().allnetns);
    }

    #[test]
    fn socket_with_unknown_state_is_shown() {
        let socket = ConnectRecord {
            l4proto: "tcp".into(),
            state: 99,
            tr: 7,
            timerwhen: u64::MAX,
            ..Default::default()
        };
        assert_eq!(state(&socket), "99");
        assert_eq!(program(&socket), "-");
        assert!(timer(&socket).starts_with("7 ("));
    }
}
