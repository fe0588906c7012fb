//! Names of the items of Rust sources: which functions, fields, variants and constants each type and module has. The scanner reads
//! declarations only and knows no types, so a name counts for every type of that name. Names that the rules of a macro
//! declare count for everything that a call of a macro names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::lexer::{Part, is_word, parts};

/// Members by the name of their type or module; `true`: public, or of a trait.
#[derive(Debug, Default)]
pub(crate) struct Items {
    members: BTreeMap<String, BTreeMap<String, bool>>,
    /// Types that have the members of others: aliases, and what they dereference to.
    aliases: BTreeMap<String, BTreeSet<String>>,
    /// The words of each call of a macro, and its module.
    calls: Vec<BTreeSet<String>>,
    /// Names of the items in the rules of macros.
    macro_members: BTreeSet<String>,
}

/// Words and single other characters of the code, without attributes.
fn tokens(source: &str) -> Vec<String> {
    let mut code = String::with_capacity(source.len());
    for part in parts(source) {
        match part {
            Part::Code(text) if text.len() < 3 || !text.starts_with('\'') => code.push_str(text),
            Part::Literal(_) => code.push('"'),
            _ => code.push(' '),
        }
    }
    let mut found: Vec<String> = Vec::new();
    let mut in_word = false;
    for c in code.chars() {
        // The variables of macros are words that begin with a dollar sign.
        match (is_word(c), in_word, found.last_mut()) {
            (true, true, Some(last)) => last.push(c),
            _ if c.is_whitespace() => {}
            _ => found.push(c.to_string()),
        }
        in_word = is_word(c) || c == '$';
    }
    found
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c| is_word(c) || c == '$')
}

/// Index behind the bracket that closes the one at `at`.
fn behind(tokens: &[String], at: usize) -> usize {
    let mut depth = 0_u32;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Index of the first token from `at` that is one of `ends` outside of round and square brackets.
fn find(tokens: &[String], mut at: usize, ends: &[&str]) -> usize {
    while let Some(token) = tokens.get(at) {
        if ends.contains(&token.as_str()) {
            return at;
        }
        at = if matches!(token.as_str(), "(" | "[") { behind(tokens, at) } else { at + 1 };
    }
    tokens.len()
}

/// Name of the type that an `impl` is for: the last word of the path before generic arguments.
fn implemented(header: &[String]) -> Option<&str> {
    let mut depth = 0_i32;
    let mut name = None;
    for (index, token) in header.iter().enumerate() {
        let arrow = index > 0 && header[index - 1] == "-";
        match token.as_str() {
            "<" => depth += 1,
            ">" if !arrow => depth -= 1,
            "for" if depth == 0 && header.get(index + 1).is_none_or(|next| next != "<") => name = None,
            "where" if depth == 0 => break,
            word if depth == 0 && is_name(word) && !["dyn", "mut", "const"].contains(&word) => {
                name = Some(word);
            }
            _ => {}
        }
    }
    name
}

impl Items {
    /// Adds the items of a source file; the file or its folder is the module of its free items.
    pub(crate) fn add(&mut self, file: &Path, source: &str) {
        let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let folder = |path: &Path| path.parent().map(stem).unwrap_or_default();
        let module = match stem(file).as_str() {
            "mod" => folder(file),
            "lib" | "main" => file.parent().map(folder).unwrap_or_default(),
            other => other.to_owned(),
        };
        self.members.entry(module.clone()).or_default();
        self.scan(&tokens(source), &module, false);
    }

    /// Gives the module the package's name, too.
    pub(crate) fn add_package(&mut self, folder: &str, package: &str) {
        self.aliases.entry(package.replace('-', "_")).or_default().insert(folder.to_owned());
    }

    fn declare(&mut self, of: &str, name: &str, public: bool) {
        let known = self.members.entry(of.to_owned()).or_default().entry(name.to_owned()).or_default();
        *known |= public;
    }

    /// Scans the items of a module, trait or implementation.
    fn scan(&mut self, tokens: &[String], of: &str, all_public: bool) {
        let (mut at, mut public) = (0, all_public);
        while let Some(token) = tokens.get(at) {
            let name = tokens.get(at + 1).map_or("", String::as_str);
            let body = |from| find(tokens, from, &["{", ";"]);
            match token.as_str() {
                "#" if name == "[" => {
                    at = behind(tokens, at + 1);
                    continue;
                }
                "pub" => {
                    public = name != "(";
                    at += 1;
                    continue;
                }
                "const" if name == "fn" => {
                    at += 1;
                    continue;
                }
                "async" | "unsafe" | "extern" | "default" | "\"" => {
                    at += 1;
                    continue;
                }
                "fn" => {
                    self.declare(of, name, public);
                    at = behind(tokens, body(at));
                }
                "const" | "static" | "type" => {
                    self.declare(of, name, public);
                    let end = find(tokens, at, &["=", ";"]);
                    if token == "type" && tokens.get(end).is_some_and(|token| token == "=") {
                        let value = &tokens[end + 1..find(tokens, end, &[";"])];
                        let target = implemented(value).unwrap_or_default().to_owned();
                        // `type Target` of a `Deref`: the members of the target are members of the type.
                        let alias = if name == "Target" { of } else { name };
                        self.aliases.entry(alias.to_owned()).or_default().insert(target);
                    }
                    at = statement_end(tokens, at);
                }
                "struct" | "union" | "enum" | "trait" => {
                    self.declare(of, name, public);
                    self.members.entry(name.to_owned()).or_default();
                    let start = body(at);
                    let end = behind(tokens, start);
                    let inner = tokens.get(start + 1..end.saturating_sub(1)).unwrap_or_default();
                    match token.as_str() {
                        "trait" => self.scan(inner, name, true),
                        "enum" => self.fields(inner, name, true),
                        _ => self.fields(inner, name, false),
                    }
                    at = end;
                }
                "impl" => {
                    let start = body(at);
                    let end = behind(tokens, start);
                    let mut header = &tokens[at + 1..start];
                    if header.first().is_some_and(|token| token == "<") {
                        header = &header[behind_angle(header)..];
                    }
                    let is_trait = header.iter().any(|token| token == "for");
                    let inner = tokens.get(start + 1..end.saturating_sub(1)).unwrap_or_default();
                    if let Some(name) = implemented(header) {
                        self.scan(inner, name, is_trait);
                    }
                    at = end;
                }
                "mod" => {
                    self.declare(of, name, public);
                    let start = body(at);
                    let end = behind(tokens, start);
                    self.scan(tokens.get(start + 1..end.saturating_sub(1)).unwrap_or_default(), name, false);
                    at = end;
                }
                "use" => {
                    let end = find(tokens, at, &[";"]);
                    for word in tokens[at..end].iter().filter(|word| is_name(word)) {
                        self.declare(of, word, public);
                    }
                    at = end + 1;
                }
                "macro_rules" => {
                    let end = behind(tokens, at + 3);
                    self.rules(tokens.get(at + 3..end).unwrap_or_default());
                    at = end;
                }
                word if is_name(word) && name == "!" => {
                    let end = behind(tokens, at + 2);
                    self.call(tokens.get(at + 2..end).unwrap_or_default(), of);
                    at = end;
                }
                _ => at += 1,
            }
            public = all_public;
        }
    }

    /// The fields of a struct or the variants of an enum. Fields of a variant count for the enum.
    fn fields(&mut self, inner: &[String], of: &str, all_public: bool) {
        let (mut at, mut public, mut start) = (0, all_public, true);
        while let Some(token) = inner.get(at) {
            match token.as_str() {
                "#" => {
                    at = behind(inner, at + 1);
                    continue;
                }
                "pub" => {
                    public = inner.get(at + 1).is_none_or(|next| next != "(");
                    if !public {
                        at = behind(inner, at + 1);
                        continue;
                    }
                }
                "," => (start, public) = (true, all_public),
                "{" | "(" | "[" => {
                    at = behind(inner, at);
                    continue;
                }
                "<" => {
                    at += behind_angle(&inner[at..]);
                    continue;
                }
                word if start && is_name(word) => {
                    self.declare(of, word, public);
                    start = false;
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// The rules of a macro: each item that they declare may be a member of what calls of macros name.
    fn rules(&mut self, body: &[String]) {
        let mut declared = Self::default();
        declared.scan(body.get(1..body.len().saturating_sub(1)).unwrap_or_default(), "", true);
        self.macro_members.extend(declared.members.into_values().flat_map(BTreeMap::into_keys));
    }

    /// A call of a macro in a module or type.
    fn call(&mut self, body: &[String], of: &str) {
        let words = body.iter().filter(|token| is_name(token)).cloned();
        self.calls.push(words.chain([of.to_owned()]).collect());
        if body.iter().any(|token| ["fn", "struct", "enum", "impl", "mod"].contains(&token.as_str())) {
            self.scan(body.get(1..body.len().saturating_sub(1)).unwrap_or_default(), of, true);
        }
    }

    /// Whether the item is declared, and public; `None` for a type or module that is not of this project.
    pub(crate) fn find(&self, of: &str, name: &str) -> Option<Found> {
        let mut types = vec![of];
        let mut at = 0;
        while let Some(one) = types.get(at).copied() {
            let more = self.aliases.get(one).into_iter().flatten().map(String::as_str);
            let new: Vec<&str> = more.filter(|alias| !types.contains(alias)).collect();
            types.extend(new);
            at += 1;
        }
        let known: Vec<_> = types.iter().filter_map(|one| self.members.get(*one)).collect();
        let calls: Vec<_> = self.calls.iter().filter(|words| words.contains(of)).collect();
        if known.is_empty() && calls.is_empty() {
            return None;
        }
        let is_generated = !calls.is_empty()
            && (self.macro_members.contains(name) || calls.iter().any(|call| call.contains(name)));
        let is_public = known.iter().filter_map(|members| members.get(name)).copied().max();
        Some(match is_public {
            Some(true) => Found::Public,
            _ if is_generated => Found::Public,
            Some(false) => Found::Private,
            None => Found::Missing,
        })
    }

    pub(crate) fn types(&self) -> usize {
        self.members.len()
    }
}

/// Index behind the end of a statement: a semicolon outside of all brackets.
fn statement_end(tokens: &[String], mut at: usize) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            ";" => return at + 1,
            "{" | "(" | "[" => at = behind(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// Number of tokens of the generic parameters at the start.
fn behind_angle(tokens: &[String]) -> usize {
    let mut depth = 0_i32;
    for (index, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "<" => depth += 1,
            ">" if index == 0 || tokens[index - 1] != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return index + 1;
        }
    }
    tokens.len()
}

/// Result of [`Items::find`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Public,
    Private,
    Missing,
}
