//! OAuth 2.0's device flow (RFC 8628): the console shows a URL and a code, and a person enters the code there. The node
//! gets an access token for the download of its config.
//!
//! Both endpoints are untrusted. No message quotes an answer except the URL and the code, which are checked.

use std::time::Duration;

use corten_api::parameters;
use corten_base::cmdline::Cmdline;
use corten_values::Secret;
use serde_json::Value;

use crate::url::{self, Facts, Posted, is_url};

/// Path of the device authorization endpoint on the config's server, without a parameter for it.
const DEVICE_PATH: &str = "/device/code";
/// Path of the token endpoint on the config's server, without a parameter for it.
const TOKEN_PATH: &str = "/token";
const GRANT_TYPE: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// Parameters that have no effect without the client's identifier.
const OTHERS: [&str; 6] = [
    parameters::OAUTH_CLIENT_SECRET,
    parameters::OAUTH_AUDIENCE,
    parameters::OAUTH_SCOPE,
    parameters::OAUTH_DEVICE_AUTH_URL,
    parameters::OAUTH_TOKEN_URL,
    parameters::OAUTH_EXTRA_VARIABLE,
];

/// Size limits in bytes of texts from a server.
const LONGEST_CODE: usize = 64;
const LONGEST_PAGE: usize = 1024;
const LONGEST_TOKEN: usize = 16 << 10;

/// Poll interval if the server names none (RFC 8628, section 3.2).
const INTERVAL: u64 = 5;
/// Limit of the poll interval in seconds: a larger one would outlast the code.
const LONGEST_INTERVAL: u64 = 300;
/// Lifetime of a code if the server names none, in seconds, and its limit.
const LIFETIME: u64 = 15 * 60;
const LONGEST_LIFETIME: u64 = 24 * 60 * 60;

/// A client of the authorization server that protects the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OAuth {
    client_id: String,
    client_secret: Secret,
    audience: String,
    /// Scopes, separated by blanks.
    scope: String,
    /// Names of facts to send.
    variables: Vec<String>,
    /// Templates of both endpoints.
    device_auth_url: String,
    token_url: String,
}

/// An authorization that a person can grant.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    device_code: Secret,
    /// Code for the person to enter.
    pub user_code: String,
    /// URL of the page that takes the code.
    pub page: String,
    /// URL of that page with the code in it.
    pub page_with_code: Option<String>,
    /// Pause between polls.
    pub interval: Duration,
    /// Lifetime of the code.
    pub lifetime: Duration,
}

/// Answer of the token endpoint.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The access token.
    Token(Secret),
    /// Nobody has entered the code yet.
    Pending,
    /// As `Pending`, and the node polls too often.
    SlowDown,
    /// The server does not work at the moment.
    Unreachable(String),
    /// The authorization has failed.
    Refused(String),
}

impl OAuth {
    /// Reads the parameters; `None` without a client's identifier. `config` is the URL of the config, whose server has
    /// the endpoints that no parameter names.
    ///
    /// # Errors
    /// The text names the parameter and the remedy.
    pub(crate) fn read(cmdline: &Cmdline, config: &str) -> Result<Option<OAuth>, String> {
        let value = |name| cmdline.ours(name).unwrap_or_default().to_owned();
        let client_id = value(parameters::OAUTH_CLIENT_ID);
        if client_id.is_empty() {
            let given = |name: &&&str| !cmdline.ours(name).unwrap_or_default().is_empty();
            return match OTHERS.iter().find(given) {
                None => Ok(None),
                Some(name) => Err(format!(
                    "corten.{name} has no effect without corten.{}: add that, or leave out both",
                    parameters::OAUTH_CLIENT_ID
                )),
            };
        }
        let scopes: Vec<&str> = cmdline.all_ours(parameters::OAUTH_SCOPE).collect();
        let variables: Vec<String> = cmdline
            .all_ours(parameters::OAUTH_EXTRA_VARIABLE)
            .map(str::to_owned)
            .collect();
        let facts = Facts::default();
        if variables.iter().any(|name| facts.get(name).is_none()) {
            return Err(format!(
                "corten.{} must be one of {}",
                parameters::OAUTH_EXTRA_VARIABLE,
                facts.named().map(|(name, _)| name).join(", ")
            ));
        }
        let endpoint = |name, path| {
            let url = value(name);
            if url.is_empty() {
                return Ok(format!("{}{path}", url::origin(config)));
            }
            let wrong = || format!("corten.{name} must be an http:// or https:// URL");
            Some(url).filter(|url| is_url(url)).ok_or_else(wrong)
        };
        Ok(Some(OAuth {
            client_id,
            client_secret: Secret::new(value(parameters::OAUTH_CLIENT_SECRET)),
            audience: value(parameters::OAUTH_AUDIENCE),
            scope: scopes.join(" "),
            variables,
            device_auth_url: endpoint(parameters::OAUTH_DEVICE_AUTH_URL, DEVICE_PATH)?,
            token_url: endpoint(parameters::OAUTH_TOKEN_URL, TOKEN_PATH)?,
        }))
    }

    /// Templates that facts are filled into, and the facts to send.
    pub(crate) fn placeholders(&self) -> String {
        let variables: String = self.variables.iter().map(url::placeholder).collect();
        format!("{}{}{variables}", self.device_auth_url, self.token_url)
    }

    /// Asks for a code; blocks.
    ///
    /// # Errors
    /// The failure of the server or the network.
    pub(crate) fn start(&self, facts: &Facts) -> Result<Grant, String> {
        let mut form = self.form(facts);
        if !self.scope.is_empty() {
            form.push(("scope", &self.scope));
        }
        let endpoint = url::shown(&self.device_auth_url);
        let posted = url::post(&url::fill(&self.device_auth_url, facts), &form);
        let grant = posted.and_then(|answer| grant(&answer));
        grant.map_err(|why| format!("{endpoint}: {why}"))
    }

    /// Asks for the token once; blocks.
    pub(crate) fn poll(&self, grant: &Grant, facts: &Facts) -> Answer {
        let mut form = self.form(facts);
        form.push(("grant_type", GRANT_TYPE));
        form.push(("device_code", grant.device_code.expose()));
        let endpoint = url::shown(&self.token_url);
        match url::post(&url::fill(&self.token_url, facts), &form) {
            Ok(posted) => match answer(&posted) {
                Answer::Unreachable(why) => Answer::Unreachable(format!("{endpoint}: {why}")),
                Answer::Refused(why) => Answer::Refused(format!("{endpoint}: {why}")),
                other => other,
            },
            Err(why) => Answer::Unreachable(format!("{endpoint}: {why}")),
        }
    }

    /// Fields of both requests.
    fn form<'a>(&'a self, facts: &'a Facts) -> Vec<(&'a str, &'a str)> {
        let mut form = vec![("client_id", self.client_id.as_str())];
        // A client with a secret authenticates at both endpoints (RFC 8628, section 3.1).
        if !self.client_secret.is_empty() {
            form.push(("client_secret", self.client_secret.expose()));
        }
        if !self.audience.is_empty() {
            form.push(("audience", &self.audience));
        }
        let variables = self.variables.iter();
        form.extend(variables.filter_map(|name| Some((name.as_str(), facts.get(name)?))));
        form
    }
}

/// Reads the answer of the device authorization endpoint (RFC 8628, section 3.2).
fn grant(posted: &Posted) -> Result<Grant, String> {
    let value = json(posted);
    if posted.status != 200 {
        return Err(failure(posted.status, error_code(value.as_ref())));
    }
    let value = value.ok_or("the answer is not JSON")?;
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let device_code = text("device_code").filter(|code| is_word(code, LONGEST_TOKEN));
    let user_code = text("user_code").filter(|code| is_shown(code, LONGEST_CODE));
    // Google's servers have the name of an early draft.
    let page = text("verification_uri").or_else(|| text("verification_url"));
    let is_page = |page: &&str| is_url(page) && is_word(page, LONGEST_PAGE);
    let seconds = |name, default, most| {
        let number = value.get(name).and_then(|number| {
            let as_text = || number.as_str().and_then(|text| text.parse().ok());
            number.as_u64().or_else(as_text)
        });
        Duration::from_secs(number.unwrap_or(default).clamp(1, most))
    };
    Ok(Grant {
        device_code: Secret::new(device_code.ok_or("device_code must be one word")?),
        user_code: user_code
            .ok_or("user_code must be a short text of printable characters")?
            .to_owned(),
        page: page
            .filter(is_page)
            .ok_or("verification_uri must be an http:// or https:// URL")?
            .to_owned(),
        page_with_code: text("verification_uri_complete")
            .filter(is_page)
            .map(str::to_owned),
        interval: seconds("interval", INTERVAL, LONGEST_INTERVAL),
        lifetime: seconds("expires_in", LIFETIME, LONGEST_LIFETIME),
    })
}

/// Reads the answer of the token endpoint (RFC 8628, section 3.5; RFC 6749, sections 5.1 and 5.2).
fn answer(posted: &Posted) -> Answer {
    let value = json(posted);
    let code = error_code(value.as_ref());
    match (posted.status, code) {
        (_, Some("authorization_pending")) => return Answer::Pending,
        (_, Some("slow_down")) => return Answer::SlowDown,
        (200, None) => {}
        (429 | 500.., _) => return Answer::Unreachable(failure(posted.status, code)),
        (status, _) => return Answer::Refused(failure(status, code)),
    }
    let Some(value) = value else {
        return Answer::Refused("the answer is not JSON".to_owned());
    };
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let kind = text("token_type").unwrap_or("bearer");
    let token = text("access_token").filter(|token| is_word(token, LONGEST_TOKEN));
    match token {
        _ if !kind.eq_ignore_ascii_case("bearer") => {
            Answer::Refused("token_type must be Bearer".to_owned())
        }
        None => Answer::Refused("access_token must be one word".to_owned()),
        Some(token) => Answer::Token(Secret::new(token)),
    }
}

fn json(posted: &Posted) -> Option<Value> {
    serde_json::from_slice(&posted.body).ok()
}

/// The code of an error, if it is a known one: another text may be one of our secrets.
fn error_code(value: Option<&Value>) -> Option<&'static str> {
    let code = value?.get("error")?.as_str().unwrap_or_default();
    let known = [
        "access_denied",
        "authorization_pending",
        "expired_token",
        "invalid_client",
        "invalid_grant",
        "invalid_request",
        "invalid_scope",
        "server_error",
        "slow_down",
        "temporarily_unavailable",
        "unauthorized_client",
        "unsupported_grant_type",
    ];
    let found = known.into_iter().find(|known| *known == code);
    Some(found.unwrap_or("an unknown code"))
}

fn failure(status: u16, code: Option<&str>) -> String {
    let code = code.map(|code| format!(" with the error {code}"));
    let remedy = match status {
        300..400 => ", a redirect, which would carry the credentials to another place",
        _ => "",
    };
    format!("the answer is {status}{}{remedy}", code.unwrap_or_default())
}

/// Whether a text has printable ASCII characters only, and no blank.
fn is_word(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether a text is safe and readable on a console.
fn is_shown(text: &str, longest: usize) -> bool {
    let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    (1..=longest).contains(&text.len()) && text.bytes().all(is_printable)
}

#[cfg(test)]
#[path = "oauth_tests.rs"]
mod tests;
