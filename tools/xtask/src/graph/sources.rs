//! Modules of one package, and the paths that each of them names.
//!
//! The sources are read as token trees, so that paths in macro calls count too. Code that is compiled only for tests does not count. A path
//! is followed through re-exports to the module that defines the item. A method call without a path, and a name that comes from a glob
//! import alone, are not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use super::GraphError;

/// Segments of a path.
type Segments = Vec<String>;

/// One module: a file, or a part of one.
#[derive(Debug, Default)]
pub(super) struct Module {
    pub(super) file: PathBuf,
    pub(super) parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// Names of the items that the module defines.
    items: BTreeSet<String>,
    /// Imported names, with the path of each.
    imports: BTreeMap<String, Segments>,
    globs: Vec<Segments>,
    /// All paths in the module's code, imports included.
    pub(super) paths: BTreeSet<Segments>,
}

/// All modules of one library or program; the first is its root.
#[derive(Debug, Default)]
pub(super) struct Modules {
    pub(super) all: Vec<Module>,
}

impl Modules {
    /// Reads the file `start` and the files of its modules.
    pub(super) fn read(start: &Path) -> Result<Self, GraphError> {
        let mut modules = Self::default();
        let folder = start.parent().unwrap_or(Path::new(""));
        modules.read_file(start, folder, None)?;
        Ok(modules)
    }

    /// Reads a file as one module, whose child modules are files in `folder`. Returns the module.
    fn read_file(&mut self, file: &Path, folder: &Path, parent: Option<usize>) -> Result<usize, GraphError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| GraphError::Source { file: file.to_owned(), what: error.to_string() })?;
        let tokens: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| {
            GraphError::Source { file: file.to_owned(), what: error.to_string() }
        })?;
        self.add(file, folder, parent, tokens)
    }

    fn add(
        &mut self,
        file: &Path,
        folder: &Path,
        parent: Option<usize>,
        tokens: TokenStream,
    ) -> Result<usize, GraphError> {
        let module = self.all.len();
        let mut found = Found::default();
        found.items(tokens);
        let Found { content, modules } = found;
        self.all.push(Module { file: file.to_owned(), parent, ..content });
        for (name, body) in modules {
            let below = folder.join(&name);
            let child = if let Some(tokens) = body {
                self.add(file, &below, Some(module), tokens)?
            } else {
                let nested = below.join("mod.rs");
                let file = if nested.is_file() { nested } else { folder.join(format!("{name}.rs")) };
                self.read_file(&file, &below, Some(module))?
            };
            if let Some(parent) = self.all.get_mut(module) {
                parent.children.insert(name, child);
            }
        }
        Ok(module)
    }

    /// Returns the module that defines what `path` names in `module`; `None` for an item of another package.
    pub(super) fn definition(&self, module: usize, path: &[String]) -> Option<usize> {
        self.resolve(module, path, 0).map(|(module, _)| module)
    }

    /// Returns the module that `path` leads to, and whether it names the module itself, not an item in it.
    fn resolve(&self, from: usize, path: &[String], depth: usize) -> Option<(usize, bool)> {
        const MAX_REEXPORTS: usize = 16;
        if depth > MAX_REEXPORTS {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (0, rest),
            "self" => (from, rest),
            "super" => (self.all.get(from)?.parent?, rest),
            name if self.defines(from, name) => (from, path),
            _ => return None,
        };
        while let Some((name, after)) = rest.split_first() {
            let here = self.all.get(at)?;
            rest = after;
            at = match name.as_str() {
                "self" => at,
                "super" => here.parent?,
                name => match here.children.get(name) {
                    Some(child) => *child,
                    None if here.items.contains(name) => return Some((at, false)),
                    None => match self.imported(at, name, depth) {
                        Some((module, true)) => module,
                        Some(item) => return Some(item),
                        // An item of another package that this module re-exports, or one that a macro defines.
                        None => return Some((at, false)),
                    },
                },
            };
        }
        Some((at, true))
    }

    fn defines(&self, module: usize, name: &str) -> bool {
        self.all.get(module).is_some_and(|found| {
            found.children.contains_key(name)
                || found.items.contains(name)
                || found.imports.contains_key(name)
        })
    }

    /// Resolves a name that `module` imports, by itself or with all others.
    fn imported(&self, module: usize, name: &str, depth: usize) -> Option<(usize, bool)> {
        let here = self.all.get(module)?;
        if let Some(path) = here.imports.get(name) {
            // `use name::name` of another package would lead back to itself.
            return self.resolve(module, path, depth + 1);
        }
        here.globs.iter().find_map(|glob| {
            let (target, _) = self.resolve(module, glob, depth + 1)?;
            let path = [name.to_owned()];
            self.defines(target, name).then(|| self.resolve(target, &path, depth + 1))?
        })
    }
}

/// Content of the tokens of one module.
#[derive(Default)]
struct Found {
    content: Module,
    /// Child modules with their bodies; `None`: in a file of its own.
    modules: Vec<(String, Option<TokenStream>)>,
}

impl Found {
    /// Reads the items of a module.
    fn items(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let name = |at: usize| match tokens.get(at) {
                Some(TokenTree::Ident(name)) => Some(name.to_string()),
                _ => None,
            };
            let word = name(at).unwrap_or_default();
            match (word.as_str(), name(at + 1), tokens.get(at + 2)) {
                ("mod", Some(child), Some(TokenTree::Group(body))) => {
                    self.modules.push((child, Some(body.stream())));
                    at += 3;
                    continue;
                }
                ("mod", Some(child), _) => {
                    self.modules.push((child, None));
                    at += 2;
                    continue;
                }
                (
                    "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" | "fn",
                    Some(item),
                    _,
                ) => {
                    self.content.items.insert(item);
                }
                ("macro_rules", ..) => self.content.items.extend(name(at + 2)),
                _ => {}
            }
            at += if is_test_attribute(&tokens, at) {
                after_item(&tokens, at)
            } else {
                self.code(token, &tokens, at)
            };
        }
    }

    /// Reads one token of code with what belongs to it; returns the number of tokens.
    fn code(&mut self, token: &TokenTree, tokens: &[TokenTree], at: usize) -> usize {
        match token {
            TokenTree::Ident(word) if word == "use" => {
                let end = tokens.iter().skip(at).position(is(';')).unwrap_or(tokens.len() - at);
                self.import(&[], tokens.get(at + 1..at + end).unwrap_or_default());
                end
            }
            TokenTree::Ident(_) => {
                let (path, used) = path(tokens, at);
                let continues = at.checked_sub(1).and_then(|before| tokens.get(before)).is_some_and(is(':'));
                if path.len() > 1 && !(continues && is_separator(tokens, at.wrapping_sub(2))) {
                    self.content.paths.insert(path);
                }
                used
            }
            TokenTree::Group(group) => {
                let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
                let mut at = 0;
                while let Some(token) = tokens.get(at) {
                    at += if is_test_attribute(&tokens, at) {
                        after_item(&tokens, at)
                    } else {
                        self.code(token, &tokens, at)
                    };
                }
                1
            }
            _ => 1,
        }
    }

    /// Reads a `use` declaration after `before`.
    fn import(&mut self, before: &[String], tokens: &[TokenTree]) {
        for tree in tokens.split(is(',')).filter(|tree| !tree.is_empty()) {
            let (path, used) = path(tree, 0);
            let mut path = [before, &path].concat();
            match (tree.get(used), tree.get(used + 1)) {
                (Some(TokenTree::Group(group)), _) => {
                    let list: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.import(&path, &list);
                    continue;
                }
                (Some(TokenTree::Punct(star)), _) if star.as_char() == '*' => {
                    self.content.globs.push(path.clone())
                }
                (Some(TokenTree::Ident(_)), Some(TokenTree::Ident(alias))) => {
                    self.content.imports.insert(alias.to_string(), path.clone());
                }
                _ => {
                    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
                        path.pop();
                    }
                    let name = path.last().cloned().unwrap_or_default();
                    self.content.imports.insert(name, path.clone());
                }
            }
            self.content.paths.insert(path);
        }
    }
}

fn is(wanted: char) -> impl Fn(&TokenTree) -> bool {
    move |token| matches!(token, TokenTree::Punct(found) if found.as_char() == wanted)
}

/// Returns whether `::` stands at `at`.
fn is_separator(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |at| tokens.get(at).filter(|token| is(':')(token));
    matches!(colon(at), Some(TokenTree::Punct(first)) if first.spacing() == Spacing::Joint)
        && colon(at + 1).is_some()
}

/// Returns the path that starts at `at`, and its number of tokens, with a `::` at its end.
fn path(tokens: &[TokenTree], at: usize) -> (Segments, usize) {
    let (mut path, mut next) = (Vec::new(), at);
    while let Some(TokenTree::Ident(name)) = tokens.get(next) {
        path.push(name.to_string());
        next += 1;
        if !is_separator(tokens, next) {
            break;
        }
        next += 2;
    }
    (path, next - at)
}

/// Returns whether an attribute at `at` limits what follows to tests.
fn is_test_attribute(tokens: &[TokenTree], at: usize) -> bool {
    let (Some(hash), Some(TokenTree::Group(group))) = (tokens.get(at), tokens.get(at + 1)) else {
        return false;
    };
    let text: String = group.stream().to_string().split_whitespace().collect();
    is('#')(hash) && (text == "test" || text == "cfg(test)" || text.starts_with("cfg(all(test,"))
}

/// Number of tokens from an attribute to the end of what it applies to.
fn after_item(tokens: &[TokenTree], at: usize) -> usize {
    const WITH_BODY: [&str; 6] = ["fn", "mod", "impl", "struct", "enum", "trait"];
    const WITHOUT_BODY: [&str; 5] = ["use", "const", "static", "type", "let"];
    let rest = tokens.get(at + 2..).unwrap_or_default();
    let word = |words: &[&str]| {
        rest.iter().take(5).any(
            |token| matches!(token, TokenTree::Ident(name) if words.contains(&name.to_string().as_str())),
        )
    };
    let (body, statement) = (word(&WITH_BODY), word(&WITHOUT_BODY) && !word(&WITH_BODY));
    let end = rest.iter().position(|token| {
        is(';')(token)
            || (is(',')(token) && !body && !statement)
            || (!statement
                && matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace))
    });
    end.map_or(tokens.len() - at, |end| end + 3)
}
