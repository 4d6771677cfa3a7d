//! A local metadata service for tests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corten_seed::{SeedNetwork, SeedRoute, SeedShape};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client::Client;
use crate::documents::{Card, Given};
use crate::instance::Instance;
use crate::request::Platform;
use crate::round::{self, Local, Sources, Stage};

/// Reply to a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A document.
    Body(Vec<u8>),
    /// A status without a body.
    Status(u16),
    /// Raw bytes, then the end of the connection.
    Raw(Vec<u8>),
    /// No reply, ever.
    Silence,
}

/// Requests and their replies; any other request gets 404.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    replies: BTreeMap<String, Reply>,
    header: Option<(String, String)>,
    volume: Option<BTreeMap<String, Vec<u8>>>,
    guestinfo: BTreeMap<String, Vec<u8>>,
    is_elsewhere: bool,
    is_unreadable: bool,
    has_config: bool,
    cards: Vec<Card>,
    asked: Vec<String>,
}

impl Script {
    pub(crate) fn new() -> Script {
        Script::default()
    }

    pub(crate) fn reply(mut self, question: &str, reply: Reply) -> Script {
        self.replies.insert(question.to_owned(), reply);
        self
    }

    pub(crate) fn get(self, path: &str, body: &str) -> Script {
        self.reply(&format!("GET {path}"), Reply::Body(body.into()))
    }

    pub(crate) fn put(self, path: &str, body: &str) -> Script {
        self.reply(&format!("PUT {path}"), Reply::Body(body.into()))
    }

    pub(crate) fn without(mut self, path: &str) -> Script {
        self.replies.remove(&format!("GET {path}"));
        self
    }

    /// Requires this header of each `GET`; without it the reply is 401.
    pub(crate) fn needs(mut self, name: &str, value: &str) -> Script {
        self.header = Some((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a file to a volume with the platform's label.
    pub(crate) fn file(mut self, file: &str, bytes: &[u8]) -> Script {
        let files = self.volume.get_or_insert_default();
        files.insert(file.to_owned(), bytes.to_vec());
        self
    }

    pub(crate) fn guestinfo(mut self, key: &str, value: &str) -> Script {
        self.guestinfo.insert(key.to_owned(), value.into());
        self
    }

    /// Makes the machine no VMware guest.
    pub(crate) fn without_guestinfo(mut self) -> Script {
        self.is_elsewhere = true;
        self
    }

    /// Makes the volume one that cannot be read.
    pub(crate) fn with_unreadable_volume(mut self) -> Script {
        self.is_unreadable = true;
        self
    }

    /// Makes the node one that has a machine config already.
    pub(crate) fn with_config(mut self) -> Script {
        self.has_config = true;
        self
    }

    pub(crate) fn card(mut self, name: &str, mac: [u8; 6]) -> Script {
        let name = name.to_owned();
        self.cards.push(Card { name, mac });
        self
    }

    pub(crate) fn sources(&self, server: SocketAddr) -> Sources {
        Sources {
            client: Client::of_test(server, Duration::from_secs(5)),
            local: Arc::new(self.clone()),
        }
    }

    /// Serves until the test ends; the script can change meanwhile.
    pub(crate) async fn serve(&self) -> (SocketAddr, Arc<Mutex<Script>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Mutex::new(self.clone()));
        let shared = Arc::clone(&script);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&shared)));
            }
        });
        (address, script)
    }

    /// Runs one round. Returns the instance and the problems.
    pub(crate) async fn ask(self, platform: &'static Platform) -> (Instance, Vec<String>) {
        let (server, _) = self.serve().await;
        let round = round::ask(platform, &self.sources(server), Stage::First(0))
            .await
            .unwrap();
        self.read(platform, round)
    }

    pub(crate) fn read(
        &self,
        platform: &'static Platform,
        round: round::Round,
    ) -> (Instance, Vec<String>) {
        let given = Given::new(&round.documents, &self.cards);
        let mut instance = (platform.read)(&given);
        platform.name.clone_into(&mut instance.metadata.platform);
        let mut notes = round.notes;
        notes.extend(given.into_notes());
        (instance, notes)
    }

    /// All requests, in order.
    pub(crate) fn all_asked(&self) -> impl Iterator<Item = &String> {
        self.asked.iter()
    }

    /// Number of times that a request came.
    pub(crate) fn asked(&self, question: &str) -> usize {
        let asked = self.asked.iter();
        asked.filter(|asked| *asked == question).count()
    }

    fn to(&mut self, question: &str, headers: &str) -> Reply {
        self.asked.push(question.to_owned());
        let is_shown = self.header.as_ref().is_none_or(|(name, value)| {
            let line = format!("{name}: {value}");
            headers
                .lines()
                .any(|found| found.eq_ignore_ascii_case(&line))
        });
        if question.starts_with("GET ") && !is_shown {
            return Reply::Status(401);
        }
        self.replies
            .get(question)
            .cloned()
            .unwrap_or(Reply::Status(404))
    }
}

impl Local for Script {
    fn volume(&self, _: &[&str], files: &[&str]) -> Result<Option<Vec<Option<Vec<u8>>>>, String> {
        if self.is_unreadable {
            return Err("the disc is scratched".to_owned());
        }
        let found = self.volume.as_ref();
        Ok(found.map(|volume| {
            files
                .iter()
                .map(|file| volume.get(*file).cloned())
                .collect()
        }))
    }

    fn guestinfo(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
        if self.is_elsewhere {
            return Err("this machine is not a VMware guest".to_owned());
        }
        Ok(self.guestinfo.get(key).cloned())
    }

    fn needs_config(&self) -> bool {
        !self.has_config
    }
}

async fn answer(mut stream: TcpStream, script: Arc<Mutex<Script>>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 1024];
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return,
            Ok(length) => head.extend(&part[..length]),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let (line, headers) = head.split_once("\r\n").unwrap();
    let question = line.trim_end_matches(" HTTP/1.1");
    let reply = script
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .to(question, headers);
    let bytes = match reply {
        Reply::Body(body) => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            [head.into_bytes(), body].concat()
        }
        Reply::Status(status) => {
            format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\n\r\n").into_bytes()
        }
        Reply::Raw(bytes) => bytes,
        Reply::Silence => return std::future::pending().await,
    };
    // A client may close the connection once it has read enough.
    let _ = stream.write_all(&bytes).await;
    let _ = stream.shutdown().await;
}

/// A line for each link, route and name server of a network.
pub(crate) fn links(seed: &SeedNetwork) -> Vec<String> {
    let mut lines = Vec::new();
    for link in &seed.links {
        let mut line = link.id.clone();
        match &link.shape {
            SeedShape::Card(how) => {
                if let Some(mac) = how.mac {
                    line += &format!(" {}", mac_text(mac.0));
                }
            }
            SeedShape::Bond {
                members, config, ..
            } => {
                line += &format!(" bond {:?} of {}", config.mode, members.join(","));
            }
            SeedShape::Bridge { members, .. } => line += &format!(" bridge of {members:?}"),
            SeedShape::Vlan { parent, id } => line += &format!(" vlan {id} on {parent}"),
        }
        if let Some(mac) = link.hardware_addr {
            line += &format!(" set {}", mac_text(mac.0));
        }
        for (text, is_there) in [
            ("dhcp4", link.dhcp4.is_some()),
            ("dhcp6", link.dhcp6.is_some()),
        ] {
            if is_there {
                line += &format!(" {text}");
            }
        }
        if let Some(mtu) = link.mtu {
            line += &format!(" mtu {mtu}");
        }
        for address in &link.addresses {
            line += &format!(" {address}");
        }
        lines.push(line);
        lines.extend(link.routes.iter().map(|route| route_text(&link.id, route)));
    }
    lines.extend(
        seed.dns_servers
            .iter()
            .map(|server| format!("dns {server}")),
    );
    lines.extend(
        seed.search_domains
            .iter()
            .map(|domain| format!("search {domain}")),
    );
    lines
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

fn route_text(link: &str, said: &SeedRoute) -> String {
    let to = said.route.destination;
    let to = to.map_or("default".to_owned(), |to| to.to_string());
    let via = said.route.gateway.map(|via| format!(" via {via}"));
    let metric = said.route.metric.map(|metric| format!(" metric {metric}"));
    let on_link = if said.on_link { " on-link" } else { "" };
    format!(
        "{link} {to}{}{}{on_link}",
        via.unwrap_or_default(),
        metric.unwrap_or_default()
    )
}
