//! Location of a key in a card file, for errors that the parser does not find.

/// Returns the key before the colon on 1-based `line`.
pub(crate) fn key_on_line(text: &str, line: usize) -> Option<String> {
    let content = text.lines().nth(line.checked_sub(1)?)?;
    let (key, _) = content.split_once(':')?;
    Some(key.trim_start_matches(['-', ' ', '{']).trim_end().to_owned())
}

/// Finds the dotted key `path` in block-style YAML (for flow mappings: the line of the enclosing key). A part of the path may name an item
/// of a list: `list[2]`.
pub(crate) fn locate_key(text: &str, path: &str) -> Option<(usize, usize)> {
    let mut parts = path.split('.');
    let mut wanted = KeyPart::new(parts.next()?);
    let mut least_indent = 0;
    let mut found = None;
    for (index, line) in text.lines().enumerate() {
        let mut content = line.trim_start();
        let mut indent = line.len() - content.len();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        // A list item may have the same indent as the key of its list.
        if indent < least_indent && !(content.starts_with('-') && indent + 1 == least_indent) {
            break;
        }
        if let Some(items) = &mut wanted.items
            && let Some(rest) = content.strip_prefix('-')
            && wanted.item_indent.is_none_or(|at| at == indent)
        {
            wanted.item_indent = Some(indent);
            if *items > 0 {
                *items -= 1;
                continue;
            }
            found = Some((index + 1, indent + 1));
            let Some(next) = parts.next() else { break };
            least_indent = indent + 1;
            content = rest.trim_start();
            indent = line.len() - content.len();
            wanted = KeyPart::new(next);
        }
        if wanted.items.is_none() && wanted.is_key_of(content) {
            found = Some((index + 1, indent + 1));
            least_indent = indent + 1;
            if let Some(item) = wanted.item {
                wanted.items = Some(item);
                continue;
            }
            let Some(next) = parts.next() else { break };
            wanted = KeyPart::new(next);
        } else if wanted.items.is_none() && wanted.in_flow(content) {
            found = Some((index + 1, indent + 1));
            break;
        }
    }
    found
}

/// One part of a dotted key.
struct KeyPart<'a> {
    key: &'a str,
    /// Index of the wanted item if the key is that of a list.
    item: Option<usize>,
    /// Number of items before it; set once the key is found.
    items: Option<usize>,
    item_indent: Option<usize>,
}

impl<'a> KeyPart<'a> {
    fn new(part: &'a str) -> Self {
        let (key, item) = match part.split_once('[') {
            Some((key, item)) => (key, item.trim_end_matches(']').parse().ok()),
            None => (part, None),
        };
        Self { key, item, items: None, item_indent: None }
    }

    fn is_key_of(&self, line: &str) -> bool {
        line.strip_prefix(self.key).is_some_and(|rest| rest.trim_start().starts_with(':'))
    }

    /// The key is in a flow mapping on one line.
    fn in_flow(&self, line: &str) -> bool {
        line.starts_with('{') && line.contains(self.key)
    }
}
