use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;

use super::*;

/// A stub that greets as QEMU does and then sends the given raw answers. Its thread returns the
/// requests.
fn stub(answers: Vec<Vec<u8>>) -> (Gdb, JoinHandle<Vec<String>>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gdb");
    let listener = UnixListener::bind(&path).unwrap();
    let stub = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&packet("T02thread:01;")).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut asked = Vec::new();
        for answer in answers {
            asked.push(request(&mut reader));
            stream.write_all(&answer).unwrap();
        }
        // Reads until the client disconnects.
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        asked
    });
    (Gdb::connect(&path).unwrap(), stub)
}

fn request(reader: &mut BufReader<UnixStream>) -> String {
    let mut text = Vec::new();
    let mut sum = [0; 2];
    while !text.ends_with(b"#") {
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        text.extend(byte);
    }
    reader.read_exact(&mut sum).unwrap();
    let text = String::from_utf8(text).unwrap();
    let (_acknowledged, text) = text.split_once('$').unwrap();
    let text = text.strip_suffix('#').unwrap();
    assert_eq!(checksum(text.as_bytes()).as_bytes(), sum);
    text.to_owned()
}

fn packet(content: &str) -> Vec<u8> {
    format!("+${content}#{}", checksum(content.as_bytes())).into_bytes()
}

/// The error message of a request with this answer.
fn complaint(answer: &[u8]) -> String {
    let (mut gdb, _stub) = stub(vec![answer.to_vec()]);
    let error = gdb.read(0x1000, 2).unwrap_err();
    let source = std::error::Error::source(&error).map(ToString::to_string);
    format!("{error}: {}", source.unwrap_or_default())
}

#[test]
fn registers_and_memory_are_read_and_written() {
    let mut general = vec![0; EFLAGS];
    general[RSP] = 7;
    general[RIP] = 0x10;
    general[RIP + 7] = 0xff;
    // The bytes after the flags are ignored.
    let told = format!("{}46020000ffff", hex::encode(&general));
    let answers = ["OK", &told, "OK", "ebfe", "OK", "OK"];
    let (mut gdb, stub) = stub(answers.iter().map(|answer| packet(answer)).collect());
    gdb.select(9).unwrap();
    let registers = gdb.registers().unwrap();
    assert_eq!(registers.instruction(), 0xff00_0000_0000_0010);
    assert_eq!((registers.stack(), registers.flags()), (7, 0x246));
    let changed = registers.with_instruction(0x12_3456);
    gdb.set_registers(&changed).unwrap();
    assert_eq!(gdb.read(0xffff_8000, 2).unwrap(), [0xeb, 0xfe]);
    gdb.write(0x10, &[0xeb, 0xfe]).unwrap();
    gdb.detach().unwrap();
    general[RIP..].copy_from_slice(&[0x56, 0x34, 0x12, 0, 0, 0, 0, 0]);
    let set = format!("G{}46020000", hex::encode(&general));
    let asked = ["Hga", "g", &set, "mffff8000,2", "M10,2:ebfe", "D"];
    assert_eq!(stub.join().unwrap(), asked);
}

#[test]
fn refused_gdb_request_is_named_in_the_error() {
    let refused = "QEMU's debugger stub refused `m1000,2`: ";
    assert!(complaint(&packet("E14")).starts_with(&format!("{refused}E14")));
    assert!(complaint(&packet("")).starts_with(&format!("{refused}unknown to the stub")));
    assert!(complaint(&packet("no hex")).starts_with(&format!("{refused}no hex")));
    let (mut gdb, _stub) = stub(vec![packet("0011")]);
    let few = gdb.registers().unwrap_err().to_string();
    assert!(few.contains("2 bytes of registers"), "{few}");
}

#[test]
fn malformed_gdb_answer_is_an_error() {
    let lost = "connection to QEMU's debugger stub lost while asking `m1000,2`: ";
    let cases: [(&[u8], &str); 4] = [
        (b"+$ebfe#93", "checksum is wrong"),
        (b"-", "arrived damaged"),
        (b"+$}#7d", "cannot be decoded"),
        (
            &[&b"+$"[..], &[b'0'; LARGEST + 1]].concat(),
            "without an end",
        ),
    ];
    for (answer, expected) in cases {
        let told = complaint(answer);
        assert!(told.starts_with(lost) && told.contains(expected), "{told}");
    }
}

#[test]
fn gdb_requests_time_out() {
    // A silent stub, and a stub that repeats one packet.
    for answer in [Vec::new(), packet("T02thread:01;").repeat(1 << 10)] {
        let (mut gdb, _stub) = stub(vec![answer]);
        gdb.patience = Duration::from_millis(50);
        assert!(matches!(gdb.read(0, 1), Err(VmError::GdbLost { .. })));
    }
    let (mut gdb, stub) = stub(Vec::new());
    gdb.stream
        .get_ref()
        .shutdown(std::net::Shutdown::Write)
        .unwrap();
    stub.join().unwrap();
    assert!(matches!(gdb.read(0, 1), Err(VmError::GdbLost { .. })));
}

#[test]
fn escapes_and_run_lengths_are_decoded() {
    assert_eq!(decode(b"a}\x03b").unwrap(), b"a#b");
    assert_eq!(decode(b"0* 1").unwrap(), b"00001");
    for half in [&b"a}"[..], b"a*", b"*!", b"a*\x1c"] {
        assert_eq!(decode(half), None);
    }
}
