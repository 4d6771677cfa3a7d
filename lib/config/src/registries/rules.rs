//! The rules for settings of image registries in both forms.

use std::net::Ipv6Addr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use corten_values::{Secret, is_host_name};
use corten_yaml::read::Reader;
use corten_yaml::tree::Node;

/// Stands for every registry without mirrors of its own.
pub const ANY: &str = "*";

/// Decodes user and password from base64.
#[must_use]
pub fn decode_auth(auth: &Secret) -> Option<(String, Secret)> {
    let text = String::from_utf8(STANDARD.decode(auth.expose().trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    (!user.is_empty()).then(|| (user.to_owned(), Secret::new(password)))
}

/// Limit of a registry's name, which becomes part of file names of at most 255 bytes.
const LONGEST: usize = 200;

/// Whether the text is a valid registry: a name or an address with an optional port.
pub(crate) fn is_registry(text: &str) -> bool {
    if text.len() > LONGEST {
        return false;
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((host, port)) if host.parse::<Ipv6Addr>().is_ok() => ("", port),
            _ => return false,
        },
        None => {
            let end = text.find(':').unwrap_or(text.len());
            text.split_at_checked(end).unwrap_or((text, ""))
        }
    };
    let is_port = |port: &str| {
        let digits = port.bytes().all(|byte| byte.is_ascii_digit());
        digits && matches!(port.parse(), Ok(1..=u16::MAX))
    };
    // An IPv4 address also has the form of a name.
    let has_host = text.starts_with('[') || is_host_name(host);
    has_host && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// The problem of a mirror's URL.
fn url_problem(url: &str) -> Option<&'static str> {
    let rest = url.strip_prefix("https://").or(url.strip_prefix("http://"));
    let Some(rest) = rest else {
        return Some("must begin with http:// or https://");
    };
    let (authority, path) =
        rest.split_at_checked(rest.find(['/', '?', '#']).unwrap_or(rest.len()))?;
    if authority.contains('@') {
        Some("must not hold a user or password: a RegistryAuthConfig is for them")
    } else if !is_registry(authority) {
        Some("must name a host, optionally with a port")
    } else if path.contains(['?', '#']) {
        Some("must end with its path")
    } else {
        None
    }
}

/// Checks the URLs of mirrors; `step` is their field in an item.
pub(crate) fn check_endpoints<'a>(
    node: &'a Node,
    endpoints: impl Iterator<Item = Option<&'a Node>>,
    step: &str,
    skip_fallback: bool,
    reader: &mut Reader<'_>,
) {
    reader.within("endpoints", |reader| {
        for (index, endpoint) in endpoints.enumerate() {
            // A value that is not text was reported already.
            let Some((text, mark)) = endpoint.and_then(|it| Some((it.text()?, it.mark))) else {
                continue;
            };
            if let Some(what) = url_problem(text) {
                reader.within(&format!("[{index}]"), |reader| match step {
                    "" => reader.wrong(mark, what),
                    step => reader.within(step, |reader| reader.wrong(mark, what)),
                });
            }
        }
    });
    if skip_fallback && !node.given("endpoints") {
        let what = "needs endpoints: without them and without the fallback no server is left";
        reader.wrong_in(node, "skipFallback", what);
    }
}

/// Checks that credentials are complete and in one form.
pub(crate) fn check_auth(node: &Node, reader: &mut Reader<'_>) {
    let given = |field: &str| node.given(field);
    if given("password") && !given("username") {
        reader.wrong_in(node, "password", "needs username");
    }
    let forms = [
        ("username", given("username") || given("password")),
        ("auth", given("auth")),
        ("identityToken", given("identityToken")),
    ];
    let mut forms = forms.into_iter().filter(|(_, given)| *given);
    if let Some((first, _)) = forms.next() {
        for (other, _) in forms {
            reader.wrong_in(node, other, &format!("excludes {first}"));
        }
    }
    let auth = node.get("auth").and_then(Node::text).map(Secret::new);
    if auth.is_some_and(|auth| !auth.is_empty() && decode_auth(&auth).is_none()) {
        reader.wrong_in(node, "auth", "must be base64 of user:password");
    }
}

/// Checks that a client's identity is complete.
pub(crate) fn check_identity(node: &Node, certificate: &str, reader: &mut Reader<'_>) {
    let Some(identity) = node.get("clientIdentity").filter(|it| !it.is_empty()) else {
        return;
    };
    reader.within("clientIdentity", |reader| {
        for field in [certificate, "key"] {
            if !identity.given(field) {
                reader.wrong_in(identity, field, "is required");
            }
        }
    });
}
