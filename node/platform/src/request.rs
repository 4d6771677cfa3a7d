//! The declarative part of a platform: servers, documents and headers.

use std::borrow::Cow;

use crate::documents::{Documents, Given};
use crate::instance::Instance;

/// A platform.
#[derive(Debug)]
pub struct Platform {
    /// Name, as in `corten.platform`.
    pub name: &'static str,
    /// Volume that some of its machines have; read first.
    pub volume: Option<Volume>,
    /// VMware guest properties, each a document.
    pub guestinfo: &'static [&'static str],
    /// URLs of the metadata service, without a trailing `/`. The first one that answers is used.
    pub bases: &'static [&'static str],
    /// Headers of every `GET` request.
    pub headers: Headers,
    /// Requests, in order.
    pub requests: &'static [Request],
    /// Further requests, derived from the documents so far.
    pub more: fn(&Documents) -> Vec<Request>,
    /// Whether the platform expects a report that the machine runs ([`crate::report_ready`]).
    pub wants_report: bool,
    /// Parses the documents. It leaves out invalid parts and reports them.
    pub read: fn(&Given<'_>) -> Instance,
}

impl Platform {
    /// An empty platform, as the base of the tables.
    pub(crate) const BLANK: Platform = Platform {
        name: "",
        volume: None,
        guestinfo: &[],
        bases: &[],
        headers: &[],
        requests: &[],
        more: |_| Vec::new(),
        wants_report: false,
        read: |_| Instance::default(),
    };
}

/// Header names and values.
pub type Headers = &'static [(&'static str, Value)];

/// Value of a header.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// Fixed text.
    Is(&'static str),
    /// Contents of the document of this name: a token.
    Of(&'static str),
}

/// Volume that a platform attaches to a machine.
#[derive(Debug)]
pub struct Volume {
    /// Possible labels of the volume. Without any, it is a disc in a drive, with one of the files.
    pub labels: &'static [&'static str],
    /// Names of documents, and their files on the volume. The first one holds the machine config.
    pub files: &'static [(&'static str, &'static str)],
    /// Use of the documents.
    pub role: Role,
}

impl Volume {
    /// The volume in a message.
    pub(crate) fn shown(&self) -> String {
        match self.labels {
            [] => "disc".to_owned(),
            labels => format!("volume {}", labels.join(" or ")),
        }
    }
}

/// Use of a volume's documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The volume makes the platform's other source unnecessary.
    Whole,
    /// The volume adds to the other source, and with a config replaces it if that does not answer.
    Spare {
        /// Documents of the other source. The first rounds wait for a volume if all of them are absent.
        instead_of: &'static [&'static str],
    },
}

/// HTTP method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Fetches a document.
    Get,
    /// Fetches a token.
    Put,
    /// Sends a report.
    Post,
}

/// Whether a machine may lack a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Every machine has it.
    Always,
    /// A machine may lack it. After three failed rounds, an unavailable one counts as absent.
    Maybe,
    /// The machine config. A machine may lack it, but only the platform's answer says so: while the node needs a
    /// config, an unavailable one never counts as absent, because a node without a config serves any client.
    Config,
}

/// One request to a metadata service.
#[derive(Debug, Clone)]
pub struct Request {
    /// Name of the resulting document.
    pub document: Cow<'static, str>,
    /// Path below the base URL; begins with `/`.
    pub path: Cow<'static, str>,
    /// HTTP method.
    pub method: Method,
    /// Headers in addition to the platform's.
    pub headers: Headers,
    /// Whether a machine may lack the document.
    pub need: Need,
    /// Whether the source port must be privileged, as the platform's proof that root asks.
    pub from_low_port: bool,
}

impl Request {
    /// A document that every machine of the platform has.
    pub(crate) const fn needed(document: &'static str, path: &'static str) -> Request {
        Request {
            document: Cow::Borrowed(document),
            path: Cow::Borrowed(path),
            method: Method::Get,
            headers: &[],
            need: Need::Always,
            from_low_port: false,
        }
    }

    /// A document that a machine may lack.
    pub(crate) const fn optional(document: &'static str, path: &'static str) -> Request {
        let mut request = Request::needed(document, path);
        request.need = Need::Maybe;
        request
    }

    /// The machine config of machines that have one.
    pub(crate) const fn config(document: &'static str, path: &'static str) -> Request {
        let mut request = Request::needed(document, path);
        request.need = Need::Config;
        request
    }

    /// A token for the headers of later requests.
    pub(crate) const fn token(
        document: &'static str,
        path: &'static str,
        headers: Headers,
    ) -> Request {
        let mut request = Request::needed(document, path);
        request.method = Method::Put;
        request.headers = headers;
        request
    }

    /// A document whose name comes from an earlier answer.
    pub(crate) fn named(document: String, path: String) -> Request {
        Request {
            document: document.into(),
            path: path.into(),
            ..Request::optional("", "")
        }
    }
}

/// Requests for each tag in a list document, below a path without a trailing `/`.
pub(crate) fn tag_requests<'a>(
    documents: &Documents,
    list: &str,
    path: &'a str,
) -> impl Iterator<Item = Request> + use<'a> {
    let tags = documents.words(list).into_iter();
    tags.map(move |tag| Request::named(format!("tag {tag}"), format!("{path}/{tag}")))
}
