//! Recognises the common licences in a text by sentences that only they contain.
//!
//! A file may hold several texts. A measure of similarity to one whole text, as of askalono, finds none of them there.

use std::collections::BTreeSet;

/// The SPDX identifier of the text that begins with an opening, or `None` if the rest does not fit.
type Judge = fn(&str) -> Option<&'static str>;

/// The first words of each text in the form of [`words`], or of the notice that refers to it.
const OPENINGS: [(&str, Judge); 12] = [
    ("apache license version 2 0 january 2004", apache),
    ("licensed under the apache license version 2 0", apache),
    ("mozilla public license version 2 0 1 definitions", mozilla),
    ("redistribution and use in source and binary forms", bsd),
    (
        "to any person obtaining a copy of this software and associated documentation",
        mit,
    ),
    (
        "permission to use copy modify and or distribute this software for any purpose",
        isc,
    ),
    (
        "permission to use copy modify and distribute this software for any purpose",
        isc,
    ),
    (
        "permission is granted to anyone to use this software for any purpose",
        zlib,
    ),
    (
        "free and unencumbered software released into the public domain",
        |_| Some("Unlicense"),
    ),
    ("cc0 1 0 universal", |_| Some("CC0-1.0")),
    ("boost software license version 1 0", |_| Some("BSL-1.0")),
    ("unicode license v3", |_| Some("Unicode-3.0")),
];

/// The SPDX identifiers of the licences in a text.
pub fn licences(text: &str) -> BTreeSet<&'static str> {
    let words = words(text);
    let mut starts: Vec<(usize, Judge)> = OPENINGS
        .iter()
        .flat_map(|(opening, judge)| {
            let found = words.match_indices(opening);
            found.map(|(start, _)| (start, *judge))
        })
        .collect();
    starts.sort_by_key(|(start, _)| *start);
    let ends = starts.iter().skip(1).map(|(start, _)| *start);
    let ends: Vec<usize> = ends.chain([words.len()]).collect();
    starts
        .into_iter()
        .zip(ends)
        .filter_map(|((start, judge), end)| judge(words.get(start..end)?))
        .collect()
}

/// The text in lower case with one space between words, so that layout and punctuation do not matter.
fn words(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

fn apache(_: &str) -> Option<&'static str> {
    Some("Apache-2.0")
}

fn mozilla(_: &str) -> Option<&'static str> {
    Some("MPL-2.0")
}

fn bsd(text: &str) -> Option<&'static str> {
    let says = |part: &str| text.contains(part);
    if says("all advertising materials mentioning") {
        Some("BSD-4-Clause")
    } else if says("neither the name") || says("endorse or promote") {
        Some("BSD-3-Clause")
    } else {
        says("redistributions in binary form must reproduce").then_some("BSD-2-Clause")
    }
}

fn mit(text: &str) -> Option<&'static str> {
    if text.contains("except as contained in this notice") {
        Some("X11")
    } else if text.contains("the above copyright notice and this permission notice") {
        Some("MIT")
    } else {
        Some("MIT-0")
    }
}

fn isc(text: &str) -> Option<&'static str> {
    Some(match text.contains("provided that the above") {
        true => "ISC",
        false => "0BSD",
    })
}

fn zlib(text: &str) -> Option<&'static str> {
    let is_marked = text.contains("altered source versions must be plainly marked");
    is_marked.then_some("Zlib")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&'static str> {
        licences(text).into_iter().collect()
    }

    #[test]
    fn each_common_licence_is_recognised_in_the_text_of_spdx() {
        for name in [
            "0BSD",
            "Apache-2.0",
            "BSD-2-Clause",
            "BSD-3-Clause",
            "BSD-4-Clause",
            "BSL-1.0",
            "CC0-1.0",
            "ISC",
            "MIT",
            "MIT-0",
            "MPL-2.0",
            "Unicode-3.0",
            "Unlicense",
            "X11",
            "Zlib",
        ] {
            let text = spdx::license_id(name).unwrap().text();
            assert_eq!(found(text), [name]);
        }
    }

    #[test]
    fn every_licence_of_a_file_with_several_texts_is_recognised() {
        let texts = ["Apache-2.0", "BSD-3-Clause", "BSD-2-Clause", "MIT"];
        let texts = texts.map(|name| spdx::license_id(name).unwrap().text());
        let all = ["Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT"];
        assert_eq!(found(&texts.join("\n\n-----\n\n")), all);
    }

    #[test]
    fn layout_does_not_matter_and_other_texts_are_not_recognised() {
        let text = spdx::license_id("BSD-3-Clause").unwrap().text();
        let comment = text.replace('\n', "\r\n * ");
        assert_eq!(found(&comment), ["BSD-3-Clause"]);
        for other in [
            "",
            "All rights reserved.",
            spdx::license_id("AFL-3.0").unwrap().text(),
            "Redistribution and use in source and binary forms is forbidden.",
        ] {
            assert_eq!(found(other), [] as [&str; 0], "{other}");
        }
    }
}
