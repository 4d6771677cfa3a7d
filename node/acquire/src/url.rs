//! Downloads a config from a server: fills the placeholders of the URL, and keeps its secrets out of every text.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::time::Duration;

use corten_base::https;
use corten_base::sysfs;
use corten_values::Secret;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::Agent;

use super::LARGEST;

/// Timeout of a whole request, from name resolution to the last byte.
const PATIENCE: Duration = Duration::from_secs(60);

/// Size limit in bytes of the answer to a form.
const LARGEST_POSTED: u64 = 64 << 10;

/// Characters of a value that are percent-encoded: all but the unreserved ones (RFC 3986, section 2.3) and colons. The
/// colons of a MAC address have no meaning after the host.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

/// Facts about this machine that a URL's placeholders may name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// System UUID (SMBIOS type 1), in lower case.
    pub uuid: String,
    /// Serial number (SMBIOS type 1).
    pub serial: String,
    /// MAC address of the first network link, by name, that belongs to a device.
    pub mac: String,
    /// Current host name of the node.
    pub hostname: String,
    /// Value of META tag 0x0b.
    pub code: String,
}

impl Facts {
    /// Reads the hardware's facts from sysfs; the caller supplies the others.
    #[must_use]
    pub fn read(sysfs: &Path, hostname: String, code: String) -> Facts {
        let dmi = sysfs.join("class/dmi/id");
        Facts {
            uuid: sysfs::read(&dmi.join("product_uuid")).to_lowercase(),
            serial: sysfs::read(&dmi.join("product_serial")),
            mac: first_mac(&sysfs.join("class/net")),
            hostname,
            code,
        }
    }

    /// All facts with their names as placeholders.
    pub(crate) fn named(&self) -> [(&'static str, &str); 5] {
        [
            ("uuid", &self.uuid),
            ("serial", &self.serial),
            ("mac", &self.mac),
            ("hostname", &self.hostname),
            ("code", &self.code),
        ]
    }

    /// A fact; `None` if no fact has this name.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut named = self.named().into_iter();
        named
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }

    /// Names of the facts in the template that are not known yet. The firmware's facts are known from the start, or
    /// never.
    pub(crate) fn missing(&self, template: &str) -> Vec<&'static str> {
        let template = template.to_ascii_lowercase();
        let named = self.named().into_iter().skip(2);
        let missing =
            named.filter(|(name, value)| value.is_empty() && template.contains(&placeholder(name)));
        missing.map(|(name, _)| name).collect()
    }
}

/// The placeholder of a fact in a URL.
pub(crate) fn placeholder(name: impl Display) -> String {
    format!("${{{name}}}")
}

/// Type of an Ethernet link (ARPHRD_ETHER): another one may have no hardware address, such as a CAN bus.
const ETHERNET: &str = "1";

fn first_mac(class: &Path) -> String {
    let mut links: Vec<_> = fs::read_dir(class)
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    links
        .retain(|link| link.join("device").exists() && sysfs::read(&link.join("type")) == ETHERNET);
    links.sort();
    links
        .first()
        .map(|link| sysfs::read(&link.join("address")))
        .unwrap_or_default()
}

/// Replaces the placeholders of `template`, such as `${uuid}`, by the facts, regardless of case. A query parameter
/// `uuid` without a value gets the UUID too. After the host a value is percent-encoded: a blank or an `&` in it would
/// end the path segment or the parameter.
pub(super) fn fill(template: &str, facts: &Facts) -> String {
    let known = facts
        .named()
        .map(|(name, value)| (placeholder(name), value));
    let path = origin(template).len();
    let mut url = String::new();
    let mut rest = template;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        url.push_str(before);
        let place = known.iter().find(|(name, _)| {
            from.get(..name.len())
                .is_some_and(|found| found.eq_ignore_ascii_case(name))
        });
        let (value, length) = place.map_or(("${", 2), |(name, value)| (*value, name.len()));
        if place.is_some() && template.len() - from.len() > path {
            url.extend(utf8_percent_encode(value, ENCODED));
        } else {
            url.push_str(value);
        }
        rest = from.get(length..).unwrap_or_default();
    }
    url.push_str(rest);
    let Some((base, query)) = url.split_once('?') else {
        return url;
    };
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match pair {
            "uuid" | "uuid=" => format!("uuid={}", utf8_percent_encode(&facts.uuid, ENCODED)),
            other => other.to_owned(),
        })
        .collect();
    format!("{base}?{}", pairs.join("&"))
}

/// Whether a text has the form of a URL of a web server.
pub(crate) fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

/// The start of a URL, before its path.
pub(crate) fn origin(url: &str) -> &str {
    let authority = url.find("://").map_or(0, |at| at + 3);
    let behind = url.get(authority..).unwrap_or_default();
    let path = behind.find(['/', '?', '#']);
    url.split_at(path.map_or(url.len(), |at| authority + at)).0
}

/// A URL without its parts that may be secret: user, password, query, fragment.
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

/// A request without an answer to use.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whether the server wants another token.
    pub is_denied: bool,
    /// The failure of the server or the network, never with the URL.
    pub why: String,
}

/// Makes one GET request and follows redirects. A token stays on the first server.
///
/// # Errors
/// The failure of the server or the network.
pub(crate) fn get_authorized(url: &str, token: Option<&Secret>) -> Result<Vec<u8>, Failure> {
    let value = |token: &Secret| Secret::new(format!("Bearer {}", token.expose()));
    let header = token.map(|token| ("Authorization".to_owned(), value(token)));
    let failure = |is_denied, why| Failure { is_denied, why };
    match ask(url, header.as_slice()) {
        Ok(answer) => read(answer, LARGEST).map_err(|why| failure(false, why)),
        Err(error) => {
            let is_denied = matches!(error, ureq::Error::StatusCode(401 | 403));
            Err(failure(is_denied, error_without_url(&error)))
        }
    }
}

/// Answer to a form.
#[derive(Debug)]
pub(crate) struct Posted {
    pub status: u16,
    pub body: Vec<u8>,
}

/// Sends a form once, and follows no redirect: a form has credentials.
///
/// # Errors
/// The failure of the server or the network.
pub(crate) fn post(url: &str, form: &[(&str, &str)]) -> Result<Posted, String> {
    let config = https::config(PATIENCE).max_redirects(0);
    let agent: Agent = config.http_status_as_error(false).build().into();
    let request = agent.post(url).header("Accept", "application/json");
    let answer = request.send_form(form.iter().copied());
    let answer = answer.map_err(|error| error_without_url(&error))?;
    let status = answer.status().as_u16();
    let body = read(answer, LARGEST_POSTED)?;
    Ok(Posted { status, body })
}

/// Makes one GET request with headers, pairs of a name and a value that may be secret, and follows redirects.
///
/// # Errors
/// The text names the failure of the server or the network, and never the URL.
pub fn get_with(url: &str, headers: &[(String, Secret)]) -> Result<Vec<u8>, String> {
    read(
        ask(url, headers).map_err(|error| error_without_url(&error))?,
        LARGEST,
    )
}

/// Makes one GET request for an optional file: `None` on status 404 (RFC 9110, section 15.5.5).
///
/// # Errors
/// As [`get_with`].
pub(super) fn get_if_there(url: &str) -> Result<Option<Vec<u8>>, String> {
    match ask(url, &[]) {
        Ok(answer) => read(answer, LARGEST).map(Some),
        Err(ureq::Error::StatusCode(404)) => Ok(None),
        Err(error) => Err(error_without_url(&error)),
    }
}

/// The error's text without any URL: the requested URL and the target of a redirect may hold secrets.
fn error_without_url(error: &ureq::Error) -> String {
    match error {
        ureq::Error::BadUri(_) => {
            "the URL or its redirect target does not have the form http://HOST/PATH".to_owned()
        }
        // One of the protocol errors contains the response's `location`.
        ureq::Error::Protocol(_) => {
            "the answer is not HTTP/1.1, or redirects to an invalid URL".to_owned()
        }
        ureq::Error::RequireHttpsOnly(_) => "it redirects to a URL that is not https://".to_owned(),
        other => other.to_string(),
    }
}

type Answer = http::Response<ureq::Body>;

fn ask(url: &str, headers: &[(String, Secret)]) -> Result<Answer, ureq::Error> {
    let agent: Agent = https::config(PATIENCE).build().into();
    let request = headers
        .iter()
        .fold(agent.get(url), |request, (name, value)| {
            request.header(name, value.expose())
        });
    request.call()
}

fn read(mut answer: Answer, largest: u64) -> Result<Vec<u8>, String> {
    answer
        .body_mut()
        .with_config()
        .limit(largest)
        .read_to_vec()
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use percent_encoding::percent_decode_str;
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::*;

    fn get(url: &str) -> Result<Vec<u8>, String> {
        get_with(url, &[])
    }

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
    fn mac_is_that_of_the_first_ethernet_device() {
        let class = tempfile::tempdir().unwrap();
        for (name, kind, address) in [
            ("can0", "280", None),
            ("eth1", "1", Some("52:54:00:00:00:02\n")),
            ("eth0", "1", Some("52:54:00:00:00:01\n")),
            ("ib0", "32", Some("80:00:02:08:fe:80\n")),
        ] {
            let link = class.path().join(name);
            fs::create_dir_all(link.join("device")).unwrap();
            fs::write(link.join("type"), kind).unwrap();
            address.inspect(|address| fs::write(link.join("address"), address).unwrap());
        }
        fs::create_dir(class.path().join("bond0")).unwrap();
        assert_eq!(first_mac(class.path()), "52:54:00:00:00:01");
    }

    #[test]
    fn url_placeholders_are_replaced() {
        for (template, expected) in [
            ("http://a/${UUID}/${serial}", "http://a/4c4c4544-0001/S1"),
            (
                "http://a/?uuid=&mac=${Mac}",
                "http://a/?uuid=4c4c4544-0001&mac=52:54:00:12:34:56",
            ),
            ("http://a?uuid", "http://a?uuid=4c4c4544-0001"),
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
    fn placeholder_values_are_escaped_for_their_url_part() {
        let facts = Facts {
            uuid: "a&b#c".to_owned(),
            serial: "To be filled/by O.E.M.?".to_owned(),
            hostname: "n\u{f6}de%".to_owned(),
            code: "10.0.0.1".to_owned(),
            ..facts()
        };
        for (template, expected) in [
            (
                "http://a/${serial}/x?uuid=&h=${hostname}",
                "http://a/To%20be%20filled%2Fby%20O.E.M.%3F/x?uuid=a%26b%23c&h=n%C3%B6de%25",
            ),
            ("http://a?uuid=${uuid}", "http://a?uuid=a%26b%23c"),
            // A value in the host stays as it is: an encoded address would be no address.
            ("http://${code}:80/${code}", "http://10.0.0.1:80/10.0.0.1"),
            ("http://${hostname}/", "http://n\u{f6}de%/"),
        ] {
            assert_eq!(fill(template, &facts), expected);
        }
    }

    proptest! {
        #[test]
        fn hostile_values_stay_in_their_url_part(value in any::<String>(), after in "[a-z]{1,5}") {
            let facts = Facts { serial: value.clone(), ..facts() };
            let template = format!("http://a/x/${{serial}}/{after}?s=${{serial}}&{after}=1");
            let url: http::Uri = fill(&template, &facts).parse().unwrap();
            let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
            let parts: Vec<&str> = url.path().split('/').collect();
            prop_assert_eq!(parts.len(), 4);
            prop_assert_eq!(decoded(parts[2]), value.clone());
            prop_assert_eq!(parts[3], after.clone());
            let pairs: Vec<&str> = url.query().unwrap().split('&').collect();
            prop_assert_eq!(pairs.len(), 2);
            prop_assert_eq!(decoded(pairs[0].strip_prefix("s=").unwrap()), value);
            prop_assert_eq!(pairs[1], format!("{after}=1"));
        }
    }

    #[test]
    fn errors_for_invalid_urls_hide_possible_secrets() {
        for url in [
            "http:///c?token=secret",
            "http://?token=secret",
            "http:?token=secret",
            "http://a b/?token=secret",
            "/c?token=secret",
            "http://a:99999/?token=secret",
            "http://[::1/?token=secret",
        ] {
            for error in [get(url).unwrap_err(), get_if_there(url).unwrap_err()] {
                assert!(!error.contains("secret"), "{url}: {error}");
            }
        }
        for (location, expected) in [
            ("http:///x?token=secret", ""),
            ("http://a b/?token=secret", "redirects to an invalid URL"),
            (
                "http://a/\u{f6}?token=secret",
                "redirects to an invalid URL",
            ),
            ("//a b/?token=secret", "redirects to an invalid URL"),
            ("/a b?token=secret", "redirects to an invalid URL"),
            ("../../a?token=secret", "redirects to an invalid URL"),
        ] {
            let answer =
                format!("HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
            for error in [
                get(&server(&answer)).unwrap_err(),
                get_if_there(&server(&answer)).unwrap_err(),
            ] {
                assert!(!error.contains("secret"), "{location}: {error}");
                assert!(error.contains(expected), "{location}: {error}");
            }
        }
    }

    #[test]
    fn request_headers_are_sent_and_never_shown() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a", listener.local_addr().unwrap());
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
            stream.write_all(answer).unwrap();
            String::from_utf8_lossy(&request[..length]).to_lowercase()
        });
        let headers = [("X-Token".to_owned(), Secret::new("secret"))];
        assert_eq!(get_with(&url, &headers).unwrap(), b"ok");
        let request = asked.join().unwrap();
        assert!(request.contains("x-token: secret"), "{request}");
        let bad = [("X-Token".to_owned(), Secret::new("secret\n"))];
        let error = get_with("http://127.0.0.1:1/", &bad).unwrap_err();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn shown_url_has_no_user_query_or_fragment() {
        for (url, expected) in [
            ("https://u:p@h:1/a/b?token=s#f", "https://h:1/a/b"),
            ("http://h", "http://h"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    /// URL of a server that sends `answer` to one request.
    fn server(answer: &str) -> String {
        let answer = answer.to_owned();
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
    fn config_is_fetched_from_a_server() {
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
