//! Shared helpers for tests of failing calls.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Writes a program and its parent directories. A separate process writes it. A child forked by
/// another test could otherwise hold the file open for writing, and such a file cannot be executed
/// (execve(2), `ETXTBSY`).
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

/// The error text of a call that must fail with one error and its remedy.
pub fn failed(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert_eq!(text.matches("mkimage: ").count(), 1, "{text}");
    assert_eq!(text.matches("\nremedy: ").count(), 1, "{text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// The call under a shell's file size limit (`ulimit -f`). A block has 512 or 1024 bytes, depending
/// on the shell.
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
