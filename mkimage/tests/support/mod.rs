//! What the tests of calls that fail share.

use std::process::{Command, Output};

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
