//! A server with a config: what is known about the machine before it is asked, and the token that it wants.

use std::sync::Arc;
use std::time::Duration;

use corten_base::console;
use corten_values::Secret;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

use crate::decode;
use crate::oauth::{Answer, Grant, OAuth};
use crate::url::{self, Facts, Failure};

/// Limit of the wait for facts that the URL names. An operator may write the code of META meanwhile.
const FACTS_PATIENCE: Duration = Duration::from_secs(90);
const FACTS_PAUSE: Duration = Duration::from_secs(1);
/// Growth of the poll interval on request of the server (RFC 8628, section 3.5).
const SLOWER: Duration = Duration::from_secs(5);
/// Limit of the poll interval of a server that does not work.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Interval at which the console repeats the code: other lines move it out of sight.
const REMINDER: Duration = Duration::from_secs(60);

/// A server with a config.
#[derive(Debug)]
pub struct Server {
    template: String,
    oauth: Option<Arc<OAuth>>,
    token: Option<Secret>,
    has_waited: bool,
}

impl Server {
    /// A server that was not asked yet. `template` is the URL with its placeholders; `oauth` obtains the token.
    #[must_use]
    pub fn new(template: &str, oauth: Option<OAuth>) -> Server {
        Server {
            template: template.to_owned(),
            oauth: oauth.map(Arc::new),
            token: None,
            has_waited: false,
        }
    }

    /// Asks once, after a person has authorized it if the server wants that. `facts` returns what is known at the
    /// moment.
    ///
    /// # Errors
    /// The failure of the server, the network or the authorization.
    pub async fn ask(&mut self, facts: impl Fn() -> Facts) -> Result<Vec<u8>, String> {
        self.ask_with(facts, &console::say).await
    }

    async fn ask_with(
        &mut self,
        facts: impl Fn() -> Facts,
        say: &impl Fn(&str),
    ) -> Result<Vec<u8>, String> {
        self.await_facts(&facts, say).await;
        let facts = facts();
        if let (Some(oauth), None) = (&self.oauth, &self.token) {
            let token = authorize(oauth, &facts, say).await;
            self.token = Some(token.map_err(|why| format!("the authorization failed: {why}"))?);
        }
        let (url, token) = (url::fill(&self.template, &facts), self.token.clone());
        let fetched = spawn_blocking(move || url::get_authorized(&url, token.as_ref())).await;
        let fetched = fetched.map_err(|_| "the request panicked".to_owned())?;
        match fetched {
            Ok(bytes) => decode::unpack(bytes),
            Err(Failure { is_denied, why }) => {
                // The token may have expired, or a person without a right to the config has granted it.
                self.token = self.token.take().filter(|_| !is_denied);
                Err(why)
            }
        }
    }

    /// Waits until all facts that the templates name are known, once and not for long.
    async fn await_facts(&mut self, facts: &impl Fn() -> Facts, say: &impl Fn(&str)) {
        if std::mem::replace(&mut self.has_waited, true) {
            return;
        }
        let more = self.oauth.as_ref().map(|oauth| oauth.placeholders());
        let template = format!("{}{}", self.template, more.unwrap_or_default());
        let end = Instant::now() + FACTS_PATIENCE;
        let mut told = Vec::new();
        loop {
            let missing = facts().missing(&template);
            if missing.is_empty() {
                return;
            }
            let names = missing.join(", ");
            if Instant::now() >= end {
                say(&format!("asking for the machine config without {names}"));
                return;
            }
            if told != missing {
                say(&format!("waiting for {names} of this machine"));
                told = missing;
            }
            sleep(FACTS_PAUSE).await;
        }
    }
}

/// Shows a code on the console, and waits until a person has entered it.
async fn authorize(
    oauth: &Arc<OAuth>,
    facts: &Facts,
    say: &impl Fn(&str),
) -> Result<Secret, String> {
    let panicked = |_| "the request panicked".to_owned();
    let (client, known) = (Arc::clone(oauth), facts.clone());
    let grant = spawn_blocking(move || client.start(&known)).await;
    let grant = Arc::new(grant.map_err(panicked)??);
    let end = Instant::now() + grant.lifetime;
    let mut pause = grant.interval;
    let mut reminded = None;
    loop {
        if reminded.is_none_or(|at: Instant| at.elapsed() >= REMINDER) {
            tell(&grant, end, say);
            reminded = Some(Instant::now());
        }
        if Instant::now() + pause >= end {
            return Err("the code expired before a person entered it".to_owned());
        }
        sleep(pause).await;
        let (client, known, asked) = (Arc::clone(oauth), facts.clone(), Arc::clone(&grant));
        let answer = spawn_blocking(move || client.poll(&asked, &known)).await;
        match answer.map_err(panicked)? {
            Answer::Token(token) => {
                say("the machine is authorized to get its config");
                return Ok(token);
            }
            Answer::Pending => {}
            Answer::SlowDown => pause += SLOWER,
            Answer::Unreachable(why) => {
                pause = pause.saturating_mul(2).min(LONGEST_PAUSE).max(pause);
                say(&format!("{why}; asking again in {} s", pause.as_secs()));
            }
            Answer::Refused(why) => return Err(why),
        }
    }
}

fn tell(grant: &Grant, end: Instant, say: &impl Fn(&str)) {
    let left = end.saturating_duration_since(Instant::now()).as_secs();
    say(&format!(
        "to let this machine get its config, visit {} and enter the code {} within {left} s",
        grant.page, grant.user_code
    ));
    if let Some(page) = &grant.page_with_code {
        say(&format!("the page {page} has the code already"));
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
