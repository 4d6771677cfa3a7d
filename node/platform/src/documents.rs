//! The documents of a platform, and the problems found in them.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use corten_seed::{SeedNetwork, network};
use corten_values::{Mac, is_host_name};
use serde_json::Value;

use crate::instance::{Instance, Metadata, Network};
use crate::json::Json;
use crate::links;
use crate::notes::Notes;
use crate::text::{is_line, is_segment};
use crate::user_data::{self, holds_no_config};

/// A document of a platform.
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// URL, or volume and file.
    pub place: String,
    /// Contents.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for Document {
    /// Omits the contents, which may be a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.place, self.bytes.len())
    }
}

/// Documents, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Documents(BTreeMap<String, Document>);

impl Documents {
    /// Adds a document.
    pub fn insert(&mut self, name: &str, place: String, bytes: Vec<u8>) {
        self.0.insert(name.to_owned(), Document { place, bytes });
    }

    /// Whether there is a document of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Contents as lossy text, for a header or a list; empty without such a document.
    #[must_use]
    pub fn raw(&self, name: &str) -> Cow<'_, str> {
        self.0.get(name).map_or(Cow::Borrowed(""), |document| {
            String::from_utf8_lossy(&document.bytes)
        })
    }

    /// Words of a list document, each without a trailing `/`.
    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        let text = self.raw(name);
        let words = text.split_whitespace();
        let words = words.map(|word| word.trim_end_matches('/').to_owned());
        words.filter(|word| is_segment(word)).take(64).collect()
    }
}

/// A network card of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Name in the kernel.
    pub name: String,
    /// Permanent hardware address.
    pub mac: [u8; 6],
}

/// Input of a platform's `read` function.
#[derive(Debug)]
pub struct Given<'a> {
    /// Documents of the platform.
    pub documents: &'a Documents,
    /// Cards of the machine, for platforms that refer to the first one.
    pub cards: &'a [Card],
    notes: Notes,
    unusable: RefCell<Option<String>>,
}

impl<'a> Given<'a> {
    /// Input without problems so far.
    #[must_use]
    pub fn new(documents: &'a Documents, cards: &'a [Card]) -> Given<'a> {
        Given {
            documents,
            cards,
            notes: Notes::default(),
            unusable: RefCell::default(),
        }
    }

    /// The problems found.
    #[must_use]
    pub fn into_notes(self) -> Vec<String> {
        self.notes.into_list()
    }

    pub(crate) fn note(&self, place: &str, what: &str) {
        self.notes.note(place, what);
    }

    /// Place of a document, for messages.
    pub(crate) fn place<'b>(&'b self, name: &'b str) -> &'b str {
        let document = self.documents.0.get(name);
        document.map_or(name, |document| &document.place)
    }

    fn bytes(&self, name: &str) -> &[u8] {
        let document = self.documents.0.get(name);
        document.map_or(&[], |document| &document.bytes)
    }

    /// Reads a document of one short line; empty if it is absent.
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

    /// Reads a document with an IP address, if present.
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

    /// Reads a document with a hardware address, if present.
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

    /// Tags in a list document; the document `tag NAME` has the value of each.
    pub(crate) fn tags(&self, list: &str) -> BTreeMap<String, String> {
        let tags = self.documents.words(list).into_iter();
        tags.map(|tag| {
            let value = self.text(&format!("tag {tag}"));
            (tag, value)
        })
        .collect()
    }

    /// Reads a JSON document; null if it is absent or broken.
    pub(crate) fn json<'b>(&'b self, name: &'b str) -> Json<'b> {
        let bytes = self.bytes(name);
        let mut value = Value::Null;
        if !bytes.iter().all(u8::is_ascii_whitespace) {
            match serde_json::from_slice(bytes) {
                Ok(found) => value = found,
                // The parser's errors do not quote the document.
                Err(error) => self.note(self.place(name), &format!("is not JSON ({error})")),
            }
        }
        Json::new(&self.notes, self.place(name), value)
    }

    /// Reads a machine config from a document.
    pub(crate) fn config(&self, name: &str) -> Option<Vec<u8>> {
        self.decoded(self.place(name), "", self.bytes(name))
    }

    /// Decodes a machine config. `place` and `field`, which ends in a blank, name it in the report of a problem.
    pub(crate) fn decoded(&self, place: &str, field: &str, bytes: &[u8]) -> Option<Vec<u8>> {
        user_data::decode(bytes).unwrap_or_else(|why| {
            let why = format!("{field}{why}");
            if holds_no_config(bytes) {
                self.note(place, &why);
            } else {
                self.lose_config(place, &why);
            }
            None
        })
    }

    /// Reports that a document cannot be used that has, or may have, the machine config.
    pub(crate) fn lose_config(&self, place: &str, why: &str) {
        self.note(place, why);
        let mut unusable = self.unusable.borrow_mut();
        unusable.get_or_insert_with(|| format!("{place}: {why}"));
    }

    /// Reads a cloud-init `network-config`, of either version.
    pub(crate) fn network_config(&self, name: &str) -> SeedNetwork {
        match network(self.bytes(name)) {
            Ok(found) => found.unwrap_or_default(),
            Err(problems) => {
                self.note(self.place(name), &problems.to_string());
                SeedNetwork::default()
            }
        }
    }

    /// The name, if it is a valid host name.
    pub(crate) fn hostname(&self, place: &str, name: &str) -> Option<String> {
        if name.is_empty() {
            return None;
        }
        if !is_host_name(name) {
            self.note(place, "the name of the machine is not a valid host name");
            return None;
        }
        Some(name.to_owned())
    }

    /// The first card, for platforms that do not identify cards by address.
    pub(crate) fn first_card(&self) -> Option<Mac> {
        self.cards.first().map(|card| Mac(card.mac))
    }

    /// Assembles the instance, and leaves out an invalid network.
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
        let unusable = self.unusable.borrow().clone();
        Instance {
            unusable: unusable.filter(|_| config.is_none()),
            config,
            metadata,
            network,
        }
    }
}
