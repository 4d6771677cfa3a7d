//! Kernel parameters that hold secrets, and their redaction.
//!
//! The kernel writes its command line to its log and to `/proc/cmdline`. From there it reaches readers of the API, log
//! destinations and support bundles.

/// A machine config, or a part of one, with a lower priority than the platform's: `corten.config.early`,
/// `talos.config.early`.
pub const CONFIG_EARLY: &str = "config.early";
/// A machine config, or a part of one, with a higher priority than the platform's.
pub const CONFIG_INLINE: &str = "config.inline";
/// URL of the machine config; it may hold a user, a password or a token.
pub const CONFIG: &str = "config";

/// Client identifier at the authorization server that protects the machine config (OAuth 2.0 device flow, RFC 8628).
pub const OAUTH_CLIENT_ID: &str = "config.oauth.client_id";
/// Secret of the client.
pub const OAUTH_CLIENT_SECRET: &str = "config.oauth.client_secret";
/// Intended recipient of the access token.
pub const OAUTH_AUDIENCE: &str = "config.oauth.audience";
/// A scope of the access token; may be repeated.
pub const OAUTH_SCOPE: &str = "config.oauth.scope";
/// URL of the device authorization endpoint; it may hold a user, a password or a token.
pub const OAUTH_DEVICE_AUTH_URL: &str = "config.oauth.device_auth_url";
/// URL of the token endpoint; it may hold a user, a password or a token.
pub const OAUTH_TOKEN_URL: &str = "config.oauth.token_url";
/// A fact about the machine to send to both endpoints; may be repeated.
pub const OAUTH_EXTRA_VARIABLE: &str = "config.oauth.extra_variable";

/// A variable of the node's programs, such as a proxy with a password.
const ENVIRONMENT: &str = "environment";

/// Parameters whose whole value is secret.
const SECRETS: [&str; 4] = [
    CONFIG_EARLY,
    CONFIG_INLINE,
    OAUTH_CLIENT_SECRET,
    ENVIRONMENT,
];
/// Parameters with a URL.
const URLS: [&str; 3] = [CONFIG, OAUTH_DEVICE_AUTH_URL, OAUTH_TOKEN_URL];

/// Replacement for a secret.
pub const HIDDEN: &str = "******";

/// Prefixes of our parameters.
const PREFIXES: [&str; 2] = ["corten.", "talos."];

/// Replaces the secret values of kernel parameters in the text by [`HIDDEN`]. Of [`CONFIG_EARLY`], [`CONFIG_INLINE`],
/// [`OAUTH_CLIENT_SECRET`] and `environment` that is the whole value; of a URL everything before an `@` and after a `?`.
///
/// As in the kernel, a value ends at a blank outside of double quotes. It also ends at the end of the line, where a log
/// may have cut it.
#[must_use]
pub fn hide(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((name_at, value_at, name)) = next_secret(rest) {
        let (before, value) = rest.split_at(value_at);
        let quoted = rest[..name_at].ends_with('"');
        let (value, after) = value.split_at(end_of_value(value, quoted));
        shown.push_str(before);
        shown.push_str(&hidden(name, value));
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// The first secret parameter of the text: offset of its name, offset of its value, and the parameter.
fn next_secret(text: &str) -> Option<(usize, usize, &'static str)> {
    let mut from = 0;
    loop {
        let rest = &text[from..];
        let found = PREFIXES.iter().filter_map(|prefix| rest.find(prefix));
        let at = from + found.min()?;
        let prefix = PREFIXES
            .iter()
            .find(|prefix| text[at..].starts_with(**prefix));
        let name_at = at + prefix.map_or(0, |prefix| prefix.len());
        for name in SECRETS.into_iter().chain(URLS) {
            if is_named(&text[name_at..], name) {
                return Some((at, name_at + name.len() + 1, name));
            }
        }
        from = name_at;
    }
}

/// Whether the text starts with the parameter's name and `=`. As in the kernel, `-` and `_` in a name are equal: a secret
/// under the other spelling is not used, but is still one.
fn is_named(text: &str, name: &str) -> bool {
    let text = text.as_bytes();
    let is_same =
        |(byte, expected): (&u8, u8)| *byte == expected || (*byte == b'-' && expected == b'_');
    text.get(name.len()) == Some(&b'=') && text.iter().zip(name.bytes()).all(is_same)
}

/// Length of the value at the start of the text; `quoted`: a quote was opened before its name.
fn end_of_value(text: &str, mut quoted: bool) -> usize {
    for (at, character) in text.char_indices() {
        match character {
            '\n' => return at,
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => return at,
            _ => {}
        }
    }
    text.len()
}

fn hidden(name: &str, value: &str) -> String {
    let opening = if value.starts_with('"') { "\"" } else { "" };
    let closing = if value.len() > 1 && value.ends_with('"') {
        "\""
    } else {
        ""
    };
    let bare = &value[opening.len()..value.len() - closing.len()];
    let shown = match name {
        _ if bare.is_empty() => String::new(),
        _ if URLS.contains(&name) => hidden_url(bare),
        _ => HIDDEN.to_owned(),
    };
    format!("{opening}{shown}{closing}")
}

/// Everything before an `@` may be a password, even one that was not percent-encoded.
fn hidden_url(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let (user, rest) = match rest.rsplit_once('@') {
        Some((_, rest)) => (format!("{HIDDEN}@"), rest),
        None => (String::new(), rest),
    };
    match rest.split_once('?') {
        Some((address, _)) => format!("{scheme}{user}{address}?{HIDDEN}"),
        None => format!("{scheme}{user}{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_kernel_parameters_are_hidden_and_all_others_stay() {
        for (text, expected) in [
            ("quiet console=ttyS0,115200", "quiet console=ttyS0,115200"),
            ("", ""),
            (
                "a=1 corten.config.inline=KLUv/QRY+A== b=2",
                "a=1 corten.config.inline=****** b=2",
            ),
            (
                "talos.config.early=AAAA talos.config.early=BBBB",
                "talos.config.early=****** talos.config.early=******",
            ),
            (
                "corten.environment=HTTPS_PROXY=http://u:pw@proxy:3128 x=1",
                "corten.environment=****** x=1",
            ),
            // The kernel's quoting, also with a blank in the quotes.
            (
                "corten.config.inline=\"AA BB\" x=1",
                "corten.config.inline=\"******\" x=1",
            ),
            (
                "\"corten.config.inline=AA BB\" x=1",
                "\"corten.config.inline=******\" x=1",
            ),
            // A kernel log, whose records may be cut.
            (
                "Kernel command line: corten.config.inline=AAAA\nnext",
                "Kernel command line: corten.config.inline=******\nnext",
            ),
            (
                "Unknown kernel command line parameters \"corten.config.inline=AAAA\", will be",
                "Unknown kernel command line parameters \"corten.config.inline=****** will be",
            ),
            ("corten.config.inline=\"AA", "corten.config.inline=\"******"),
            ("corten.config.inline=", "corten.config.inline="),
            ("corten.config.inline", "corten.config.inline"),
            (
                "corten.config=https://u:pw@h/c?token=a x=1",
                "corten.config=https://******@h/c?****** x=1",
            ),
            (
                "corten.config=https://u:p?w@h/c",
                "corten.config=https://******@h/c",
            ),
            (
                "corten.config=https://h/c.yaml x=u@h?q",
                "corten.config=https://h/c.yaml x=u@h?q",
            ),
            (
                "corten.config.oauth.client_id=a talos.config.oauth.client_secret=S x=1",
                "corten.config.oauth.client_id=a talos.config.oauth.client_secret=****** x=1",
            ),
            (
                "corten.config.oauth.client-secret=S corten.config.oauth.client_secretS=T",
                "corten.config.oauth.client-secret=****** corten.config.oauth.client_secretS=T",
            ),
            (
                "corten.config.oauth.token_url=https://u:p@h/t?k=S corten.config.oauth.device_auth_url=https://h/d?k=S",
                "corten.config.oauth.token_url=https://******@h/t?****** corten.config.oauth.device_auth_url=https://h/d?******",
            ),
            ("corten.config=metal-iso", "corten.config=metal-iso"),
            ("corten.platform=metal", "corten.platform=metal"),
        ] {
            assert_eq!(hide(text), expected, "{text}");
        }
    }

    #[test]
    fn hiding_secrets_is_idempotent() {
        let text = "a corten.config.early=\"A B\" corten.config=http://u@h?x talos.config.inline=C";
        let once = hide(text);
        for secret in ["A B", "u@", "=C"] {
            assert!(!once.contains(secret), "{once}");
        }
        assert_eq!(hide(&once), once);
    }
}
