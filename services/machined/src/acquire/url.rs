//! A config from a server.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ureq::Agent;

use super::{LARGEST, word};
use crate::https;

/// From the name's resolution to the last byte.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a URL may ask for about this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// SMBIOS type 1.
    pub uuid: String,
    /// SMBIOS type 1.
    pub serial: String,
    /// Of the first link that is a device.
    pub mac: String,
    /// The node's name now.
    pub hostname: String,
    /// META 0x0b.
    pub code: String,
}

impl Facts {
    /// What the kernel knows.
    #[must_use]
    pub fn read(sysfs: &Path, hostname: String, code: String) -> Facts {
        let dmi = sysfs.join("class/dmi/id");
        Facts {
            uuid: word(dmi.join("product_uuid")).to_lowercase(),
            serial: word(dmi.join("product_serial")),
            mac: first_mac(&sysfs.join("class/net")),
            hostname,
            code,
        }
    }
}

fn first_mac(class: &Path) -> String {
    let mut links: Vec<_> = fs::read_dir(class)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    links.retain(|link| link.join("device").exists());
    links.sort();
    links
        .first()
        .map(|link| word(link.join("address")))
        .unwrap_or_default()
}

/// Puts the facts into the placeholders, `${uuid}` for instance, whatever their case. A query's `uuid=` without
/// a value gets it too.
pub(super) fn fill(template: &str, facts: &Facts) -> String {
    let known = [
        ("${uuid}", &facts.uuid),
        ("${serial}", &facts.serial),
        ("${mac}", &facts.mac),
        ("${hostname}", &facts.hostname),
        ("${code}", &facts.code),
    ];
    let mut url = String::new();
    let mut rest = template;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        url.push_str(before);
        let place = known.iter().find(|(name, _)| {
            from.get(..name.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(name))
        });
        let (value, length) = place.map_or(("${", 2), |(name, value)| (value.as_str(), name.len()));
        url.push_str(value);
        rest = from.get(length..).unwrap_or_default();
    }
    url.push_str(rest);
    let Some((base, query)) = url.split_once('?') else {
        return url;
    };
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match pair {
            "uuid=" => format!("uuid={}", facts.uuid),
            other => other.to_owned(),
        })
        .collect();
    format!("{base}?{}", pairs.join("&"))
}

/// A URL without what may be a secret: user, password, query.
#[must_use]
pub fn shown(template: &str) -> String {
    let plain = template.split(['?', '#']).next().unwrap_or_default();
    match plain.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            let host = authority
                .rsplit_once('@')
                .map_or(authority, |(_, host)| host);
            format!("{scheme}://{host}{path}")
        }
        None => plain.to_owned(),
    }
}

/// Asks once. A redirect is followed.
///
/// # Errors
/// The text says what the server or the network did.
pub(super) fn get(url: &str) -> Result<Vec<u8>, String> {
    read(ask(url).map_err(|error| error.to_string())?)
}

/// The same for a file that need not be there (404: RFC 9110, section 15.5.5).
///
/// # Errors
/// As [`get`].
pub(super) fn get_if_there(url: &str) -> Result<Option<Vec<u8>>, String> {
    match ask(url) {
        Ok(answer) => read(answer).map(Some),
        Err(ureq::Error::StatusCode(404)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

type Answer = http::Response<ureq::Body>;

fn ask(url: &str) -> Result<Answer, ureq::Error> {
    let agent: Agent = https::config(PATIENCE).build().into();
    agent.get(url).call()
}

fn read(mut answer: Answer) -> Result<Vec<u8>, String> {
    answer
        .body_mut()
        .with_config()
        .limit(LARGEST)
        .read_to_vec()
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    fn facts() -> Facts {
        Facts {
            uuid: "4c4c4544-0001".to_owned(),
            serial: "S1".to_owned(),
            mac: "52:54:00:12:34:56".to_owned(),
            hostname: "node".to_owned(),
            code: "xyz".to_owned(),
        }
    }

    #[test]
    fn placeholders_are_filled() {
        for (template, expected) in [
            ("http://a/${UUID}/${serial}", "http://a/4c4c4544-0001/S1"),
            (
                "http://a/?uuid=&mac=${Mac}",
                "http://a/?uuid=4c4c4544-0001&mac=52:54:00:12:34:56",
            ),
            (
                "http://a/${code}${hostname}?uuid=1",
                "http://a/xyznode?uuid=1",
            ),
            ("http://a/${unknown}$", "http://a/${unknown}$"),
        ] {
            assert_eq!(fill(template, &facts()), expected);
        }
    }

    #[test]
    fn what_may_be_secret_is_not_shown() {
        for (url, expected) in [
            ("https://u:p@h:1/a/b?token=s#f", "https://h:1/a/b"),
            ("http://h", "http://h"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    /// Answers one request.
    fn server(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/config", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
        });
        url
    }

    #[test]
    fn a_server_is_asked() {
        let url = server("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ntext");
        assert_eq!(get(&url).unwrap(), b"text");
        let url = server("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        let error = get(&url).unwrap_err();
        assert!(error.contains("404"), "{error}");
        let url = server("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(get_if_there(&url).unwrap(), None);
        let url = server("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n");
        get_if_there(&url).unwrap_err();
        let url = server("HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n");
        get(&url).unwrap_err();
        get("http://127.0.0.1:1/").unwrap_err();
    }
}
