//! A small client of QEMU's debugger stub, with which tests inject hardware faults into a processor.

use std::io::{self, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::VmError;

/// Timeout of an answer. QEMU answers at once, on a busy host within seconds.
const ANSWER: Duration = Duration::from_secs(20);
/// Largest answer in bytes; all registers of a processor take 1.2 KiB.
const LARGEST: usize = 16 << 10;

/// Offsets of registers in the answer to `g` for x86-64. GDB's `64bit-core.xml` has sixteen general
/// registers of eight bytes, the eighth of which is the stack pointer, then `rip`, then `eflags` of
/// four bytes.
const RSP: usize = 7 * 8;
const RIP: usize = 16 * 8;
const EFLAGS: usize = 17 * 8;

/// A connection to the debugger stub of an x86-64 machine.
///
/// The protocol is GDB's (Debugging with GDB, appendix "GDB Remote Serial Protocol": "Overview", "Packets"); QEMU's
/// manual, "GDB usage", describes QEMU's extensions. The machine is halted while a client is connected, and stays
/// halted if the connection ends without [`Gdb::detach`].
#[derive(Debug)]
pub struct Gdb {
    stream: BufReader<UnixStream>,
    patience: Duration,
}

/// The general registers of a processor, its instruction pointer and its flags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registers([u8; EFLAGS + 4]);

impl Registers {
    /// The instruction pointer, `rip`.
    #[must_use]
    pub fn instruction(&self) -> u64 {
        u64::from_le_bytes(self.part(RIP))
    }

    /// The stack pointer, `rsp`.
    #[must_use]
    pub fn stack(&self) -> u64 {
        u64::from_le_bytes(self.part(RSP))
    }

    /// `eflags`.
    #[must_use]
    pub fn flags(&self) -> u32 {
        u32::from_le_bytes(self.part(EFLAGS))
    }

    /// The registers with another instruction pointer.
    #[must_use]
    pub fn with_instruction(self, at: u64) -> Self {
        self.with(RIP, &at.to_le_bytes())
    }

    /// The registers with other flags.
    #[must_use]
    pub fn with_flags(self, flags: u32) -> Self {
        self.with(EFLAGS, &flags.to_le_bytes())
    }

    fn with(mut self, at: usize, bytes: &[u8]) -> Self {
        let place = self.0.iter_mut().skip(at);
        place.zip(bytes).for_each(|(old, new)| *old = *new);
        self
    }

    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|index| self.0.get(at + index).copied().unwrap_or_default())
    }
}

impl Gdb {
    /// Connects, which halts the machine.
    pub(crate) fn connect(path: &Path) -> Result<Self, VmError> {
        let stream = UnixStream::connect(path).map_err(VmError::file("connect to", path))?;
        let waits = stream.set_write_timeout(Some(ANSWER));
        waits.map_err(VmError::file("connect to", path))?;
        Ok(Self {
            stream: BufReader::new(stream),
            patience: ANSWER,
        })
    }

    /// Selects the processor, and its view of the memory, for all following requests; the first is
    /// 0.
    ///
    /// # Errors
    /// [`VmError::GdbRefused`] when the processor does not exist. [`VmError::GdbLost`] when QEMU
    /// has ended, does not answer within 20 s, or violates the protocol.
    pub fn select(&mut self, processor: u32) -> Result<(), VmError> {
        // The stub calls processors threads and numbers them from 1.
        self.ask(&format!("Hg{:x}", processor.saturating_add(1)))
            .map(drop)
    }

    /// The processor's registers.
    ///
    /// # Errors
    /// As [`Gdb::select`].
    pub fn registers(&mut self) -> Result<Registers, VmError> {
        let all = self.ask_hex("g")?;
        let leading = all.first_chunk().ok_or_else(|| VmError::GdbRefused {
            request: "g".to_owned(),
            answer: format!("{} bytes of registers, too few", all.len()),
        })?;
        Ok(Registers(*leading))
    }

    /// Sets the processor's registers.
    ///
    /// # Errors
    /// As [`Gdb::select`].
    pub fn set_registers(&mut self, registers: &Registers) -> Result<(), VmError> {
        // QEMU does not change registers that are missing at the end.
        self.ask(&format!("G{}", hex::encode(registers.0)))
            .map(drop)
    }

    /// Reads memory.
    ///
    /// # Errors
    /// As [`Gdb::select`]; [`VmError::GdbRefused`] also for unmapped memory.
    pub fn read(&mut self, at: u64, bytes: usize) -> Result<Vec<u8>, VmError> {
        self.ask_hex(&format!("m{at:x},{bytes:x}"))
    }

    /// Writes memory, even if it is mapped read-only.
    ///
    /// # Errors
    /// As [`Gdb::read`].
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), VmError> {
        let request = format!("M{at:x},{:x}:{}", bytes.len(), hex::encode(bytes));
        self.ask(&request).map(drop)
    }

    /// Resumes the machine and disconnects.
    ///
    /// # Errors
    /// As [`Gdb::select`].
    pub fn detach(mut self) -> Result<(), VmError> {
        self.ask("D").map(drop)
    }

    fn ask_hex(&mut self, request: &str) -> Result<Vec<u8>, VmError> {
        let answer = self.ask(request)?;
        hex::decode(&answer).map_err(|_| VmError::GdbRefused {
            request: request.to_owned(),
            answer: String::from_utf8_lossy(&answer).into_owned(),
        })
    }

    fn ask(&mut self, request: &str) -> Result<Vec<u8>, VmError> {
        let lost = |source| VmError::GdbLost {
            request: request.to_owned(),
            source,
        };
        let end = Instant::now() + self.patience;
        let packet = format!("${request}#{}", checksum(request.as_bytes()));
        self.send(packet.as_bytes()).map_err(lost)?;
        loop {
            let answer = self.packet(end).map_err(lost)?;
            self.send(b"+").map_err(lost)?;
            let refused = match answer.first() {
                // The stub reports a stop of the machine without a request.
                Some(b'T' | b'S') => continue,
                Some(b'E') => String::from_utf8_lossy(&answer).into_owned(),
                Some(_) => return Ok(answer),
                None => "unknown to the stub".to_owned(),
            };
            return Err(VmError::GdbRefused {
                request: request.to_owned(),
                answer: refused,
            });
        }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// The next packet's content.
    fn packet(&mut self, end: Instant) -> io::Result<Vec<u8>> {
        let wrong = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        loop {
            match self.byte(end)? {
                b'$' => break,
                b'-' => return wrong("the request arrived damaged"),
                _ => {}
            }
        }
        let mut coded = Vec::new();
        loop {
            match self.byte(end)? {
                b'#' => break,
                byte if coded.len() < LARGEST => coded.push(byte),
                _ => return wrong("an answer without an end"),
            }
        }
        let sum = [self.byte(end)?, self.byte(end)?];
        if !checksum(&coded).as_bytes().eq_ignore_ascii_case(&sum) {
            return wrong("an answer whose checksum is wrong");
        }
        match decode(&coded) {
            Some(content) => Ok(content),
            None => wrong("an answer that cannot be decoded"),
        }
    }

    fn byte(&mut self, end: Instant) -> io::Result<u8> {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.get_ref().set_read_timeout(Some(left))?;
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        let [byte] = byte;
        Ok(byte)
    }
}

/// The sum of a packet's encoded bytes, in two hex digits.
fn checksum(coded: &[u8]) -> String {
    let sum = coded.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    format!("{sum:02x}")
}

/// Decodes escapes (`}` and the byte with bit 5 flipped) and run lengths (`*` and the count plus
/// 29); `None` for an incomplete one.
fn decode(coded: &[u8]) -> Option<Vec<u8>> {
    let mut content = Vec::with_capacity(coded.len());
    let mut bytes = coded.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'}' => content.push(bytes.next()? ^ 0x20),
            b'*' => {
                let count = bytes.next()?.checked_sub(29)?;
                let last = *content.last()?;
                content.extend(std::iter::repeat_n(last, count.into()));
            }
            byte => content.push(*byte),
        }
    }
    Some(content)
}

#[cfg(test)]
mod tests;
