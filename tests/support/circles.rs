//! Circles of source files in a crate: files that use each other's items, so that none of them can be read alone.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, UseTree};

/// A module by its path in the crate; the crate's root has no names.
pub type Module = Vec<String>;

/// The module of a file below `src`. `lib.rs` and `main.rs` are the root.
#[must_use]
pub fn module(file: &str) -> Module {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let mut names: Module = path.split('/').map(str::to_owned).collect();
    if matches!(
        names.last().map(String::as_str),
        Some("mod" | "lib" | "main")
    ) {
        names.pop();
    }
    names
}

/// The groups of modules that use each other, from the source text of each module. A module and its parents may use
/// each other, because a parent is the root of its part. Tests do not count.
///
/// # Errors
/// A source text is not Rust; the text names the module.
pub fn circles(sources: &BTreeMap<Module, String>) -> Result<Vec<Vec<Module>>, String> {
    let mut used = BTreeMap::new();
    for (module, source) in sources {
        let file = syn::parse_file(source);
        let file = file.map_err(|error| format!("{}: {error}", module.join("::")))?;
        let mut paths = Paths {
            module,
            found: BTreeSet::new(),
        };
        paths.visit_file(&file);
        let targets = paths.found.iter();
        let targets = targets.filter_map(|path| target(path, sources));
        let is_apart = |other: &&Module| !other.starts_with(module) && !module.starts_with(other);
        let targets: BTreeSet<&Module> = targets.filter(is_apart).collect();
        used.insert(module, targets);
    }
    let reached: BTreeMap<_, _> = used
        .keys()
        .map(|from| (*from, reach(from, &used)))
        .collect();
    let mut circles = BTreeSet::new();
    for (module, others) in &reached {
        let is_mutual = |other: &&&Module| {
            let back = reached.get(**other);
            back.is_some_and(|back| back.contains(module))
        };
        let circle: BTreeSet<&Module> = others.iter().filter(is_mutual).copied().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    let owned = circles.into_iter();
    let owned = owned.map(|circle| circle.into_iter().cloned().collect());
    Ok(owned.collect())
}

/// The longest beginning of a path that is a module with a file of its own.
fn target<'a>(path: &[String], sources: &'a BTreeMap<Module, String>) -> Option<&'a Module> {
    let beginnings = (1..=path.len())
        .rev()
        .filter_map(|length| path.get(..length));
    let mut modules = beginnings.filter_map(|beginning| sources.get_key_value(beginning));
    modules.next().map(|(module, _)| module)
}

/// The modules that a module uses, directly or through others.
fn reach<'a>(
    from: &Module,
    used: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&Module> = used.get(from).into_iter().flatten().copied().collect();
    while let Some(next) = left.pop() {
        if reached.insert(next) {
            left.extend(used.get(next).into_iter().flatten());
        }
    }
    reached
}

/// The paths in the code of a module, from the crate's root.
struct Paths<'a> {
    module: &'a Module,
    found: BTreeSet<Module>,
}

impl Paths<'_> {
    fn add(&mut self, path: &[String]) {
        let mut base: &[String] = match path.first().map(String::as_str) {
            Some("crate") => &[],
            // A path to a child, as in `use child::Item`.
            _ => self.module,
        };
        let mut rest = path;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "super" => base = base.split_last().map_or(&[], |(_, parents)| parents),
                "self" | "crate" => {}
                _ => break,
            }
            rest = others;
        }
        self.found.insert([base, rest].concat());
    }

    fn add_tree(&mut self, tree: &UseTree, before: &[String]) {
        let joined = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.add_tree(&path.tree, &joined(&path.ident)),
            UseTree::Name(name) => self.add(&joined(&name.ident)),
            UseTree::Rename(name) => self.add(&joined(&name.ident)),
            UseTree::Glob(_) => self.add(before),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_tree(tree, before);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !attributes(item).iter().any(is_of_tests) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|one| one.ident.to_string())
            .collect();
        if names.len() > 1 {
            self.add(&names);
        }
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// `#[cfg(test)]`, also with other conditions.
fn is_of_tests(attribute: &Attribute) -> bool {
    let syn::Meta::List(list) = &attribute.meta else {
        return false;
    };
    let is_test = |word: &str| word.trim() == "test";
    list.path.is_ident("cfg") && list.tokens.to_string().split(['(', ')', ',']).any(is_test)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let sources = files.iter();
        let sources = sources.map(|(file, source)| (module(file), (*source).to_owned()));
        let circles = circles(&sources.collect()).unwrap();
        let name = |circle: Vec<Module>| circle.iter().map(|one| one.join("::")).collect();
        circles.into_iter().map(name).collect()
    }

    #[test]
    fn files_that_use_each_other_are_a_circle() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b::B;"),
            ("b/mod.rs", "fn f() { super::c::g(); }"),
            ("c.rs", "use super::{a::{self, A}, b};"),
        ];
        assert_eq!(found(&files), [["a", "b", "c"]]);
    }

    #[test]
    fn uses_in_one_direction_are_no_circle() {
        let files = [
            ("main.rs", "mod a; mod b; use a::A;"),
            ("a.rs", "use crate::b::{B, C}; use std::a::b;"),
            ("b.rs", "pub struct B;"),
        ];
        assert!(found(&files).is_empty());
    }

    #[test]
    fn module_may_use_its_parent_and_tests_may_use_all() {
        let files = [
            ("a/mod.rs", "mod x; use x::X;"),
            ("a/x.rs", "use super::A;"),
            ("b.rs", "use crate::a::A;"),
            (
                "a/y.rs",
                "#[cfg(test)] use crate::b::B; #[cfg(test)] mod tests { use crate::b::B; } \
                 #[cfg(any(test, feature = \"testing\"))] impl A { fn f() { crate::b::f(); } }",
            ),
            ("c.rs", "use crate::a::y::Y;"),
        ];
        assert!(found(&files).is_empty());
    }
}
