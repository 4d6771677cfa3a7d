//! What of a platform is a table: whom to ask, for what, with which headers.

use std::borrow::Cow;

use crate::documents::{Documents, Given};
use crate::instance::Instance;

/// A platform.
#[derive(Debug)]
pub struct Platform {
    /// As in `corten.platform`.
    pub name: &'static str,
    /// A volume that some of its machines have; looked at first.
    pub volume: Option<Volume>,
    /// VMware's properties of the guest, each a document.
    pub guestinfo: &'static [&'static str],
    /// The metadata service, and where else it may be; the first that answers is asked. No `/` at the end.
    pub bases: &'static [&'static str],
    /// Of every `GET`.
    pub headers: Headers,
    /// What is asked for, in this order.
    pub requests: &'static [Request],
    /// What else is asked for, as the documents so far say.
    pub more: fn(&Documents) -> Vec<Request>,
    /// Whether it waits for a report that the machine runs ([`crate::report_ready`]).
    pub wants_report: bool,
    /// Reads the documents. Leaves out what is wrong, and notes it.
    pub read: fn(&Given<'_>) -> Instance,
}

impl Platform {
    /// One that asks nobody, for tables to begin with.
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

/// Names and values of headers.
pub type Headers = &'static [(&'static str, Value)];

/// The value of a header.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// Always this one.
    Is(&'static str),
    /// What the document of this name holds: a token.
    Of(&'static str),
}

/// A volume that a platform puts beside a machine.
#[derive(Debug)]
pub struct Volume {
    /// The labels it may have.
    pub labels: &'static [&'static str],
    /// Names of documents, and the files that hold them.
    pub files: &'static [(&'static str, &'static str)],
    /// Whether a machine that has it needs no metadata service.
    pub is_all: bool,
}

/// How a server is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// For a document.
    Get,
    /// For a token.
    Put,
    /// To report something.
    Post,
}

/// One question to a metadata service.
#[derive(Debug, Clone)]
pub struct Request {
    /// How the answer is called.
    pub document: Cow<'static, str>,
    /// Behind the base; begins with `/`.
    pub path: Cow<'static, str>,
    /// How it is asked.
    pub method: Method,
    /// Besides those of the platform.
    pub headers: Headers,
    /// Whether the platform may have no such document.
    pub may_be_absent: bool,
    /// From a port that only root can use; the platform asks for that as proof.
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
            may_be_absent: false,
            from_low_port: false,
        }
    }

    /// A document that a machine may not have.
    pub(crate) const fn optional(document: &'static str, path: &'static str) -> Request {
        let mut request = Request::needed(document, path);
        request.may_be_absent = true;
        request
    }

    /// A token, for the headers of what is asked for later.
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

    /// One that only an earlier answer names.
    pub(crate) fn named(document: String, path: String) -> Request {
        Request {
            document: document.into(),
            path: path.into(),
            ..Request::optional("", "")
        }
    }
}
