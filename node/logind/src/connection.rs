//! One client's connection: the handshake, then calls until the client closes it.

use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::auth::{self, Auth};
use crate::inhibitors::Inhibitors;
use crate::manager::{self, Answer};
use crate::message::{self, Body};

/// Time for the whole handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Longest line of the handshake, and their number.
const LONGEST_LINE: usize = 256;
const LINES: usize = 16;
/// Time for a client to take an answer.
const WRITE: Duration = Duration::from_secs(5);

struct Connection {
    stream: UnixStream,
    /// Bytes of the client that were not read as a whole line or message yet.
    unread: Vec<u8>,
    /// Serial number of our last message.
    serial: u32,
    passes_descriptors: bool,
    is_subscribed: bool,
}

/// Serves a client until it closes the connection.
pub(crate) async fn serve(
    stream: UnixStream,
    guid: &str,
    inhibitors: &Inhibitors,
) -> io::Result<()> {
    let mut connection = Connection {
        stream,
        unread: Vec::new(),
        serial: 0,
        passes_descriptors: false,
        is_subscribed: false,
    };
    let served = async {
        let shaken = timeout(HANDSHAKE, connection.shake_hands(guid)).await;
        shaken.map_err(|_| io::Error::new(ErrorKind::TimedOut, "no handshake in time"))??;
        connection.answer_calls(inhibitors).await
    };
    match served.await {
        Err(error) if is_gone(&error) => Ok(()),
        served => served,
    }
}

/// Whether the client has closed the connection.
fn is_gone(error: &io::Error) -> bool {
    let gone = [
        ErrorKind::UnexpectedEof,
        ErrorKind::BrokenPipe,
        ErrorKind::ConnectionReset,
    ];
    gone.contains(&error.kind())
}

impl Connection {
    async fn shake_hands(&mut self, guid: &str) -> io::Result<()> {
        let mut auth = Auth::default();
        for number in 0..LINES {
            let line = self.line().await?;
            // A zero byte precedes the first line.
            let line = match number {
                0 => line
                    .strip_prefix('\0')
                    .ok_or_else(|| invalid("no handshake of D-Bus"))?,
                _ => &line,
            };
            match auth.answer(line, guid) {
                auth::Answer::Line(answer) => {
                    self.send(format!("{answer}\r\n").as_bytes(), None).await?;
                }
                auth::Answer::Begin => {
                    self.passes_descriptors = auth.passes_descriptors;
                    return Ok(());
                }
                auth::Answer::Refused => {
                    return Err(invalid("the client begins without a handshake"));
                }
            }
        }
        Err(invalid("a handshake without an end"))
    }

    async fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(length) = self.unread.windows(2).position(|end| end == b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..length + 2).take(length).collect();
                return String::from_utf8(line).map_err(|_| invalid("a line that is not UTF-8"));
            }
            if self.unread.len() > LONGEST_LINE {
                return Err(invalid("a line that is too long"));
            }
            self.fill().await?;
        }
    }

    async fn answer_calls(&mut self, inhibitors: &Inhibitors) -> io::Result<()> {
        let mut ends = inhibitors.ends();
        let mut is_told = false;
        loop {
            self.answer_all(inhibitors).await?;
            tokio::select! {
                filled = self.fill() => filled?,
                true = announced(&mut ends), if self.is_subscribed && !is_told => {
                    is_told = true;
                    let signal = manager::prepare_for_shutdown(self.next_serial());
                    self.send(&signal, None).await?;
                }
            }
        }
    }

    /// Answers the calls that have arrived.
    async fn answer_all(&mut self, inhibitors: &Inhibitors) -> io::Result<()> {
        while let Some((length, call)) = message::read(&self.unread).map_err(invalid)? {
            // Without a reply, the client could not get what it asks for.
            let answered = call.filter(|call| call.expects_reply).map(|call| {
                let answer = manager::answer(&call, inhibitors, self.passes_descriptors);
                (call.serial, answer)
            });
            self.unread.drain(..length);
            if let Some((to, answer)) = answered {
                self.answer(to, answer).await?;
            }
        }
        Ok(())
    }

    async fn answer(&mut self, to: u32, answer: Answer) -> io::Result<()> {
        let serial = self.next_serial();
        match answer {
            Answer::Reply(body) => self.send(&message::reply(serial, to, body), None).await,
            Answer::Subscribed => {
                self.is_subscribed = true;
                self.send(&message::reply(serial, to, Body::Empty), None)
                    .await
            }
            Answer::Inhibitor(pipe) => {
                let reply = message::reply(serial, to, Body::Descriptor);
                self.send(&reply, Some(pipe.as_fd())).await
            }
            Answer::Refused(name, why) => {
                self.send(&message::error(serial, to, name, &why), None)
                    .await
            }
        }
    }

    /// Zero is no serial number.
    fn next_serial(&mut self) -> u32 {
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        self.serial
    }

    /// Waits for more bytes of the client. The kernel closes descriptors that come with them.
    async fn fill(&mut self) -> io::Result<()> {
        loop {
            self.stream.readable().await?;
            match self.stream.try_read_buf(&mut self.unread) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn send(&mut self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let sent = async {
            let sent = match descriptor {
                // It goes with the first byte.
                Some(descriptor) => self.send_with(bytes, descriptor).await?,
                None => 0,
            };
            self.stream
                .write_all(bytes.get(sent..).unwrap_or_default())
                .await
        };
        let sent = timeout(WRITE, sent).await;
        sent.unwrap_or_else(|_| {
            Err(io::Error::new(
                ErrorKind::TimedOut,
                "the client takes no answer",
            ))
        })
    }

    async fn send_with(&self, bytes: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
        let send = || {
            let descriptors = [descriptor];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            let sent = sendmsg(
                &self.stream,
                &[IoSlice::new(bytes)],
                &mut control,
                SendFlags::NOSIGNAL,
            );
            sent.map_err(io::Error::from)
        };
        self.stream.async_io(Interest::WRITABLE, send).await
    }
}

/// Waits for the announcement; whether it has come.
async fn announced(ends: &mut watch::Receiver<bool>) -> bool {
    ends.wait_for(|ends| *ends).await.is_ok()
}

fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why.to_string())
}
