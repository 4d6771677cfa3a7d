//! Results of suites of ginkgo, from its JSON report (`github.com/onsi/ginkgo/v2/types`, Report), and the page of
//! docs/conformance.md.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Mark in the names of the conformance tests of Kubernetes.
pub const CONFORMANCE: &str = "[Conformance]";
/// Title of the table of tests that passed.
const PASSED: &str = "\n## Passed\n";
/// Reason of a test that nothing skips.
const NOT_REACHED: &str = "the run ended before";

/// Tests that are not run, and why: a part of their names, and the reason.
#[derive(Debug)]
pub struct Skips(Vec<(String, String)>);

impl Skips {
    /// Reads a list: `[[skip]]` with `tests`, a part of their names, and `reason`.
    ///
    /// # Panics
    /// The file is no such list.
    #[must_use]
    pub fn read(file: &Path) -> Skips {
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
    pub fn patterns(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(part, _)| escaped(part))
    }

    fn reason(&self, test: &str) -> Option<&str> {
        let found = self.0.iter().find(|(part, _)| test.contains(part));
        found.map(|(_, reason)| reason.as_str())
    }
}

/// The directory that `conformance/build` filled.
///
/// # Panics
/// `CORTEN_CONFORMANCE` does not name it.
#[must_use]
pub fn built() -> PathBuf {
    let directory = env::var_os("CORTEN_CONFORMANCE").expect("CORTEN_CONFORMANCE is a directory");
    PathBuf::from(directory)
}

/// The tests that a page lists as passed, each with its image. Empty if the page is about another version of Kubernetes.
#[must_use]
pub fn passed_before(page: &str, version: &str) -> BTreeMap<String, String> {
    let (head, rest) = page.split_once(PASSED).unwrap_or_default();
    if !head.contains(&format!("Kubernetes {version};")) {
        return BTreeMap::new();
    }
    let rows = rest.lines().take_while(|line| !line.starts_with('#'));
    let row = |line: &str| {
        let (test, image) = line.strip_prefix("| `")?.rsplit_once("` | ")?;
        let image = image.strip_suffix(" |")?;
        Some((test.replace("\\|", "|"), image.to_owned()))
    };
    rows.filter_map(row).collect()
}

/// A regular expression (Go's syntax) for ginkgo that matches one test by its whole name.
#[must_use]
pub fn pattern(test: &str) -> String {
    format!("{}$", escaped(test))
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
pub struct Report {
    /// Tests that passed.
    pub passed: Vec<String>,
    /// Tests that failed, each with the first line of the reason.
    pub failed: Vec<(String, String)>,
    /// Tests that were not run, each with the reason.
    pub skipped: Vec<(String, String)>,
}

impl Report {
    /// The results of the tests with `mark` in their names; ginkgo also lists tests that a filter left out.
    #[must_use]
    pub fn of(report: &Value, skips: &Skips, mark: &str) -> Report {
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
            let why = text("/Failure/Message").lines().next();
            let why = without_paths(why.unwrap_or_default());
            match text("/State") {
                "passed" if text("/LeafNodeType") == "It" => result.passed.push(test),
                "passed" | "pending" => {}
                // The end of the run interrupts a test; a test with a time of its own, that it exceeds, has failed. A test
                // that skips itself says why.
                "skipped" | "interrupted" if test.contains(mark) => {
                    let own = (text("/State") == "skipped" && !why.is_empty()).then_some(&*why);
                    let reason = skips.reason(&test).or(own).unwrap_or(NOT_REACHED);
                    result.skipped.push((test.clone(), reason.to_owned()));
                }
                "skipped" => {}
                _ => result.failed.push((test, why)),
            }
        }
        result.failed.sort();
        result.skipped.sort();
        result
    }

    /// Tests that were not run, without another reason than the end of the run.
    pub fn not_reached(&self) -> impl Iterator<Item = &str> {
        let all = self.skipped.iter();
        all.filter(|(_, reason)| reason == NOT_REACHED)
            .map(|(test, _)| test.as_str())
    }

    /// The page of the conformance tests: these results on `image`, and the tests that passed `before`. `version` is that
    /// of Kubernetes.
    #[must_use]
    pub fn page(&self, version: &str, image: &str, before: BTreeMap<String, String>) -> String {
        let mut passed = before;
        let now = self
            .passed
            .iter()
            .map(|test| (test.clone(), image.to_owned()));
        passed.extend(now);
        let not_run: Vec<&(String, String)> = { self.skipped.iter() }
            .filter(|(test, _)| !passed.contains_key(test))
            .collect();
        let mut page = format!(
            "# Conformance\n\n\
             `make conformance` runs the conformance tests of Kubernetes (`k8s.io/kubernetes/test/e2e`, the names with\n\
             `{CONFORMANCE}`) and writes this page. The cluster is a control plane node and a worker as containers, with the\n\
             bundled images of Kubernetes {version}; both nodes run pods. Nothing comes from a public registry: the images of\n\
             the tests are built from the modules of Kubernetes and packages of Debian (`tests/conformance`).\n\n\
             All tests take hours. A run ends after `LIMIT` (5h), and the next one runs the tests that did not pass yet. The\n\
             list below has the image on which each test passed; an empty cell: the image was not recorded. Remove lines from\n\
             it to run their tests again. `FOCUS` picks tests by a regular expression, and then the page stays.\n\n\
             | result | tests |\n|---|---|\n| passed | {} |\n| failed | {} |\n| not run | {} |\n",
            passed.len(),
            self.failed.len(),
            not_run.len()
        );
        let failed = self.failed.iter().map(|(test, why)| (test, why));
        let not_run = not_run.into_iter().map(|(test, why)| (test, why));
        table(&mut page, "\n## Failed\n", "reason", failed);
        table(&mut page, "\n## Not run\n", "reason", not_run);
        table(&mut page, PASSED, "image", passed.iter());
        page
    }
}

fn table<'a>(
    page: &mut String,
    title: &str,
    column: &str,
    rows: impl Iterator<Item = (&'a String, &'a String)>,
) {
    let mut rows = rows.peekable();
    if rows.peek().is_some() {
        let _infallible = write!(page, "{title}\n| test | {column} |\n|---|---|\n");
    }
    for (test, value) in rows {
        let _infallible = writeln!(page, "| `{}` | {value} |", test.replace('|', "\\|"));
    }
}

/// Shortens the paths of a reason to their last parts: the page is the same on every machine.
fn without_paths(reason: &str) -> String {
    let shorten = |word: &str| {
        let (option, path) = word.split_once('=').unwrap_or(("", word));
        match path
            .strip_prefix('/')
            .and_then(|path| path.rsplit('/').next())
        {
            Some(name) if option.is_empty() => name.to_owned(),
            Some(name) => format!("{option}={name}"),
            None => word.to_owned(),
        }
    };
    reason.split(' ').map(shorten).collect::<Vec<_>>().join(" ")
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
            spec(
                "It",
                "breaks [Conformance]",
                "failed",
                "no answer of /a/kubectl --config=/b/c\nfrom it",
            ),
            spec("It", "by name [Slow] [Conformance]", "skipped", ""),
            spec(
                "It",
                "skips itself [Conformance]",
                "skipped",
                "no /proc/windows",
            ),
            spec("It", "comes later [Conformance]", "skipped", ""),
            spec(
                "It",
                "is cut off [Conformance]",
                "interrupted",
                "by the user",
            ),
            spec("It", "hangs [Conformance]", "timedout", "after a minute"),
            spec("It", "by name [Slow]", "skipped", ""),
        ];
        let report = Report::of(&json!([{ "SpecReports": specs }]), &skips, CONFORMANCE);
        let failed = [
            ("breaks", "no answer of kubectl --config=c"),
            ("hangs", "after a minute"),
        ];
        let failed =
            failed.map(|(test, why)| (format!("[sig-a] {test} [Conformance]"), why.to_owned()));
        assert_eq!(report.passed, ["[sig-a] runs [Conformance]"]);
        assert_eq!(report.failed, failed);
        let not_reached: Vec<&str> = report.not_reached().collect();
        let expected = [
            "[sig-a] comes later [Conformance]",
            "[sig-a] is cut off [Conformance]",
        ];
        assert_eq!(not_reached, expected);
        let earlier = "[sig-a] a|b [Conformance]".to_owned();
        let before = BTreeMap::from([(earlier, "old".to_owned())]);
        let page = report.page("v1.2.3", "new", before);
        for line in [
            "| passed | 2 |",
            "| not run | 4 |",
            "| `[sig-a] by name [Slow] [Conformance]` | needs a day |",
            "| `[sig-a] skips itself [Conformance]` | no windows |",
            "| `[sig-a] comes later [Conformance]` | the run ended before |",
            "| `[sig-a] is cut off [Conformance]` | the run ended before |",
        ] {
            assert!(page.contains(line), "{page}");
        }

        let again = passed_before(&page, "v1.2.3");
        let again: Vec<(&str, &str)> = again.iter().map(|(a, b)| (&**a, &**b)).collect();
        let both = [
            ("[sig-a] a|b [Conformance]", "old"),
            ("[sig-a] runs [Conformance]", "new"),
        ];
        assert_eq!(again, both);
        assert!(passed_before(&page, "v1.2.4").is_empty());
        assert_eq!(pattern("a [b]"), r"a \[b\]$");
    }
}
