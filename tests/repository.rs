//! Rules of the repository: limits on file size, no traces of the machine it was written on,
//! documented verbs, and a test for every promise.
#![expect(clippy::unwrap_used, reason = "a failing step is a failing test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tests::{tokens, workspace};

/// Limit on code lines of a file, without blank lines, comments and documentation. Files with only
/// a module's tests have just the other limit.
const CODE_LINES: usize = 400;
/// Limit on all lines of a file, including tests and comments.
const ALL_LINES: usize = 800;
/// Limit on the lines of a file's header: what it is, what it owns, what it never does. More belongs
/// to the items, or to docs/architecture.md.
const HEADER_LINES: usize = 3;
/// Files over the limit for code, each with the reason.
const LONG: &[(&str, &str)] = &[];

fn sources(extension: &str) -> Vec<PathBuf> {
    let mut all = workspace::tracked();
    all.retain(|path| path.extension().is_some_and(|found| found == extension));
    all
}

fn text(path: &Path) -> String {
    fs::read_to_string(workspace::root().join(path)).unwrap()
}

#[test]
fn source_files_stay_below_the_line_limits() {
    let mut wrong = Vec::new();
    for path in sources("rs") {
        let source = text(&path);
        let code = tokens::code_lines(&source).unwrap();
        let all = source.lines().count();
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "tests.rs" || name.ends_with("_tests.rs") {
            assert!(all <= ALL_LINES, "{}: {all} lines", path.display());
            continue;
        }
        let excused = LONG.iter().any(|(long, _)| Path::new(long) == path);
        if all > ALL_LINES || (code > CODE_LINES && !excused) {
            wrong.push(format!(
                "{}: {code} lines of code, {all} in all",
                path.display()
            ));
        } else if excused && code <= CODE_LINES {
            wrong.push(format!(
                "{}: no longer long; remove it from LONG",
                path.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn headers_of_source_files_have_at_most_three_lines() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for path in sources("rs") {
        let lines = tokens::header(&text(&path)).len();
        seen += usize::from(lines > 0);
        if lines > HEADER_LINES {
            wrong.push(format!("{}: {lines} lines", path.display()));
        }
    }
    // A smaller number would mean that no header was found.
    assert!(seen >= 1000, "only {seen} headers found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Host names of this machine's package sources, which must not be in the repository: the builder
/// reads them from the host's configuration.
fn hosts_of_this_machine() -> Vec<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    files.extend(
        fs::read_dir("/etc/apt/sources.list.d")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path()),
    );
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    let variables = [
        "GOPROXY",
        "PIP_INDEX_URL",
        "CARGO_REGISTRIES_CRATES_IO_INDEX",
    ];
    texts
        .chain(variables.iter().filter_map(|name| std::env::var(name).ok()))
        .flat_map(|text| hosts(&text))
        .collect()
}

/// The host names of all URLs in a text.
fn hosts(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(|line| line.split("://").skip(1))
        .filter_map(|rest| rest.split(['/', ' ', ',', ']', '"', '|']).next())
        .filter_map(|authority| authority.rsplit('@').next()?.split(':').next())
        .map(str::to_owned)
        .filter(|host| host.contains('.'))
        .collect()
}

#[test]
fn hosts_are_found_in_apt_sources() {
    let sources = "# deb http://old.example/debian\ndeb [arch=amd64] https://a.example:8080/debian x\n\
                   URIs: http://u:p@b.example/x\nGOPROXY=https://c.example,direct";
    assert_eq!(hosts(sources), ["a.example", "b.example", "c.example"]);
}

#[test]
fn repository_has_no_build_machine_paths_or_hosts() {
    // Split so that this file does not contain them.
    let mut words: Vec<String> = [
        ("/wo", "rk/"),
        ("/ro", "ot/"),
        ("deb.deb", "ian.org"),
        ("proxy.go", "lang.org"),
        ("sum.go", "lang.org"),
        ("static.crat", "es.io"),
        ("index.crat", "es.io"),
    ]
    .map(|(one, two)| format!("{one}{two}"))
    .into();
    words.extend(hosts_of_this_machine());
    let mut wrong = Vec::new();
    for path in workspace::tracked() {
        let bytes = fs::read(workspace::root().join(&path)).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(word) = words.iter().find(|word| line.contains(word.as_str())) {
                wrong.push(format!("{}:{number}: {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_makefile_is_short_and_every_verb_documented() {
    let makefile = text(Path::new("Makefile"));
    assert!(
        makefile.lines().count() <= 120,
        "Makefile has {} lines",
        makefile.lines().count()
    );
    let mut verbs = Vec::new();
    for line in makefile.lines() {
        let Some((name, rest)) = line.split_once(':') else {
            continue;
        };
        let target = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_lowercase() || c == '-')
            && !rest.starts_with('=');
        if target {
            assert!(rest.contains("## "), "verb `{name}` has no `## ` text");
            verbs.push(name);
        }
    }
    for verb in [
        "help", "deps", "build", "check", "test", "image", "run", "test-vm", "repro", "bench",
    ] {
        assert!(verbs.contains(&verb), "no verb `{verb}`");
    }
    let phony = makefile
        .lines()
        .find_map(|line| line.strip_prefix(".PHONY:"))
        .unwrap();
    let phony: Vec<&str> = phony.split_whitespace().collect();
    for verb in &verbs {
        assert!(phony.contains(verb), "`{verb}` is not .PHONY");
    }
}

/// The file with the further tests of promises.
const FURTHER: &str = "tests/promises.toml";
/// Maximum number of tests in a row, to keep the table readable.
const SHOWN: usize = 2;

/// A row of docs/promises.md.
#[derive(Debug)]
struct Promise {
    number: usize,
    limit: String,
    /// `file::name` of each test or benchmark.
    tests: Vec<String>,
}

fn promises(document: &str) -> Vec<Promise> {
    document
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line
                .trim()
                .trim_matches('|')
                .split('|')
                .map(str::trim)
                .collect();
            let [number, _, limit, tests] = cells.as_slice() else {
                return None;
            };
            Some(Promise {
                number: number.parse().ok()?,
                limit: (*limit).to_owned(),
                tests: tests
                    .split('`')
                    .skip(1)
                    .step_by(2)
                    .map(str::to_owned)
                    .collect(),
            })
        })
        .collect()
}

/// Whether `reference` names a test function or a measured line of a benchmark.
fn holds(reference: &str, read: impl Fn(&Path) -> Option<String>) -> Result<(), String> {
    let (file, name) = reference
        .split_once("::")
        .ok_or_else(|| format!("`{reference}`: no ::"))?;
    let source = read(Path::new(file)).ok_or_else(|| format!("`{reference}`: no such file"))?;
    if file.starts_with("tests/bench/") {
        let there = source.contains(&format!("fn {name}("));
        return if there {
            Ok(())
        } else {
            Err(format!("`{reference}`: no such measurement"))
        };
    }
    // The attribute is on one of the lines above the function.
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let wanted = format!("fn {name}(");
    let line = lines
        .iter()
        .position(|line| line.trim_start_matches("async ").starts_with(&wanted))
        .ok_or_else(|| format!("`{reference}`: no such function"))?;
    let is_test = lines
        .get(..line)
        .unwrap_or_default()
        .iter()
        .rev()
        .take_while(|line| line.starts_with('#') || line.starts_with("//"))
        .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
    if is_test {
        Ok(())
    } else {
        Err(format!("`{reference}` is not a test"))
    }
}

#[test]
fn every_promise_has_a_test() {
    let all = promises(&text(Path::new("docs/promises.md")));
    assert!(all.len() >= 10, "only {} promises found", all.len());
    let mut wrong = Vec::new();
    for (expected, promise) in (1..).zip(&all) {
        if promise.number != expected {
            wrong.push(format!("{} is in the place of {expected}", promise.number));
        }
        if promise.limit.is_empty() || promise.tests.is_empty() {
            wrong.push(format!("{} has no limit or no test", promise.number));
        }
        if promise.tests.len() > SHOWN {
            let number = promise.number;
            wrong.push(format!("{number} names many tests; move them to {FURTHER}"));
        }
    }
    let further: toml::Table = text(Path::new(FURTHER)).parse().unwrap();
    let further = further.iter().flat_map(|(number, tests)| {
        let number: usize = number.parse().unwrap();
        assert!(
            number <= all.len(),
            "{FURTHER}: there is no promise {number}"
        );
        let tests = tests.as_array().unwrap().iter();
        tests.map(|test| test.as_str().unwrap().to_owned())
    });
    let shown = all.iter().flat_map(|promise| promise.tests.clone());
    let mut seen = BTreeSet::new();
    for reference in shown.chain(further) {
        let read = |path: &Path| fs::read_to_string(workspace::root().join(path)).ok();
        if seen.insert(reference.clone()) {
            wrong.extend(holds(&reference, read).err());
        }
    }
    // A smaller number would mean that the file was not read.
    assert!(seen.len() >= 200, "only {} tests found", seen.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The contradictions between a promise and the sections of docs/bench.md that its limit links to.
fn contradictions(limit: &str, sections: &[(String, String)]) -> Vec<String> {
    let links = limit.split("(bench.md#").skip(1);
    let anchors: Vec<&str> = links.filter_map(|rest| rest.split(')').next()).collect();
    let of = |anchor: &&str| sections.iter().find(|(title, _)| title == anchor);
    let found: Vec<&(String, String)> = anchors.iter().filter_map(of).collect();
    if found.is_empty() || found.len() < anchors.len() {
        return vec![format!(
            "{limit}: link the sections of docs/bench.md with the result"
        )];
    }
    let is_open = found.iter().any(|(_, text)| text.contains("Not measured"));
    match is_open == limit.contains("not measured") {
        true => Vec::new(),
        false => vec![format!(
            "{limit}: docs/bench.md says the opposite on whether it is measured"
        )],
    }
}

/// The anchors of the sections of docs/bench.md, and their texts.
fn bench_sections(page: &str) -> Vec<(String, String)> {
    let kept = |c: &char| c.is_alphanumeric() || *c == ' ' || *c == '-';
    page.split("\n## ")
        .skip(1)
        .filter_map(|section| section.split_once('\n'))
        .map(|(title, text)| {
            let anchor: String = title.to_lowercase().chars().filter(kept).collect();
            (anchor.replace(' ', "-"), text.to_owned())
        })
        .collect()
}

#[test]
fn measured_promises_link_to_their_results() {
    let sections = bench_sections(&text(Path::new("docs/bench.md")));
    let all = promises(&text(Path::new("docs/promises.md")));
    let mut wrong = Vec::new();
    let mut seen = 0;
    for promise in &all {
        if promise
            .tests
            .iter()
            .any(|test| test.starts_with("tests/bench/"))
        {
            seen += 1;
            wrong.extend(contradictions(&promise.limit, &sections));
        }
    }
    assert!(seen >= 4, "only {seen} found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn promise_that_contradicts_its_measurement_is_found() {
    let sections = bench_sections("# B\n\n## A b, c\n\n1 s\n\n## D\n\nNot measured yet.\n");
    let count = |limit| contradictions(limit, &sections).len();
    assert_eq!(count("2 s ([bench](bench.md#a-b-c))"), 0);
    assert_eq!(count("[not measured yet](bench.md#d)"), 0);
    assert_eq!(count("2 s ([bench](bench.md#d))"), 1);
    assert_eq!(count("[not measured yet](bench.md#a-b-c)"), 1);
    assert_eq!(count("2 s ([bench](bench.md#nowhere))"), 1);
    assert_eq!(count("2 s"), 1);
}

#[test]
fn a_promise_without_a_test_is_found() {
    let source = "#[test]\n#[ignore = \"x\"]\nfn held() {}\n\nfn helper() {}\n";
    let read = |path: &Path| (path == Path::new("a.rs")).then(|| source.to_owned());
    assert_eq!(holds("a.rs::held", read), Ok(()));
    for wrong in ["a.rs::helper", "a.rs::hel", "b.rs::held", "a.rs"] {
        assert!(holds(wrong, read).is_err(), "{wrong}");
    }
    let rows = promises(
        "| # | promise | limit | held by |\n|---|---|---|---|\n| 1 | a | ≤ 2 | `a::b`, `c::d` |\n",
    );
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (rows[0].number, rows[0].tests.as_slice()),
        (1, &["a::b".into(), "c::d".into()][..])
    );
}

#[test]
fn machine_tests_are_ignored_with_the_verb_that_runs_them() {
    let manifest: toml::Table = text(Path::new("tests/Cargo.toml")).parse().unwrap();
    let registered: Vec<&str> = manifest["test"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|test| test.get("path").and_then(toml::Value::as_str))
        .collect();
    for path in sources("rs") {
        let Ok(name) = path.strip_prefix("tests") else {
            continue;
        };
        if name.components().count() == 1 {
            assert!(
                registered.contains(&name.to_str().unwrap()),
                "{} is no [[test]]",
                path.display()
            );
        }
        let source = text(&path);
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            let ignored = number > 0 && line.starts_with("#[ignore");
            assert!(
                !ignored || line.contains("\"make "),
                "{}:{}: say which verb runs it",
                path.display(),
                number + 1
            );
        }
    }
}
