//! Messages of D-Bus (specification, "Message Protocol"): method calls of clients, and answers and signals to them.
//!
//! Both sides run on one machine, and the node's processors are little-endian, so no other order is read.

use std::str;

/// Longest message of a client in bytes. The kubelet's have less than 300.
const LONGEST: usize = 4096;
/// Length of the fixed part of a header, with the length of its fields.
const FIXED: usize = 16;
/// Version of the protocol.
const VERSION: u8 = 1;
const LITTLE_ENDIAN: u8 = b'l';
/// Flag of a call whose client awaits no answer.
const NO_REPLY_EXPECTED: u8 = 0x1;

const CALL: u8 = 1;
const REPLY: u8 = 2;
const ERROR: u8 = 3;
const SIGNAL: u8 = 4;

const PATH: u8 = 1;
const INTERFACE: u8 = 2;
const MEMBER: u8 = 3;
const ERROR_NAME: u8 = 4;
const REPLY_SERIAL: u8 = 5;
const SIGNATURE: u8 = 8;
const UNIX_FDS: u8 = 9;

/// Reason why a message is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message that is not D-Bus: {0}")]
pub(crate) struct Bad(&'static str);

const CUT: Bad = Bad("a value exceeds its message");

/// A method call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Call<'a> {
    pub(crate) serial: u32,
    pub(crate) expects_reply: bool,
    pub(crate) path: &'a str,
    pub(crate) interface: &'a str,
    pub(crate) member: &'a str,
    signature: &'a str,
    body: &'a [u8],
}

impl<'a> Call<'a> {
    /// The arguments, if they are exactly `N` strings.
    pub(crate) fn strings<const N: usize>(&self) -> Option<[&'a str; N]> {
        let are_strings = self.signature.bytes().all(|kind| kind == b's');
        if self.signature.len() != N || !are_strings {
            return None;
        }
        let mut body = Reader::of(self.body);
        let mut arguments = [""; N];
        for argument in &mut arguments {
            *argument = body.string().ok()?;
        }
        body.is_at_end().then_some(arguments)
    }
}

/// The first message in `bytes`, with its length; `None` while it is incomplete. A message without a call is one that
/// needs no answer.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<(usize, Option<Call<'_>>)>, Bad> {
    if bytes.len() < FIXED {
        return Ok(None);
    }
    let mut fixed = Reader::of(bytes);
    if fixed.byte()? != LITTLE_ENDIAN {
        return Err(Bad("its byte order"));
    }
    let (kind, flags, version) = (fixed.byte()?, fixed.byte()?, fixed.byte()?);
    let (body, serial, fields) = (fixed.length()?, fixed.number()?, fixed.length()?);
    if kind == 0 || version != VERSION || serial == 0 {
        return Err(Bad("its kind, version or serial number"));
    }
    // Both lengths are at most LONGEST, so that their sum cannot overflow.
    let fields = FIXED + fields;
    let header = fields.next_multiple_of(8);
    let total = header + body;
    if total > LONGEST {
        return Err(Bad("it is too long"));
    }
    let Some(message) = bytes.get(..total) else {
        return Ok(None);
    };
    let mut call = Call {
        serial,
        expects_reply: flags & NO_REPLY_EXPECTED == 0,
        body: message.get(header..).ok_or(CUT)?,
        ..Call::default()
    };
    let mut reader = Reader::of(message.get(..fields).ok_or(CUT)?);
    reader.take(FIXED)?;
    while !reader.is_at_end() {
        reader.field(&mut call)?;
    }
    Ok(Some((total, (kind == CALL).then_some(call))))
}

/// Reads values. Their alignment counts from the first byte of `bytes`, so that must be a multiple of 8 in the message.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn of(bytes: &'a [u8]) -> Reader<'a> {
        Reader { bytes, at: 0 }
    }

    fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Bad> {
        let end = self.at.checked_add(length).ok_or(CUT)?;
        let taken = self.bytes.get(self.at..end).ok_or(CUT)?;
        self.at = end;
        Ok(taken)
    }

    fn align(&mut self, to: usize) -> Result<(), Bad> {
        let padding = self.take(self.at.next_multiple_of(to) - self.at)?;
        match padding.iter().all(|&byte| byte == 0) {
            true => Ok(()),
            false => Err(Bad("padding that is not zero")),
        }
    }

    fn byte(&mut self) -> Result<u8, Bad> {
        self.take(1)?.first().copied().ok_or(CUT)
    }

    fn number(&mut self) -> Result<u32, Bad> {
        self.align(4)?;
        let bytes = self.take(4)?.first_chunk().ok_or(CUT)?;
        Ok(u32::from_le_bytes(*bytes))
    }

    /// A number of bytes, at most [`LONGEST`].
    fn length(&mut self) -> Result<usize, Bad> {
        let length = usize::try_from(self.number()?).ok();
        let length = length.filter(|&length| length <= LONGEST);
        length.ok_or(Bad("it is too long"))
    }

    fn string(&mut self) -> Result<&'a str, Bad> {
        let length = self.length()?;
        self.text(length)
    }

    fn signature(&mut self) -> Result<&'a str, Bad> {
        let length = self.byte()?.into();
        self.text(length)
    }

    /// Text with a zero behind it.
    fn text(&mut self, length: usize) -> Result<&'a str, Bad> {
        let text = self.take(length)?;
        if self.byte()? != 0 || text.contains(&0) {
            return Err(Bad("text without its end"));
        }
        str::from_utf8(text).map_err(|_| Bad("text that is not UTF-8"))
    }

    /// A field of the header. The protocol has readers skip unknown fields.
    fn field(&mut self, call: &mut Call<'a>) -> Result<(), Bad> {
        self.align(8)?;
        let code = self.byte()?;
        match (code, self.signature()?) {
            (PATH, "o") => call.path = self.string()?,
            (INTERFACE, "s") => call.interface = self.string()?,
            (MEMBER, "s") => call.member = self.string()?,
            (SIGNATURE, "g") => call.signature = self.signature()?,
            (PATH | INTERFACE | MEMBER | SIGNATURE, _) => {
                return Err(Bad("a field of another type"));
            }
            (_, kind) => self.skip(kind)?,
        }
        Ok(())
    }

    fn skip(&mut self, kind: &str) -> Result<(), Bad> {
        let size = match kind {
            "s" | "o" => return self.string().map(drop),
            "g" => return self.signature().map(drop),
            "y" => 1,
            "n" | "q" => 2,
            "b" | "i" | "u" | "h" => 4,
            "x" | "t" | "d" => 8,
            _ => return Err(Bad("an unknown field of more than one value")),
        };
        self.align(size)?;
        self.take(size).map(drop)
    }
}

/// Content of a message to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    /// Nothing.
    Empty,
    /// A string.
    Text(&'a str),
    /// A boolean.
    Flag(bool),
    /// An unsigned number in a variant.
    Number(u64),
    /// The descriptor that is sent with the message.
    Descriptor,
}

impl Body<'_> {
    fn signature(self) -> &'static str {
        match self {
            Body::Empty => "",
            Body::Text(_) => "s",
            Body::Flag(_) => "b",
            Body::Number(_) => "v",
            Body::Descriptor => "h",
        }
    }

    fn bytes(self) -> Vec<u8> {
        let mut body = Writer::default();
        match self {
            Body::Empty => {}
            Body::Text(text) => body.string(text),
            Body::Flag(flag) => body.number(flag.into()),
            Body::Number(number) => {
                body.signature("t");
                body.align(8);
                body.0.extend(number.to_le_bytes());
            }
            // Its index among the descriptors of the message.
            Body::Descriptor => body.number(0),
        }
        body.0
    }
}

/// The answer to the call with this serial number.
pub(crate) fn reply(serial: u32, to: u32, body: Body<'_>) -> Vec<u8> {
    message(REPLY, serial, body, |fields| {
        fields.number_field(REPLY_SERIAL, to);
    })
}

/// The refusal of the call with this serial number.
pub(crate) fn error(serial: u32, to: u32, name: &str, why: &str) -> Vec<u8> {
    message(ERROR, serial, Body::Text(why), |fields| {
        fields.text_field(ERROR_NAME, "s", name);
        fields.number_field(REPLY_SERIAL, to);
    })
}

/// A signal.
pub(crate) fn signal(
    serial: u32,
    path: &str,
    (interface, member): (&str, &str),
    body: Body<'_>,
) -> Vec<u8> {
    message(SIGNAL, serial, body, |fields| {
        fields.text_field(PATH, "o", path);
        fields.text_field(INTERFACE, "s", interface);
        fields.text_field(MEMBER, "s", member);
    })
}

fn message(kind: u8, serial: u32, body: Body<'_>, named: impl FnOnce(&mut Writer)) -> Vec<u8> {
    // The fields begin at byte 16, so their alignment is that of a message of their own.
    let mut fields = Writer::default();
    named(&mut fields);
    if body != Body::Empty {
        fields.head(SIGNATURE, "g");
        fields.signature(body.signature());
    }
    if body == Body::Descriptor {
        fields.number_field(UNIX_FDS, 1);
    }
    let body = body.bytes();
    let mut message = Writer(vec![LITTLE_ENDIAN, kind, 0, VERSION]);
    message.length(body.len());
    message.number(serial);
    message.length(fields.0.len());
    message.0.extend(fields.0);
    message.align(8);
    message.0.extend(body);
    message.0
}

/// Writes values.
#[derive(Debug, Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    fn length(&mut self, length: usize) {
        // Every text is ours, or part of a message of at most LONGEST bytes.
        self.number(u32::try_from(length).unwrap_or(u32::MAX));
    }

    fn string(&mut self, text: &str) {
        self.length(text.len());
        self.text(text);
    }

    fn signature(&mut self, signature: &str) {
        self.0
            .push(u8::try_from(signature.len()).unwrap_or(u8::MAX));
        self.text(signature);
    }

    fn text(&mut self, text: &str) {
        self.0.extend(text.bytes());
        self.0.push(0);
    }

    fn head(&mut self, code: u8, kind: &str) {
        self.align(8);
        self.0.push(code);
        self.signature(kind);
    }

    fn text_field(&mut self, code: u8, kind: &str, text: &str) {
        self.head(code, kind);
        self.string(text);
    }

    fn number_field(&mut self, code: u8, number: u32) {
        self.head(code, "u");
        self.number(number);
    }
}
