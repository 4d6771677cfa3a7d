//! The results of the tests, from the JSON report of ginkgo (`github.com/onsi/ginkgo/v2/types`, Report), and the page
//! that shows them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Mark in the names of the conformance tests.
const MARK: &str = "[Conformance]";
/// Reason of a test that nothing skips.
const NOT_REACHED: &str = "the run ended before";

/// Tests that are not run, and why: a part of their names, and the reason.
#[derive(Debug)]
pub(crate) struct Skips(Vec<(String, String)>);

impl Skips {
    /// Reads `skipped.toml`.
    pub(crate) fn read(file: &Path) -> Skips {
        let text = fs::read_to_string(file).expect("the list of tests that are not run");
        Skips::parse(&text)
    }

    fn parse(text: &str) -> Skips {
        let list: Value = toml::from_str(text).expect("a list of tests that are not run");
        let skips = list.get("skip").and_then(Value::as_array);
        let text = |skip: &Value, field: &str| {
            let text = skip.get(field).and_then(Value::as_str);
            text.expect("`tests` and `reason` are texts").to_owned()
        };
        let skips = skips.into_iter().flatten();
        Skips(
            skips
                .map(|skip| (text(skip, "tests"), text(skip, "reason")))
                .collect(),
        )
    }

    /// Regular expressions (Go's syntax) for ginkgo.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(part, _)| escaped(part))
    }

    fn reason(&self, test: &str) -> Option<&str> {
        let found = self.0.iter().find(|(part, _)| test.contains(part));
        found.map(|(_, reason)| reason.as_str())
    }
}

/// A text as a regular expression that matches it alone.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c.is_ascii_punctuation() {
        true => format!("\\{c}"),
        false => c.to_string(),
    };
    text.chars().map(escape).collect()
}

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// Number of tests that passed.
    pub(crate) passed: usize,
    /// Tests that failed, each with the first line of the reason.
    pub(crate) failed: Vec<(String, String)>,
    /// Tests that were not run, each with the reason.
    skipped: Vec<(String, String)>,
}

impl Report {
    pub(crate) fn of(report: &Value, skips: &Skips) -> Report {
        let mut result = Report::default();
        let suites = report.as_array().into_iter().flatten();
        let specs = suites.filter_map(|suite| suite.get("SpecReports")?.as_array());
        for spec in specs.flatten() {
            let text = |path: &str| {
                spec.pointer(path)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
            };
            let containers = spec
                .get("ContainerHierarchyTexts")
                .and_then(Value::as_array);
            let containers = containers.into_iter().flatten().filter_map(Value::as_str);
            let words: Vec<&str> = containers.chain([text("/LeafNodeText")]).collect();
            let test = words.join(" ");
            let why = text("/Failure/Message").lines().next().unwrap_or_default();
            match text("/State") {
                "passed" if text("/LeafNodeType") == "It" => result.passed += 1,
                "passed" | "pending" => {}
                // A test that skips itself says why. ginkgo lists the tests of other kinds, too.
                "skipped" if test.contains(MARK) => {
                    let own = (!why.is_empty()).then_some(why);
                    let reason = skips.reason(&test).or(own).unwrap_or(NOT_REACHED);
                    result.skipped.push((test.clone(), reason.to_owned()));
                }
                "skipped" => {}
                _ => result.failed.push((test, why.to_owned())),
            }
        }
        result.failed.sort();
        result.skipped.sort();
        result
    }

    /// The page of the documentation. `versions` is the output of `kubectl version -o json`.
    pub(crate) fn page(&self, versions: &str) -> String {
        let versions: Value = serde_json::from_str(versions).expect("versions");
        let version = versions
            .pointer("/serverVersion/gitVersion")
            .and_then(Value::as_str);
        let mut page = format!(
            "# Conformance\n\n\
             `make conformance` runs the conformance tests of Kubernetes (`k8s.io/kubernetes/test/e2e`, the names with\n\
             `{MARK}`) and writes this page. The cluster is a control plane node and a worker as containers, with the\n\
             bundled images of Kubernetes {}; both nodes run pods. Nothing comes from a public registry: the images of\n\
             the tests are built from the modules of Kubernetes and packages of Debian (`tests/conformance`).\n\n\
             | result | tests |\n|---|---|\n| passed | {} |\n| failed | {} |\n| not run | {} |\n",
            version.expect("the server's version"),
            self.passed,
            self.failed.len(),
            self.skipped.len()
        );
        for (title, tests) in [("Failed", &self.failed), ("Not run", &self.skipped)] {
            if !tests.is_empty() {
                let _infallible = write!(page, "\n## {title}\n\n| test | reason |\n|---|---|\n");
            }
            for (test, reason) in tests {
                let test = test.replace('|', "\\|");
                let _infallible = writeln!(page, "| `{test}` | {reason} |");
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn results_are_counted_and_each_skipped_test_has_its_reason() {
        let skips = Skips::parse("[[skip]]\ntests = 'by name [Slow]'\nreason = 'needs a day'");
        assert_eq!(skips.patterns().collect::<Vec<_>>(), [r"by name \[Slow\]"]);
        let spec = |kind: &str, name: &str, state: &str, why: &str| {
            json!({
                "LeafNodeType": kind,
                "ContainerHierarchyTexts": ["[sig-a]"],
                "LeafNodeText": name,
                "State": state,
                "Failure": { "Message": why },
            })
        };
        let specs = [
            spec("SynchronizedBeforeSuite", "", "passed", ""),
            spec("It", "runs [Conformance]", "passed", ""),
            spec("It", "breaks [Conformance]", "failed", "no answer\nfrom it"),
            spec("It", "by name [Slow] [Conformance]", "skipped", ""),
            spec("It", "skips itself [Conformance]", "skipped", "no Windows"),
            spec("It", "comes later [Conformance]", "skipped", ""),
            spec("It", "by name [Slow]", "skipped", ""),
        ];
        let report = Report::of(&json!([{ "SpecReports": specs }]), &skips);
        let failed = (
            "[sig-a] breaks [Conformance]".to_owned(),
            "no answer".to_owned(),
        );
        assert_eq!((report.passed, &report.failed[..]), (1, &[failed][..]));
        let page = report.page(r#"{"serverVersion": {"gitVersion": "v1.2.3"}}"#);
        for line in [
            "| not run | 3 |",
            "| `[sig-a] by name [Slow] [Conformance]` | needs a day |",
            "| `[sig-a] skips itself [Conformance]` | no Windows |",
            "| `[sig-a] comes later [Conformance]` | the run ended before |",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }
}
