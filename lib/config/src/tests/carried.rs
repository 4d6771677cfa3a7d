//! Documents that the reference's client carries without knowing them.

use super::good;
use crate::Document;
use crate::kinds::{ForwardingConfig, UpgradeConfig};

fn carrier(name: &str, content: &str) -> String {
    let lines: Vec<String> = content
        .lines()
        .map(|line| format!("      {line}"))
        .collect();
    format!(
        "{}---\napiVersion: v1alpha1\nkind: ExtensionServiceConfig\nname: {name}\nconfigFiles:\n  - mountPath: /config.yaml\n    content: |\n{}\n",
        good(),
        lines.join("\n")
    )
}

const FORWARDING: &str = "apiVersion: v1alpha1\nkind: ForwardingConfig\nsecrets: accept\n";

fn refused(text: &str) -> String {
    Document::parse(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn own_documents_are_read_out_of_the_carrier() {
    let upgrade = "---\napiVersion: v1alpha1\nkind: UpgradeConfig\nminVersion: 0.1.0\n";
    let text = carrier("corten", &format!("{FORWARDING}{upgrade}"));
    let document = Document::parse(text.as_bytes()).unwrap();
    assert_eq!(document.all::<ForwardingConfig>().count(), 1);
    assert_eq!(document.all::<UpgradeConfig>().count(), 1);
    // The file of another service is its own.
    let other = Document::parse(carrier("ups", FORWARDING).as_bytes()).unwrap();
    assert_eq!(other.all::<ForwardingConfig>().count(), 0);
}

#[test]
fn carried_document_counts_like_one_beside_the_carrier() {
    let text = carrier("corten", FORWARDING);
    let twice = refused(&format!("{text}---\n{FORWARDING}"));
    assert!(
        twice.contains("a second document ForwardingConfig"),
        "{twice}"
    );
    let wrong = refused(&carrier("corten", &FORWARDING.replace("accept", "perhaps")));
    assert!(wrong.contains("ForwardingConfig: "), "{wrong}");
    assert!(wrong.contains("secrets"), "{wrong}");
}

#[test]
fn carrier_refuses_other_kinds_and_broken_text() {
    let host = "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: n1\n";
    let error = refused(&carrier("corten", host));
    assert!(
        error.contains("only documents of the kinds ForwardingConfig"),
        "{error}"
    );
    let error = refused(&carrier("corten", "machine: {type: worker}"));
    assert!(error.contains("only documents of the kinds"), "{error}");
    let error = refused(&carrier("corten", "kind: [ForwardingConfig"));
    assert!(error.contains("in the content of a file"), "{error}");
}
