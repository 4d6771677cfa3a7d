//! Lenient JSON of metadata services: an invalid field is reported with its path and left out.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::str::FromStr;

use corten_values::{Cidr, Mac};
use serde_json::Value;

use crate::links;
use crate::notes::Notes;
use crate::text::is_line;

/// Entry limit of a list.
const MOST: usize = 64;

/// A value and its path.
#[derive(Debug)]
pub(crate) struct Json<'a> {
    notes: &'a Notes,
    place: &'a str,
    path: String,
    value: Cow<'a, Value>,
}

impl<'a> Json<'a> {
    pub(crate) fn new(notes: &'a Notes, place: &'a str, value: Value) -> Json<'a> {
        Json {
            notes,
            place,
            path: String::new(),
            value: Cow::Owned(value),
        }
    }

    fn within<'b>(&'b self, step: impl Display, value: &'b Value) -> Json<'b>
    where
        'a: 'b,
    {
        let dot = if self.path.is_empty() { "" } else { "." };
        Json {
            notes: self.notes,
            place: self.place,
            path: format!("{}{dot}{step}", self.path),
            value: Cow::Borrowed(value),
        }
    }

    pub(crate) fn wrong(&self, what: &str) {
        let path = if self.path.is_empty() {
            "the document"
        } else {
            &self.path
        };
        self.notes.note(self.place, &format!("{path} {what}"));
    }

    /// A field; null if absent.
    pub(crate) fn get(&self, name: &str) -> Json<'_> {
        if !matches!(&*self.value, Value::Object(_) | Value::Null) {
            self.wrong("must be a map of fields");
        }
        self.within(name, self.value.get(name).unwrap_or(&Value::Null))
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// Entries of a list field; empty if absent.
    pub(crate) fn list(&self, name: &str) -> Vec<Json<'_>> {
        let field = self.get(name);
        match self.value.get(name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(entries)) => {
                if entries.len() > MOST {
                    field.wrong(&format!("must have at most {MOST} entries"));
                }
                let entries = entries.iter().take(MOST).enumerate();
                entries
                    .map(|(at, entry)| self.within(format_args!("{name}[{at}]"), entry))
                    .collect()
            }
            Some(_) => {
                field.wrong("must be a list");
                Vec::new()
            }
        }
    }

    /// Entries of a list at the top level.
    pub(crate) fn entries(&self) -> Vec<Json<'_>> {
        match &*self.value {
            Value::Null => Vec::new(),
            Value::Array(entries) => {
                let entries = entries.iter().take(MOST).enumerate();
                entries
                    .map(|(at, entry)| self.within(format_args!("[{at}]"), entry))
                    .collect()
            }
            _ => {
                self.wrong("must be a list");
                Vec::new()
            }
        }
    }

    /// String entries of a map field; others are left out.
    pub(crate) fn pairs(&self, name: &str) -> Vec<(String, String)> {
        let field = self.get(name);
        let Some(map) = field.value.as_object() else {
            if !field.is_absent() {
                field.wrong("must be a map of strings");
            }
            return Vec::new();
        };
        let pairs = map.iter().take(MOST).filter(|(key, _)| is_line(key));
        pairs
            .map(|(key, value)| (key.clone(), field.within(key, value).as_text()))
            .collect()
    }

    pub(crate) fn as_text(&self) -> String {
        match &*self.value {
            Value::Null => String::new(),
            Value::String(text) if is_line(text.trim()) => text.trim().to_owned(),
            Value::Number(number) => number.to_string(),
            _ => {
                self.wrong("must be one short line of text");
                String::new()
            }
        }
    }

    /// A string or number field as text; empty if absent.
    pub(crate) fn text(&self, name: &str) -> String {
        self.get(name).as_text()
    }

    /// Strings of a list field.
    pub(crate) fn texts(&self, name: &str) -> Vec<String> {
        let texts = self.list(name).into_iter().map(|entry| entry.as_text());
        texts.filter(|text| !text.is_empty()).collect()
    }

    /// A list field as tags without values.
    pub(crate) fn tags(&self, name: &str) -> BTreeMap<String, String> {
        let tags = self.texts(name).into_iter();
        tags.map(|tag| (tag, String::new())).collect()
    }

    /// A boolean field, possibly as text; false if absent.
    pub(crate) fn flag(&self, name: &str) -> bool {
        let field = self.get(name);
        match &*field.value {
            Value::Null => false,
            Value::Bool(truth) => *truth,
            Value::String(text) => text.eq_ignore_ascii_case("true"),
            _ => {
                field.wrong("must be true or false");
                false
            }
        }
    }

    fn read<T>(&self, what: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.as_text();
        if text.is_empty() {
            return None;
        }
        let found = parse(&text);
        if found.is_none() {
            self.wrong(&format!("must be {what}"));
        }
        found
    }

    /// A number field, possibly as text.
    pub(crate) fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).read("a number", |text| text.parse().ok())
    }

    /// An MTU field, in bytes.
    pub(crate) fn mtu(&self, name: &str) -> Option<u32> {
        self.get(name)
            .read("a number from 576 to 65535", links::mtu)
    }

    /// An IP address field.
    pub(crate) fn address(&self, name: &str) -> Option<IpAddr> {
        self.get(name).as_address()
    }

    pub(crate) fn as_address(&self) -> Option<IpAddr> {
        self.read("an IP address", |text| text.parse().ok())
    }

    /// IP addresses of a list field.
    pub(crate) fn addresses(&self, name: &str) -> Vec<IpAddr> {
        let entries = self.list(name);
        entries.iter().filter_map(Json::as_address).collect()
    }

    /// An IP address field with a prefix.
    pub(crate) fn cidr(&self, name: &str) -> Option<Cidr> {
        self.get(name).as_cidr()
    }

    /// This value as an IP address with an optional prefix.
    pub(crate) fn as_masked(&self) -> Option<Cidr> {
        self.read("an address with or without a prefix", |text| {
            links::masked(text, "")
        })
    }

    pub(crate) fn as_cidr(&self) -> Option<Cidr> {
        self.read("an address with a prefix", Cidr::parse)
    }

    /// An IP address field, and its mask in another field, such as `255.255.255.0` or a number of bits. The default is
    /// a single host.
    pub(crate) fn masked(&self, address: &str, mask: &str) -> Option<Cidr> {
        let field = self.get(address);
        let text = field.as_text();
        if text.is_empty() {
            return None;
        }
        let found = links::masked(&text, &self.text(mask));
        if found.is_none() {
            field.wrong(&format!("and {mask} must be an address and its mask"));
        }
        found
    }

    /// A hardware address field.
    pub(crate) fn mac(&self, name: &str) -> Option<Mac> {
        self.get(name).read("a hardware address", links::mac)
    }
}
