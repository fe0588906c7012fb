//! Reader of `fpga.h`: declarations as the header writes them. It knows the few forms that the header uses, and fails at any other.

/// Structure: name, and fields as type and name.
pub(crate) struct Structure {
    pub(crate) name: String,
    pub(crate) fields: Vec<(String, String)>,
}

/// Enumeration: name, and its values as name and number.
pub(crate) struct Enumeration {
    pub(crate) name: String,
    pub(crate) values: Vec<(String, i32)>,
}

/// Function: result, name, and parameters as type and name.
pub(crate) struct Function {
    pub(crate) result: String,
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, String)>,
}

/// Declarations of a header, in its order.
#[derive(Default)]
pub(crate) struct Header {
    /// Constants as name and value.
    pub(crate) constants: Vec<(String, String)>,
    pub(crate) enumerations: Vec<Enumeration>,
    pub(crate) structures: Vec<Structure>,
    pub(crate) functions: Vec<Function>,
}

/// Removes comments, and joins continued lines.
fn without_comments(text: &str) -> String {
    let text = text.replace("\\\n", " ");
    let mut parts = text.split("/*");
    let mut code = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        code.push(' ');
        code.push_str(part.split_once("*/").expect("a comment ends").1);
    }
    code
}

/// Text with single spaces, and none beside a `*` on its right.
fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("* ", "*")
}

/// Splits at commas outside of brackets.
fn split(list: &str) -> Vec<String> {
    let (mut depth, mut items) = (0, vec![String::new()]);
    for c in list.chars() {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().unwrap().push(c);
    }
    items.iter().map(|item| normal(item)).filter(|item| !item.is_empty()).collect()
}

/// Splits `const char *name[4]` into the type `const char *[4]` and the name.
fn typed(declaration: &str) -> (String, String) {
    let (declaration, array) = declaration.find('[').map_or((declaration, ""), |at| declaration.split_at(at));
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let start = declaration.trim_end().rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
    let (of, name) = declaration.split_at(start);
    assert!(!of.is_empty(), "a parameter or field without a name: {declaration}");
    (normal(&format!("{of}{array}")), name.trim().to_owned())
}

impl Header {
    pub(crate) fn parse(text: &str) -> Self {
        let mut header = Self::default();
        let mut code = String::new();
        for line in without_comments(text).lines() {
            let Some(directive) = line.trim().strip_prefix('#') else {
                code.push_str(line);
                code.push('\n');
                continue;
            };
            let mut words = directive.split_whitespace();
            if words.next() == Some("define")
                && let (Some(name), Some(value)) = (words.next(), words.next())
                // Macros with parameters and macros for attributes are not constants.
                && !name.contains('(')
                && !directive.contains("__")
            {
                header.constants.push((name.to_owned(), value.to_owned()));
            }
        }
        let code = code.replacen("extern \"C\" {", "", 1);
        let code = code.trim().strip_suffix('}').expect("the header ends with extern \"C\"");
        let (mut depth, mut statement) = (0, String::new());
        for c in code.chars() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ';' if depth == 0 => {
                    header.statement(&normal(&statement));
                    statement.clear();
                    continue;
                }
                _ => {}
            }
            statement.push(c);
        }
        assert_eq!(statement.trim(), "", "text behind the last declaration");
        header
    }

    fn statement(&mut self, statement: &str) {
        if let Some(rest) = statement.strip_prefix("typedef ") {
            if let Some((head, rest)) = rest.split_once('{') {
                let (body, name) = rest.rsplit_once('}').expect("a body ends");
                let name = name.trim().to_owned();
                match head.split_whitespace().next() {
                    Some("struct") => {
                        let fields = body.split(';').map(normal).filter(|field| !field.is_empty());
                        let fields = fields.map(|field| typed(&field)).collect();
                        self.structures.push(Structure { name, fields });
                    }
                    Some("enum") => {
                        let value = |text: String| {
                            let (name, number) = text.split_once(" = ").expect("values have numbers");
                            (name.to_owned(), number.parse().expect("values are decimal"))
                        };
                        let values = split(body).into_iter().map(value).collect();
                        self.enumerations.push(Enumeration { name, values });
                    }
                    _ => panic!("unknown declaration: {statement}"),
                }
            } else {
                panic!("unknown declaration: {statement}");
            }
            return;
        }
        let (before, rest) = statement.split_once('(').unwrap_or_else(|| panic!("unknown: {statement}"));
        let list = rest.strip_suffix(')').unwrap_or_else(|| panic!("unknown: {statement}"));
        let (result, name) = typed(before);
        let parameters = split(list).iter().filter(|it| *it != "void").map(|it| typed(it)).collect();
        self.functions.push(Function { result, name, parameters });
    }
}
