//! Guest properties of VMware, read through the hypervisor's I/O port (Ken Kato: "VMware backdoor I/O port";
//! open-vm-tools: `lib/message`).

use std::io;

const COMMAND: u32 = 30;
/// The protocol `RPCI`, with the flag for cookies.
const PROTOCOL: u32 = 0x4943_5052 | 0x8000_0000;
const OPEN: u32 = 0;
const SEND_LENGTH: u32 = 1;
const SEND: u32 = 2;
const RECEIVE_LENGTH: u32 = 3;
const RECEIVE: u32 = 4;
const RECEIVED: u32 = 5;
const CLOSE: u32 = 6;
/// Status bits of each step.
const SUCCESS: u32 = 1;
const HAS_REPLY: u32 = 2;
/// Size limit of a property in bytes.
const LARGEST: usize = crate::client::LARGEST;

/// Passes the registers `eax`, `ebx`, `ecx`, `edx`, `esi` and `edi` to the hypervisor and returns its answer. The
/// function sets the magic number and the port itself.
pub type Port<'a> = &'a mut dyn FnMut([u32; 6]) -> io::Result<[u32; 6]>;

/// Reads the property of this name; `None` if there is none.
///
/// # Errors
/// The machine does not run on VMware, or the hypervisor refuses.
pub fn guestinfo(port: Port<'_>, key: &str) -> Result<Option<Vec<u8>>, String> {
    let mut channel = Channel::open(port)?;
    let reply = channel.ask(&format!("info-get {key}"));
    channel.close();
    let reply = reply?;
    match reply.split_at_checked(2) {
        Some((b"1 ", value)) => Ok(Some(value.to_vec()).filter(|value| !value.is_empty())),
        Some((b"0 ", _)) => Ok(None),
        _ => Err(format!("{key}: the reply of VMware is malformed")),
    }
}

struct Channel<'a> {
    port: Port<'a>,
    number: u32,
    cookies: [u32; 2],
}

impl<'a> Channel<'a> {
    fn open(port: Port<'a>) -> Result<Channel<'a>, String> {
        let mut channel = Channel {
            port,
            number: 0,
            cookies: [0; 2],
        };
        let [_, _, _, edx, esi, edi] = channel.step(OPEN, PROTOCOL)?;
        channel.number = edx & 0xffff_0000;
        channel.cookies = [esi, edi];
        Ok(channel)
    }

    /// Performs one step, and returns all registers.
    fn step(&mut self, step: u32, value: u32) -> Result<[u32; 6], String> {
        let [esi, edi] = self.cookies;
        let registers = [0, value, step << 16 | COMMAND, self.number, esi, edi];
        let answer = (self.port)(registers).map_err(|error| error.to_string())?;
        let [_, _, ecx, ..] = answer;
        if ecx >> 16 & SUCCESS == 0 {
            return Err(format!("VMware refuses step {step} of a message"));
        }
        Ok(answer)
    }

    fn ask(&mut self, question: &str) -> Result<Vec<u8>, String> {
        let length = u32::try_from(question.len()).map_err(|error| error.to_string())?;
        self.step(SEND_LENGTH, length)?;
        for word in question.as_bytes().chunks(4) {
            let mut bytes = [0; 4];
            for (byte, from) in bytes.iter_mut().zip(word) {
                *byte = *from;
            }
            self.step(SEND, u32::from_le_bytes(bytes))?;
        }
        let [_, length, ecx, ..] = self.step(RECEIVE_LENGTH, 0)?;
        if ecx >> 16 & HAS_REPLY == 0 {
            return Ok(Vec::new());
        }
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > LARGEST {
            return Err(format!("a property is larger than {} KiB", LARGEST >> 10));
        }
        let mut reply = Vec::with_capacity(length);
        while reply.len() < length {
            let [_, word, ..] = self.step(RECEIVE, SUCCESS)?;
            reply.extend(word.to_le_bytes());
        }
        reply.truncate(length);
        self.step(RECEIVED, SUCCESS)?;
        Ok(reply)
    }

    fn close(&mut self) {
        // A failure is harmless: the reply has arrived, and the channel ends with the machine.
        let _ = self.step(CLOSE, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    /// Fake hypervisor.
    #[derive(Default)]
    struct Host {
        value: Option<&'static str>,
        expected: usize,
        question: Vec<u8>,
        reply: Vec<u8>,
        is_open: bool,
    }

    impl Host {
        fn call(&mut self, [_, value, ecx, edx, esi, edi]: [u32; 6]) -> io::Result<[u32; 6]> {
            const COOKIES: [u32; 2] = [0x1234_5678, 0x9abc_def0];
            assert_eq!(ecx & 0xffff, COMMAND);
            if ecx >> 16 != OPEN {
                assert_eq!((edx, [esi, edi]), (3 << 16, COOKIES));
            }
            let mut answer = [0, 0, SUCCESS << 16, 3 << 16, COOKIES[0], COOKIES[1]];
            match ecx >> 16 {
                OPEN => {
                    assert_eq!(value, PROTOCOL);
                    self.is_open = true;
                }
                SEND_LENGTH => self.expected = value as usize,
                SEND => self.question.extend(value.to_le_bytes()),
                RECEIVE_LENGTH => {
                    self.question.truncate(self.expected);
                    let value = self.value.map(|value| format!("1 {value}"));
                    let reply = value.unwrap_or("0 No value found".to_owned());
                    answer[1] = u32::try_from(reply.len()).unwrap();
                    answer[2] |= HAS_REPLY << 16;
                    self.reply = reply.into();
                }
                RECEIVE => {
                    let rest = self.reply.split_off(self.reply.len().min(4));
                    let mut word = std::mem::replace(&mut self.reply, rest);
                    word.resize(4, 0);
                    answer[1] = u32::from_le_bytes(word.try_into().unwrap());
                }
                RECEIVED => assert!(self.reply.is_empty()),
                CLOSE => self.is_open = false,
                other => panic!("{other}"),
            }
            Ok(answer)
        }
    }

    #[test]
    fn a_property_is_read_and_the_channel_closed() {
        for (value, expected) in [
            (Some("abcdefg"), Some(b"abcdefg".to_vec())),
            (Some(""), None),
            (None, None),
        ] {
            let mut host = Host {
                value,
                ..Host::default()
            };
            let found = guestinfo(&mut |registers| host.call(registers), "guestinfo.userdata");
            assert_eq!(found, Ok(expected));
            assert_eq!(host.question, b"info-get guestinfo.userdata");
            assert!(!host.is_open);
        }
    }

    #[test]
    fn guestinfo_outside_vmware_is_an_error() {
        let why = "this machine is not a VMware guest";
        let refuse = &mut |_| Err(io::Error::other(why));
        assert_eq!(guestinfo(refuse, "guestinfo.userdata"), Err(why.to_owned()));
    }

    proptest! {
        #[test]
        fn hostile_hypervisors_end_in_an_error(answers in any::<Vec<[u32; 6]>>()) {
            let mut answers = answers.into_iter();
            let mut calls = 0_usize;
            let found = guestinfo(
                &mut |_| {
                    calls += 1;
                    answers.next().ok_or_else(|| io::Error::other("gone"))
                },
                "guestinfo.userdata",
            );
            prop_assert!(found.is_err() || calls > 4);
        }
    }
}
