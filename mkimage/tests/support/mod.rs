//! What the tests of calls that fail share.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Writes a program, and the directories above it. Another process does: a child that another test starts meanwhile
/// would have the file open for a moment longer, and what is open to be written cannot be run (execve(2), `ETXTBSY`).
pub fn write_program(path: &Path, content: &[u8]) {
    let mut install = Command::new("install")
        .args(["-D", "--mode=755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("install (coreutils)");
    let mut stdin = install.stdin.take().expect("a pipe");
    stdin.write_all(content).expect("a program");
    drop(stdin);
    let status = install.wait().expect("install");
    assert!(status.success(), "{}: {status}", path.display());
}

/// What a call that must fail complained of: one error with its remedy.
pub fn failed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert_eq!(text.matches("mkimage: ").count(), 1, "{text}");
    assert_eq!(text.matches("\nremedy: ").count(), 1, "{text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// The same call by a shell that lets it write no file over that many blocks: of 512 bytes, or 1024, as shells
/// count.
pub fn limited(command: &Command, blocks: u32) -> Command {
    let mut shell = Command::new("sh");
    shell
        .arg("-c")
        .arg(format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""))
        .arg("sh")
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        shell.current_dir(dir);
    }
    shell
}
