//! The documents of a platform, and what is wrong with them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use corten_config::platform::{SeedNetwork, network};
use corten_config::values::Mac;
use serde_json::Value;

use crate::instance::{Instance, Metadata, Network};
use crate::json::Json;
use crate::links;
use crate::request::Request;
use crate::user_data;

/// More is not told of one answer.
const MOST_NOTES: usize = 16;
/// A name, a zone, a tag has no more bytes.
const LONGEST_TEXT: usize = 1024;

/// One document.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// The URL, or the volume and file.
    pub place: String,
    /// What it holds.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Document {
    /// Without what it holds, which may be a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.place, self.bytes.len())
    }
}

/// Documents by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Documents(BTreeMap<String, Document>);

impl Documents {
    /// Adds one.
    pub fn insert(&mut self, name: &str, place: String, bytes: Vec<u8>) {
        self.0.insert(name.to_owned(), Document { place, bytes });
    }

    /// Whether there is one of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// One whole line of text, for a header or a list; empty when there is none.
    #[must_use]
    pub fn raw(&self, name: &str) -> Cow<'_, str> {
        self.0.get(name).map_or(Cow::Borrowed(""), |document| {
            String::from_utf8_lossy(&document.bytes)
        })
    }

    /// The words of one that is a list; a `/` at the end of a word is left out.
    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        let text = self.raw(name);
        let words = text.split_whitespace();
        let words = words.map(|word| word.trim_end_matches('/').to_owned());
        words.filter(|word| is_segment(word)).take(64).collect()
    }
}

/// What asks for each tag that a list names, below a path without `/` at its end.
pub(crate) fn tag_requests<'a>(
    documents: &Documents,
    list: &str,
    path: &'a str,
) -> impl Iterator<Item = Request> + use<'a> {
    let tags = documents.words(list).into_iter();
    tags.map(move |tag| Request::named(format!("tag {tag}"), format!("{path}/{tag}")))
}

/// Whether a word of an answer can stand in a URL's path without leading elsewhere.
fn is_segment(word: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:=@+".contains(&byte);
    (1..=256).contains(&word.len()) && word.bytes().all(is_plain) && !matches!(word, "." | "..")
}

/// A network card of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// As the kernel calls it.
    pub name: String,
    /// The address it was built with.
    pub mac: [u8; 6],
}

/// What a platform's function reads.
#[derive(Debug)]
pub struct Given<'a> {
    /// What was answered.
    pub documents: &'a Documents,
    /// The machine's cards, for platforms that speak of the first.
    pub cards: &'a [Card],
    notes: RefCell<Vec<String>>,
}

impl<'a> Given<'a> {
    /// Nothing is wrong yet.
    #[must_use]
    pub fn new(documents: &'a Documents, cards: &'a [Card]) -> Given<'a> {
        Given {
            documents,
            cards,
            notes: RefCell::default(),
        }
    }

    /// What was wrong.
    #[must_use]
    pub fn into_notes(self) -> Vec<String> {
        self.notes.into_inner()
    }

    pub(crate) fn note(&self, place: &str, what: &str) {
        let mut notes = self.notes.borrow_mut();
        if notes.len() < MOST_NOTES {
            notes.push(format!("{place}: {what}"));
        }
    }

    /// The place of a document, for messages.
    pub(crate) fn place<'b>(&'b self, name: &'b str) -> &'b str {
        let document = self.documents.0.get(name);
        document.map_or(name, |document| &document.place)
    }

    fn bytes(&self, name: &str) -> &[u8] {
        let document = self.documents.0.get(name);
        document.map_or(&[], |document| &document.bytes)
    }

    /// A document that is one short line; empty when it is absent.
    pub(crate) fn text(&self, name: &str) -> String {
        let text = std::str::from_utf8(self.bytes(name)).map(str::trim);
        match text {
            Ok(text) if is_line(text) => text.to_owned(),
            _ => {
                self.note(self.place(name), "must be one short line of text");
                String::new()
            }
        }
    }

    /// A document that is an address, if there is one.
    pub(crate) fn address(&self, name: &str) -> Option<IpAddr> {
        let text = self.text(name);
        if text.is_empty() {
            return None;
        }
        let address = text.parse().ok();
        if address.is_none() {
            self.note(self.place(name), "must be an IP address");
        }
        address
    }

    /// A document that is the address of a card, if there is one.
    pub(crate) fn mac(&self, name: &str) -> Option<Mac> {
        let text = self.text(name);
        if text.is_empty() {
            return None;
        }
        let mac = links::mac(&text);
        if mac.is_none() {
            self.note(self.place(name), "must be a hardware address");
        }
        mac
    }

    /// The tags that a list names; each is a document ([`tag_requests`]).
    pub(crate) fn tags(&self, list: &str) -> BTreeMap<String, String> {
        let tags = self.documents.words(list).into_iter();
        tags.map(|tag| {
            let value = self.text(&format!("tag {tag}"));
            (tag, value)
        })
        .collect()
    }

    /// A document that is JSON; null when it is absent or broken.
    pub(crate) fn json<'b>(&'b self, name: &'b str) -> Json<'b> {
        let bytes = self.bytes(name);
        let mut value = Value::Null;
        if !bytes.iter().all(u8::is_ascii_whitespace) {
            match serde_json::from_slice(bytes) {
                Ok(found) => value = found,
                // The error of the library has no text of the document.
                Err(error) => self.note(self.place(name), &format!("is no JSON ({error})")),
            }
        }
        Json::new(self, self.place(name), value)
    }

    /// The machine config in a document.
    pub(crate) fn config(&self, name: &str) -> Option<Vec<u8>> {
        user_data::decode(self.bytes(name)).unwrap_or_else(|why| {
            self.note(self.place(name), &why);
            None
        })
    }

    /// A document that is a `network-config` of cloud-init, of either version.
    pub(crate) fn network_config(&self, name: &str) -> SeedNetwork {
        match network(self.bytes(name)) {
            Ok(found) => found.unwrap_or_default(),
            Err(problems) => {
                self.note(self.place(name), &problems.to_string());
                SeedNetwork::default()
            }
        }
    }

    /// The name as that of a host, if it is one.
    pub(crate) fn hostname(&self, place: &str, name: &str) -> Option<String> {
        if name.is_empty() {
            return None;
        }
        if !is_host_name(name) {
            self.note(place, "the machine's name is no name of a host");
            return None;
        }
        Some(name.to_owned())
    }

    /// The first card, for platforms that speak of no card by its address.
    pub(crate) fn first_card(&self) -> Option<Mac> {
        self.cards.first().map(|card| Mac(card.mac))
    }

    /// Puts the parts together; a network that no node could have is left out.
    pub(crate) fn instance(
        &self,
        name_of: &str,
        config: Option<Vec<u8>>,
        metadata: Metadata,
        mut network: Network,
    ) -> Instance {
        let place = self.place(name_of);
        network.hostname = self.hostname(place, &metadata.hostname);
        for problem in network.seed.problems() {
            self.note(place, &format!("the network {problem}"));
            network.seed = SeedNetwork::default();
        }
        Instance {
            config,
            metadata,
            network,
        }
    }
}

/// Whether a text is short and goes to a terminal without harm.
pub(crate) fn is_line(text: &str) -> bool {
    text.len() <= LONGEST_TEXT && !text.chars().any(char::is_control)
}

fn is_host_name(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}
