//! What is kept between a server's answers: keys, and cookies by which the server knows the keys again. A cookie is used
//! once, so that nobody can follow a node from network to network.

use std::collections::VecDeque;
use std::fmt;
use std::time::SystemTime;

use ring::rand::{SecureRandom as _, SystemRandom};
use zeroize::Zeroizing;

use crate::HEADER;
use crate::fields::{self, BadFields, NONCE, UNIQUE};
use crate::records::{COOKIES, Offer};
use crate::seal::KEY;

/// A question is no longer, so that it passes every network whole.
const LONGEST: usize = 1200;
/// What a question has beside its cookies.
const REST: usize = HEADER + 4 + UNIQUE + 8 + NONCE + 16;

/// By which both sides prove themselves.
pub(crate) struct Keys {
    pub(crate) to_server: Zeroizing<[u8; KEY]>,
    pub(crate) to_client: Zeroizing<[u8; KEY]>,
}

/// With a server.
pub struct Session {
    keys: Keys,
    cookies: VecDeque<Vec<u8>>,
    server: Option<String>,
    port: Option<u16>,
    valid: (SystemTime, SystemTime),
}

/// A packet, and what its answer is recognised by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// To be sent.
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

    /// The machine that has the time, when it is another one than that which has exchanged the keys.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        self.server.as_deref()
    }

    /// Its port, when it is not the usual one.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Whether the server's certificate is valid at a time that the server tells.
    #[must_use]
    pub fn is_valid_at(&self, time: SystemTime) -> bool {
        let (from, until) = self.valid;
        (from..=until).contains(&time)
    }

    /// Whether there is a cookie for another question.
    #[must_use]
    pub fn can_ask(&self) -> bool {
        !self.cookies.is_empty()
    }

    /// Makes a question of a packet without fields. It uses up a cookie, and asks for as many as are missing.
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

    /// Reads the answer to a question: the packet without fields, which the server has proved.
    ///
    /// # Errors
    /// Why it is none.
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
