//! Reads machine configs and patches from files, and reports their problems.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use corten_changes::Patch;
use corten_config::Document;
use corten_yaml::problem::Problems;

use crate::failure::Failure;

/// Reads a config, or standard input for `-`. No error quotes it, because it has secrets.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    Ok(limited(path).with_context(|| format!("machine config {}", path.display()))?)
}

fn limited(path: &Path) -> anyhow::Result<Vec<u8>> {
    // One byte over the limit shows that the input is too large.
    let limit = corten_yaml::MAX_SIZE as u64 + 1;
    let mut data = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut data)?;
    } else {
        std::fs::File::open(path)?
            .take(limit)
            .read_to_end(&mut data)?;
    }
    anyhow::ensure!(
        data.iter().any(|byte| !byte.is_ascii_whitespace()),
        "it is empty"
    );
    let most = corten_yaml::MAX_SIZE;
    anyhow::ensure!(data.len() <= most, "larger than {} MiB", most / 1024 / 1024);
    Ok(data)
}

/// Applies patches given as text, as `@FILE` or as the name of a file, in order.
pub fn patched(config: Vec<u8>, patches: &[String]) -> Result<Vec<u8>, Failure> {
    if patches.is_empty() {
        return Ok(config);
    }
    let mut text =
        String::from_utf8(config).map_err(|_| Failure::call("the config is not UTF-8 text"))?;
    // One at a time, so that an error can name the patch.
    for (number, given) in patches.iter().enumerate() {
        let (name, bytes) = match file_of(given) {
            Some(file) => {
                let bytes = limited(Path::new(file)).with_context(|| format!("patch {file}"))?;
                (format!("patch {file}"), bytes)
            }
            None => (
                format!("patch number {}", number + 1),
                given.clone().into_bytes(),
            ),
        };
        let patch = Patch::parse(&bytes).map_err(|problems| wrong(&name, &problems))?;
        text = corten_changes::patch(text.as_bytes(), &[patch])
            .map_err(|problems| wrong(&name, &problems))?;
    }
    Ok(text.into_bytes())
}

/// The file that a patch names. Every text that is a patch has a space, a line break or a bracket at its begin.
fn file_of(given: &str) -> Option<&str> {
    let is_text = given.contains([' ', '\n']) || given.starts_with(['[', '{']);
    let bare = (!is_text).then_some(given);
    given.strip_prefix('@').or(bare)
}

/// Parses a config as a node does.
pub fn parse(name: &str, config: &[u8]) -> Result<Document, Failure> {
    Document::parse(config).map_err(|problems| wrong(name, &problems))
}

/// All problems, a line each.
pub fn wrong(name: &str, problems: &Problems) -> Failure {
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| format!("{name}: {problem}"))
        .collect();
    Failure::call(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: Result<Vec<u8>, Failure>) -> String {
        match result {
            Ok(bytes) => String::from_utf8(bytes).unwrap(),
            Err(Failure::Call(error)) => format!("{error:#}"),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn patches_come_from_the_command_line_and_from_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "machine: {token: from-file}\n").unwrap();
        let config = b"machine: {type: worker, token: old}\n".to_vec();
        let name = file.path().display().to_string();
        for file in [format!("@{name}"), name] {
            let patches = [
                file,
                r#"[{"op": "add", "path": "/debug", "value": true}]"#.to_owned(),
                "- op: remove\n  path: /machine/type".to_owned(),
            ];
            let patched = text(patched(config.clone(), &patches));
            assert_eq!(patched, "machine:\n    token: from-file\ndebug: true\n");
        }

        let broken = [
            "machine: {}".to_owned(),
            "machine: {$patch: upset}".to_owned(),
        ];
        let refusal = text(patched(config.clone(), &broken));
        assert_eq!(
            refusal,
            "patch number 2: line 1, column 19: $patch must be delete"
        );
        let missing = text(patched(config, &["@/no/such/file".to_owned()]));
        assert!(missing.starts_with("patch /no/such/file: "), "{missing}");
    }
}
