//! What the files of modprobe.d(5) say that libkmod leaves to its caller:
//! `blacklist`, `softdep`, `install`. (`alias` and `options` it applies
//! itself; here it is only known which aliases there are, as most devices'
//! have no module and libkmod's own search is slow.) No I/O.

use glob::Pattern;
use std::collections::{BTreeMap, BTreeSet};

/// Modules to load before and after another one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Soft {
    /// Before.
    pub pre: Vec<String>,
    /// After.
    pub post: Vec<String>,
}

/// What may be loaded, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    denied: BTreeSet<String>,
    soft: BTreeMap<String, Soft>,
    /// Patterns, as [`normal`] writes them.
    aliases: Vec<String>,
}

impl Policy {
    /// Adds the text of one file; lines that are not understood are skipped, as
    /// modprobe does.
    pub fn add(&mut self, text: &str) {
        let text = text.replace("\\\n", " ");
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match (words.next(), words.next()) {
                (Some("blacklist"), Some(module)) => self.deny(module),
                // There is nothing on the node that could run the command;
                // whoever wrote it did not want the plain loading.
                (Some("install"), Some(module)) => self.deny(module),
                (Some("softdep"), Some(module)) => self.soften(module, words),
                (Some("alias"), Some(pattern)) => self.aliases.push(normal(pattern)),
                _ => {}
            }
        }
    }

    /// Adds `modprobe.blacklist=a,b` of the kernel's command line.
    pub fn add_command_line(&mut self, line: &str) {
        for word in line.split_whitespace() {
            let list = word.strip_prefix("modprobe.blacklist=");
            list.into_iter()
                .flat_map(|list| list.split(','))
                .for_each(|module| self.deny(module));
        }
    }

    /// Whether the module must not be loaded on the account of an alias.
    pub fn denies(&self, module: &str) -> bool {
        self.denied.contains(&normal(module))
    }

    /// The module's soft dependencies.
    pub fn soft(&self, module: &str) -> Option<&Soft> {
        self.soft.get(&normal(module))
    }

    /// Whether a line `alias` fits this alias.
    pub fn knows(&self, alias: &str) -> bool {
        let alias = normal(alias);
        self.aliases.iter().any(|pattern| {
            let literal = pattern.split(['*', '?', '[']).next().unwrap_or_default();
            // A pattern that glob does not understand is left to libkmod.
            alias.starts_with(literal)
                && Pattern::new(pattern).map_or(true, |pattern| pattern.matches(&alias))
        })
    }

    fn deny(&mut self, module: &str) {
        if !module.is_empty() {
            self.denied.insert(normal(module));
        }
    }

    fn soften<'a>(&mut self, module: &str, words: impl Iterator<Item = &'a str>) {
        let soft = self.soft.entry(normal(module)).or_default();
        let mut list = None;
        for word in words {
            match (word, &mut list) {
                ("pre:", _) => list = Some(&mut soft.pre),
                ("post:", _) => list = Some(&mut soft.post),
                (name, Some(list)) => list.push(normal(name)),
                _ => {}
            }
        }
    }
}

/// Names of modules and aliases are written with `-` and `_` alike; the kernel has `_`.
pub fn normal(module: &str) -> String {
    module.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::{Policy, Soft};
    use proptest::prelude::proptest;

    #[test]
    fn blacklists_and_soft_dependencies_are_read() {
        let mut policy = Policy::default();
        policy.add(
            "# a comment\nblacklist pcspkr\n  blacklist snd-pcsp # why\ninstall floppy /bin/true\n\
             softdep mlx5_core pre: mlxfw psample \\\n post: mlx5-ib\noptions x y=1\nblacklist\n",
        );
        policy.add_command_line("quiet modprobe.blacklist=nouveau,i915 ro");
        for module in [
            "pcspkr", "snd_pcsp", "snd-pcsp", "floppy", "nouveau", "i915",
        ] {
            assert!(policy.denies(module), "{module}");
        }
        assert!(!policy.denies("x") && !policy.denies(""));
        let soft = Soft {
            pre: vec!["mlxfw".into(), "psample".into()],
            post: vec!["mlx5_ib".into()],
        };
        assert_eq!(policy.soft("mlx5-core"), Some(&soft));
        assert_eq!(policy.soft("x"), None);
    }

    #[test]
    fn module_aliases_match_as_patterns() {
        let mut policy = Policy::default();
        policy.add(
            "alias pci:v00008086d0000100Esv*sd*bc*sc*i* e1000\nalias acpi*:PNP0C0A:* battery\n\
             alias cpu:type:x86,ven*fam*mod*:feature:*0081* ghash\nalias crypto-x x\n",
        );
        for known in [
            "pci:v00008086d0000100Esv00001AF4sd00001100bc02sc00i00",
            "acpi:PNP0C0A:",
            "cpu:type:x86,ven0002fam000Fmod006B:feature:,0000,0081,00C0",
            "crypto_x",
        ] {
            assert!(policy.knows(known), "{known}");
        }
        for unknown in ["pci:v00008086d0000100Fsv1sd1bc1sc1i1", "acpi:PNP0303:", ""] {
            assert!(!policy.knows(unknown), "{unknown}");
        }
    }

    proptest! {
        #[test]
        fn hostile_text_never_panics(text in "(blacklist|softdep|install|alias|pre:|[ \\\\\n#*\\[\\]a-z])*") {
            let mut policy = Policy::default();
            policy.add(&text);
            policy.add_command_line(&text);
            policy.knows(&text);
        }
    }
}
