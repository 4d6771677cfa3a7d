//! The state between a server's responses: the keys, and cookies by which the server recovers them. Each cookie is used
//! once, so that an observer cannot track a node between networks.

use std::collections::VecDeque;
use std::fmt;
use std::time::SystemTime;

use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use crate::HEADER;
use crate::fields::{self, BadFields, NONCE, UNIQUE};
use crate::records::{COOKIES, Offer};
use crate::seal::KEY;

/// Longest request in bytes; it passes every network without fragmentation.
const LONGEST: usize = 1200;
/// Length of a request without its cookies.
const REST: usize = HEADER + 4 + UNIQUE + 8 + NONCE + 16;

/// The keys of both directions.
pub(crate) struct Keys {
    pub(crate) to_server: Zeroizing<[u8; KEY]>,
    pub(crate) to_client: Zeroizing<[u8; KEY]>,
}

/// A session with a server.
pub struct Session {
    keys: Keys,
    cookies: VecDeque<Vec<u8>>,
    server: Option<String>,
    port: Option<u16>,
    valid: (SystemTime, SystemTime),
}

/// A request, and the identifier that matches its response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The packet to send.
    pub packet: Vec<u8>,
    unique: [u8; UNIQUE],
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cookies = self.cookies.len();
        write!(
            f,
            "Session {{ server: {:?}, cookies: {cookies} }}",
            self.server
        )
    }
}

impl Session {
    pub(crate) fn new(keys: Keys, offer: Offer, valid: (SystemTime, SystemTime)) -> Session {
        Session {
            keys,
            cookies: offer.cookies.into(),
            server: offer.server,
            port: offer.port,
            valid,
        }
    }

    /// The time server, if it is another machine than the key exchange server.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// The port of the time server, if the server named one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether the server's certificate is valid at the time that the server states.
    #[must_use]
    pub fn is_valid_at(&self, time: SystemTime) -> bool {
        let (from, until) = self.valid;
        (from..=until).contains(&time)
    }

    /// Whether a cookie is left for another request.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        !self.cookies.is_empty()
    }

    /// Builds a request from a packet without fields. It consumes a cookie, and requests the missing ones.
    pub fn question(&mut self, header: &[u8; HEADER]) -> Option<Question> {
        let cookie = self.cookies.pop_front()?;
        let field = cookie.len().next_multiple_of(4) + 4;
        let fit = LONGEST.saturating_sub(REST) / field.max(1);
        let missing = COOKIES.saturating_sub(self.cookies.len() + 1);
        let more = missing.min(fit.saturating_sub(1));
        let random = SystemRandom::new();
        let (mut unique, mut nonce) = ([0; UNIQUE], [0; NONCE]);
        random.fill(&mut unique).ok()?;
        random.fill(&mut nonce).ok()?;
        let key = &self.keys.to_server;
        let packet = fields::question(header, &unique, &nonce, &cookie, more, key)?;
        Some(Question { packet, unique })
    }

    /// Reads the response to a request; returns the authenticated packet without fields.
    ///
    /// # Errors
    /// The reason why the response is not accepted.
    pub fn answer(
        &mut self,
        packet: &[u8],
        question: &Question,
    ) -> Result<[u8; HEADER], BadFields> {
        let proved = fields::answer(packet, &question.unique, &self.keys.to_client)?;
        let room = COOKIES.saturating_sub(self.cookies.len());
        self.cookies.extend(proved.cookies.into_iter().take(room));
        Ok(proved.header)
    }
}
