//! Checks that the files of a crate form floors: a file uses only files below it, so that no two
//! files need each other. Re-exports are resolved to the file that defines the item.
//!
//! An edge goes from a file to the file whose item it names. Two things are no edge: a declaration
//! `mod name;`, and a re-export that the file itself does not use. Code under `#[cfg(test)]` is left
//! out. Names that a glob import brings in are resolved by their definitions.
//!
//! A module and its own children are one floor: a child that completes a type of its parent is normal
//! Rust.

#![allow(clippy::expect_used, clippy::panic, reason = "a panic is how a test reports")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Tokens of a source file: words, and single characters of punctuation.
fn tokens(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    let (mut at, mut tokens) = (0, Vec::new());
    let next = |at: usize| letters.get(at).copied().unwrap_or_default();
    while at < letters.len() {
        let letter = next(at);
        if letter == '/' && next(at + 1) == '/' {
            at = after(&letters, at, '\n');
        } else if letter == '/' && next(at + 1) == '*' {
            at += 2;
            while at < letters.len() && !(next(at) == '*' && next(at + 1) == '/') {
                at += 1;
            }
            at += 2;
        } else if let Some(end) = raw_text(&letters, at) {
            at = end;
        } else if letter == '"' {
            at += 1;
            while at < letters.len() && next(at) != '"' {
                at += if next(at) == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if letter == '\'' {
            // A lifetime has no closing quote.
            if next(at + 1) == '\\' {
                at = after(&letters, at + 3, '\'');
            } else if next(at + 2) == '\'' {
                at += 3;
            } else {
                at += 1;
            }
        } else if letter.is_alphanumeric() || letter == '_' {
            let start = at;
            while next(at).is_alphanumeric() || next(at) == '_' {
                at += 1;
            }
            tokens.push(letters[start..at].iter().collect());
        } else {
            if !letter.is_whitespace() {
                tokens.push(letter.to_string());
            }
            at += 1;
        }
    }
    tokens
}

/// Returns the place after the next `wanted`.
fn after(letters: &[char], from: usize, wanted: char) -> usize {
    (from..letters.len()).find(|at| letters[*at] == wanted).map_or(letters.len(), |at| at + 1)
}

/// Returns the end of the raw string that begins here, if one does.
fn raw_text(letters: &[char], at: usize) -> Option<usize> {
    let word = at > 0 && (letters[at - 1].is_alphanumeric() || letters[at - 1] == '_');
    let start = match letters[at..] {
        ['r', '"' | '#', ..] if !word => at + 1,
        ['b', 'r', '"' | '#', ..] if !word => at + 2,
        _ => return None,
    };
    let hashes = letters[start..].iter().take_while(|letter| **letter == '#').count();
    if letters.get(start + hashes) != Some(&'"') {
        return None;
    }
    let mut end = start + hashes + 1;
    while end < letters.len() {
        let closes = letters[end] == '"'
            && letters[end + 1..].iter().take_while(|letter| **letter == '#').take(hashes).count() == hashes;
        end += 1;
        if closes {
            break;
        }
    }
    Some(end + hashes)
}

/// Returns the place after the bracket that closes the one at `open`.
fn closed(tokens: &[String], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}

/// Removes the items under `#[cfg(test)]`.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let test = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut at, mut kept) = (0, Vec::new());
    while at < tokens.len() {
        if !tokens[at..].iter().take(test.len()).eq(test.iter()) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += test.len();
        // The item ends with its block, or with a semicolon or comma outside of brackets.
        while at < tokens.len() {
            match tokens[at].as_str() {
                ";" | "," => {
                    at += 1;
                    break;
                }
                "{" => {
                    at = closed(tokens, at);
                    // The list of a `use` goes on to its semicolon.
                    if tokens.get(at).is_some_and(|token| token == ";" || token == ",") {
                        at += 1;
                    }
                    break;
                }
                "(" | "[" => at = closed(tokens, at),
                "}" | ")" => break,
                _ => at += 1,
            }
        }
    }
    kept
}

/// Name that an import brings into a file.
#[derive(Clone, Debug)]
struct Import {
    /// Name in the file, or `*`.
    name: String,
    path: Vec<String>,
    exported: bool,
}

/// Module that is a file.
#[derive(Debug, Default)]
struct Module {
    file: String,
    /// Names of the modules above, and its own.
    path: Vec<String>,
    children: BTreeMap<String, usize>,
    imports: Vec<Import>,
    defined: BTreeSet<String>,
    /// Tokens outside of imports.
    rest: Vec<String>,
}

/// Reads the tree after `use` into imports; returns the place after it.
fn use_tree(
    tokens: &[String],
    mut at: usize,
    prefix: &[String],
    exported: bool,
    into: &mut Vec<Import>,
) -> usize {
    let mut path = prefix.to_vec();
    let add = |name: &str, path: &[String], into: &mut Vec<Import>| {
        let mut path = path.to_vec();
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        let name = if name == "self" { path.last().cloned().unwrap_or_default() } else { name.to_owned() };
        into.push(Import { name, path, exported });
    };
    while at < tokens.len() {
        match tokens[at].as_str() {
            ":" => at += 1,
            "{" => {
                at += 1;
                while at < tokens.len() && tokens[at] != "}" {
                    at = use_tree(tokens, at, &path, exported, into);
                    if tokens.get(at).is_some_and(|token| token == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "as" => {
                add(&tokens[at + 1], &path, into);
                return at + 2;
            }
            "*" => {
                add("*", &path, into);
                return at + 1;
            }
            ";" | "," | "}" => break,
            word => {
                path.push(word.to_owned());
                at += 1;
            }
        }
    }
    if let Some(name) = path.last().cloned() {
        add(&name, &path, into);
    }
    at
}

/// Reads the module in `file` and those that it declares.
fn read_module(file: &Path, source: &Path, path: Vec<String>, modules: &mut Vec<Module>) -> usize {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let tokens = without_tests(&tokens(&text));
    let is_root =
        matches!(file.file_name().and_then(|name| name.to_str()), Some("lib.rs" | "main.rs" | "mod.rs"));
    let folder = if is_root { file.parent().expect("a folder").to_owned() } else { file.with_extension("") };
    let number = modules.len();
    let shown = file.strip_prefix(source).unwrap_or(file).display().to_string();
    modules.push(Module { file: shown, path: path.clone(), ..Module::default() });
    let (mut at, mut module) = (0, Module::default());
    let mut declared = Vec::new();
    while at < tokens.len() {
        let next = tokens.get(at + 1).map(String::as_str).unwrap_or_default();
        match tokens[at].as_str() {
            "mod" if tokens.get(at + 2).is_some_and(|token| token == ";") => {
                declared.push(next.to_owned());
                at += 3;
                continue;
            }
            "use" if next != "<" => {
                let before = at.checked_sub(1).map(|before| tokens[before].as_str());
                let exported = matches!(before, Some("pub" | ")"));
                at = use_tree(&tokens, at + 1, &[], exported, &mut module.imports) + 1;
                continue;
            }
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "macro_rules" | "union" => {
                let name = if next == "!" || next == "mut" { tokens.get(at + 2) } else { tokens.get(at + 1) };
                module.defined.extend(name.cloned());
            }
            _ => {}
        }
        module.rest.push(tokens[at].clone());
        at += 1;
    }
    let mut children = BTreeMap::new();
    for name in declared {
        let flat = folder.join(format!("{name}.rs"));
        let nested = folder.join(&name).join("mod.rs");
        let file = if flat.exists() { flat } else { nested };
        let path: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
        children.insert(name, read_module(&file, source, path, modules));
    }
    let own = &mut modules[number];
    (own.children, own.imports, own.defined, own.rest) =
        (children, module.imports, module.defined, module.rest);
    number
}

/// Crate as a list of modules; the first is the root.
struct Tree(Vec<Module>);

/// Target of a path.
enum Target {
    Item(usize),
    Module(usize),
}

impl Tree {
    fn module_at(&self, path: &[String]) -> Option<usize> {
        let mut module = 0;
        for name in path {
            module = *self.0[module].children.get(name)?;
        }
        Some(module)
    }

    /// Resolves a path that a file names; none for paths into other crates and into the file itself.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<Target> {
        if depth == 0 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk(0, rest, depth),
            "self" => self.walk(from, rest, depth),
            "super" => {
                let own = &self.0[from].path;
                let parent = self.module_at(own.get(..own.len().checked_sub(1)?)?)?;
                if rest.first().is_some_and(|next| next == "super") {
                    return self.resolve(parent, rest, depth);
                }
                self.walk(parent, rest, depth)
            }
            name => {
                let here = &self.0[from];
                let known = here.children.contains_key(name)
                    || here
                        .imports
                        .iter()
                        .any(|import| import.name == name && import.path.first() != Some(&import.name));
                if known { self.walk(from, path, depth) } else { None }
            }
        }
    }

    fn walk(&self, module: usize, path: &[String], depth: usize) -> Option<Target> {
        let Some((name, rest)) = path.split_first() else { return Some(Target::Module(module)) };
        let here = &self.0[module];
        // A function may have the name of its module: a path that goes on means the module.
        let reexported = rest.is_empty() && here.imports.iter().any(|import| import.name == *name);
        if let Some(child) = here.children.get(name)
            && !reexported
        {
            return self.walk(*child, rest, depth);
        }
        for import in here.imports.iter().filter(|import| import.name == *name) {
            match self.resolve(module, &import.path, depth - 1) {
                Some(Target::Module(inner)) => return self.walk(inner, rest, depth - 1),
                Some(item) => return Some(item),
                None => {}
            }
        }
        // After the imports: a method may have the name of one.
        if here.defined.contains(name) {
            return Some(Target::Item(module));
        }
        for import in here.imports.iter().filter(|import| import.name == "*") {
            if let Some(Target::Module(inner)) = self.resolve(module, &import.path, depth - 1)
                && inner != module
                && let Some(found) = self.walk(inner, path, depth - 1)
            {
                return Some(found);
            }
        }
        None
    }

    /// Returns the files that a file uses, each with the names.
    fn uses(&self, from: usize) -> BTreeMap<usize, BTreeSet<String>> {
        let here = &self.0[from];
        let words: BTreeSet<&String> = here.rest.iter().collect();
        let mut found: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        let mut add = |target: Option<Target>, name: &str| {
            if let Some(Target::Item(module)) = target
                && module != from
            {
                found.entry(module).or_default().insert(name.to_owned());
            }
        };
        for import in &here.imports {
            if import.name == "*" {
                if let Some(Target::Module(module)) = self.resolve(from, &import.path, 16) {
                    for name in self.0[module].defined.iter().filter(|name| words.contains(name)) {
                        add(Some(Target::Item(module)), name);
                    }
                }
            } else if !import.exported || words.contains(&import.name) {
                add(self.resolve(from, &import.path, 16), &import.name);
            }
        }
        // Paths in the text: `crate::a::b`, `super::b`, and `module::b` of a module in scope.
        let tokens = &here.rest;
        let mut at = 0;
        while at < tokens.len() {
            let mut path = Vec::new();
            let mut end = at;
            while tokens
                .get(end)
                .is_some_and(|token| token.starts_with(|first: char| first.is_alphabetic() || first == '_'))
            {
                path.push(tokens[end].clone());
                end += 1;
                if tokens.get(end).is_some_and(|token| token == ":")
                    && tokens.get(end + 1).is_some_and(|token| token == ":")
                {
                    end += 2;
                } else {
                    break;
                }
            }
            if path.len() > 1 {
                let target = self.resolve(from, &path, 16);
                add(target, &path.join("::"));
            }
            at = end.max(at + 1);
        }
        found
    }

    fn is_parent(&self, one: usize, other: usize) -> bool {
        self.0[one].children.values().any(|child| *child == other)
    }
}

/// Returns the circles of a crate, the largest first, and a text with the edges within each.
fn circles(source: &Path, root: &Path) -> (Vec<BTreeSet<usize>>, String) {
    let mut modules = Vec::new();
    read_module(root, source, Vec::new(), &mut modules);
    let tree = Tree(modules);
    let edges: Vec<BTreeMap<usize, BTreeSet<String>>> = (0..tree.0.len())
        .map(|from| {
            let mut uses = tree.uses(from);
            uses.retain(|to, _| !tree.is_parent(from, *to) && !tree.is_parent(*to, from));
            uses
        })
        .collect();
    let reached: Vec<BTreeSet<usize>> = (0..tree.0.len())
        .map(|from| {
            let (mut seen, mut waiting) = (BTreeSet::new(), vec![from]);
            while let Some(at) = waiting.pop() {
                waiting.extend(edges[at].keys().filter(|to| seen.insert(**to)));
            }
            seen
        })
        .collect();
    let (mut circles, mut done) = (Vec::new(), BTreeSet::new());
    for from in 0..tree.0.len() {
        if reached[from].contains(&from) && !done.contains(&from) {
            let circle: BTreeSet<usize> =
                reached[from].iter().copied().filter(|other| reached[*other].contains(&from)).collect();
            done.extend(circle.iter().copied());
            circles.push(circle);
        }
    }
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    let mut text = String::new();
    for circle in &circles {
        writeln!(text, "circle of {} files:", circle.len()).expect("a string takes it");
        for from in circle {
            for (to, names) in edges[*from].iter().filter(|(to, _)| circle.contains(to)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let (from, to) = (&tree.0[*from].file, &tree.0[*to].file);
                writeln!(text, "  {from} -> {to}: {}", names.join(", ")).expect("a string takes it");
            }
        }
    }
    (circles, text)
}

/// Returns the crates by the names of their folders, with their root files.
fn crates() -> Vec<(String, PathBuf)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.parent().expect("the crate is in crates/");
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.expect("an entry").path();
        for root in ["lib.rs", "main.rs"] {
            let root = path.join("src").join(root);
            if root.exists() {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                found.push((name, root));
            }
        }
    }
    found.sort();
    assert!(found.len() > 8, "the crates are found");
    found
}

/// Goal: a reader can read a crate from the bottom up. Method: the circles of each crate are
/// computed from its imports; there may be none.
#[test]
fn files_of_a_crate_form_floors() {
    let mut wrong = String::new();
    for (name, root) in crates() {
        let source = root.parent().expect("a folder");
        let (circles, edges) = circles(source, &root);
        if !circles.is_empty() {
            writeln!(wrong, "{name}:\n{edges}").expect("a string takes it");
        }
    }
    assert!(wrong.is_empty(), "files that need each other:\n{wrong}");
}

/// Goal: a circle is found through a re-export, an alias and a path in the text. Comments, strings,
/// tests, declarations and unused re-exports are no edge.
#[test]
fn circle_through_a_reexport_is_found() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("floors");
    std::fs::create_dir_all(source.join("top")).expect("a folder");
    let files = [
        ("lib.rs", "mod bottom;\nmod lone;\nmod top;\npub use lone::Lone;\n"),
        ("bottom.rs", "use crate::top as high;\npub struct Low;\nfn f() { high::deep() }\n"),
        ("top/mod.rs", "mod deep;\npub(crate) use deep::deep;\npub struct Top;\n"),
        ("top/deep.rs", "use super::Top;\npub fn deep() -> Top { crate::bottom::Low; Top }\n"),
        (
            "lone.rs",
            "use crate::bottom::Low;\n// crate::top::Top\npub struct Lone(&'static str, Low);\n\
             const S: &str = \"crate::top::Top\";\n#[cfg(test)]\nmod tests { use crate::Lone; }\n",
        ),
    ];
    for (name, text) in files {
        std::fs::write(source.join(name), text).expect("a file");
    }
    let (circles, edges) = circles(&source, &source.join("lib.rs"));
    let expected = "circle of 2 files:\n  bottom.rs -> top/deep.rs: high::deep\n  \
                    top/deep.rs -> bottom.rs: crate::bottom::Low\n";
    assert_eq!((circles.len(), edges.as_str()), (1, expected));
}
