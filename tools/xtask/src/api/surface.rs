//! Names that a package offers, and the types that the signatures behind these names use.
//!
//! A type is identified by the path of its definition, which is the same in the JSON of each package that mentions it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::ApiError;

/// Packages of which every type may be used: the standard library.
const STANDARD: [&str; 3] = ["core", "alloc", "std"];

/// One package: its name in paths, and rustdoc's JSON of it.
pub(super) struct Package {
    pub(super) name: String,
    pub(super) json: Value,
}

/// Public API of a package.
#[derive(Default)]
pub(super) struct Surface {
    /// Types and traits: path of the definition, shortest path in the package.
    pub(super) types: BTreeMap<String, String>,
    /// Types of signatures that have no path in the package, and the items that use them.
    pub(super) leaks: BTreeMap<String, BTreeSet<String>>,
}

/// Item with a name: the package that defines it, its definition, its name.
struct Named<'a> {
    package: &'a Package,
    item: &'a Value,
    name: String,
}

impl Package {
    fn item(&self, id: &Value) -> Option<&Value> {
        self.json["index"].get(key(id))
    }

    /// Path of the definition of an item of any package.
    fn path(&self, id: &Value) -> Option<(String, &str)> {
        let found = self.json["paths"].get(key(id))?;
        let parts: Vec<&str> = found["path"].as_array()?.iter().filter_map(Value::as_str).collect();
        Some((parts.join("::"), found["kind"].as_str()?))
    }

    /// Item that this package defines at `path`.
    fn defined(&self, path: &str) -> Option<&Value> {
        let all = self.json["paths"].as_object()?;
        let own = all.iter().filter(|(_, found)| found["crate_id"] == 0);
        let mut ids = own
            .filter(|(id, _)| self.path(&Value::from(id.as_str())).is_some_and(|(found, _)| found == path));
        self.json["index"].get(ids.next()?.0)
    }
}

/// Key of an item: numbers in the document, text in its tables.
fn key(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

fn is_type(kind: &str) -> bool {
    matches!(kind, "struct" | "enum" | "union" | "trait" | "type_alias")
}

/// Kind of an item and its content.
fn content(item: &Value) -> Option<(&str, &Value)> {
    item["inner"].as_object()?.iter().next().map(|(kind, content)| (kind.as_str(), content))
}

impl Surface {
    /// Reads the API of the package `name` (`packages` has it and the packages that it re-exports from).
    pub(super) fn of(name: &str, packages: &[Package]) -> Result<Self, ApiError> {
        let name = name.replace('-', "_");
        let missing = |what: &str| ApiError::Format { package: name.clone(), what: what.to_owned() };
        let package =
            packages.iter().find(|package| package.name == name).ok_or_else(|| missing("document"))?;
        let root = package.item(&package.json["root"]).ok_or_else(|| missing("root"))?;
        let mut surface = Self::default();
        let mut named = Vec::new();
        surface.modules(packages, package, root, &name, &mut named)?;
        for item in &named {
            surface.signature(item.package, item.item, &item.name);
        }
        Ok(surface)
    }

    /// Collects the names of a module and of the modules in it.
    fn modules<'a>(
        &mut self,
        packages: &'a [Package],
        package: &'a Package,
        module: &'a Value,
        path: &str,
        named: &mut Vec<Named<'a>>,
    ) -> Result<(), ApiError> {
        let Some((_, module)) = content(module) else { return Ok(()) };
        for id in module["items"].as_array().into_iter().flatten() {
            let Some(item) = package.item(id) else { continue };
            let Some((kind, inner)) = content(item) else { continue };
            let (target, visible) = match kind {
                "use" if inner["is_glob"] == true => (&inner["id"], None),
                "use" => (&inner["id"], inner["name"].as_str()),
                _ => (id, item["name"].as_str()),
            };
            let name = visible.map_or_else(|| path.to_owned(), |visible| format!("{path}::{visible}"));
            // A re-exported module or a glob.
            if let Some(inside) = package.item(target).filter(|found| found["inner"].get("module").is_some())
            {
                self.modules(packages, package, inside, &name, named)?;
                continue;
            }
            let Some((definition, kind)) = package.path(target) else {
                // Constants and macros of this package have no entry among the paths.
                named.push(Named { package, item, name });
                continue;
            };
            if is_type(kind) {
                let known = self.types.entry(definition.clone()).or_insert_with(|| name.clone());
                if name.matches("::").count() < known.matches("::").count() {
                    known.clone_from(&name);
                }
            }
            let home = definition.split("::").next().unwrap_or_default();
            let Some(home) = packages.iter().find(|package| package.name == home) else { continue };
            if let Some(item) = home.defined(&definition) {
                named.push(Named { package: home, item, name });
            } else {
                return Err(ApiError::Format { package: home.name.clone(), what: definition });
            }
        }
        Ok(())
    }

    /// Examines the signature of an item, and of the parts that come with it: fields, variants, methods, implementations.
    fn signature(&mut self, package: &Package, item: &Value, name: &str) {
        let Some((kind, inner)) = content(item) else { return };
        if kind == "impl" && (inner["is_synthetic"] == true || !inner["blanket_impl"].is_null()) {
            return;
        }
        self.uses(package, inner, name);
        let mut parts: Vec<&Value> = Vec::new();
        for list in ["items", "impls", "variants"] {
            parts.extend(inner[list].as_array().into_iter().flatten());
        }
        let shape = &inner["kind"];
        for list in [&shape["plain"]["fields"], &shape["struct"]["fields"], &shape["tuple"]] {
            parts.extend(list.as_array().into_iter().flatten());
        }
        for part in parts.into_iter().filter_map(|id| package.item(id)) {
            let part_name = part["name"].as_str();
            let part_name = part_name.map_or_else(|| name.to_owned(), |part| format!("{name}::{part}"));
            self.signature(package, part, &part_name);
        }
    }

    /// Examines each type that `signature` mentions.
    fn uses(&mut self, package: &Package, signature: &Value, name: &str) {
        match signature {
            Value::Array(parts) => parts.iter().for_each(|part| self.uses(package, part, name)),
            Value::Object(parts) => {
                if let (Some(id), true) = (parts.get("id"), parts.contains_key("path")) {
                    self.type_used(package, id, name);
                }
                parts.values().for_each(|part| self.uses(package, part, name));
            }
            _ => {}
        }
    }

    fn type_used(&mut self, package: &Package, id: &Value, name: &str) {
        let Some((path, _)) = package.path(id) else { return };
        let home = path.split("::").next().unwrap_or_default();
        if !STANDARD.contains(&home) && !self.types.contains_key(&path) {
            self.leaks.entry(path).or_default().insert(name.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `pub struct Shown { pub field: below::Kept }` and, if `exported`, `pub use below::Kept as Named`.
    fn packages(exported: bool) -> Vec<Package> {
        let items = if exported { json!([1, 4]) } else { json!([1]) };
        let above = json!({
            "root": 0,
            "index": {
                "0": { "name": "above", "inner": { "module": { "items": items } } },
                "1": { "name": "Shown", "inner": { "struct": { "kind": { "plain": { "fields": [2] } }, "impls": [] } } },
                "2": { "name": "field", "inner": { "struct_field": { "resolved_path": { "id": 3, "path": "Kept" } } } },
                "4": { "name": null, "inner": { "use": { "id": 3, "name": "Named", "is_glob": false } } },
            },
            "paths": {
                "1": { "crate_id": 0, "kind": "struct", "path": ["above", "Shown"] },
                "3": { "crate_id": 5, "kind": "struct", "path": ["below", "inner", "Kept"] },
            },
        });
        let below = json!({
            "root": 0,
            "index": { "7": { "name": "Kept", "inner": { "struct": { "kind": "unit", "impls": [] } } } },
            "paths": { "7": { "crate_id": 0, "kind": "struct", "path": ["below", "inner", "Kept"] } },
        });
        vec![Package { name: "above".into(), json: above }, Package { name: "below".into(), json: below }]
    }

    #[test]
    fn surface_type_of_public_field_without_name_is_leak() {
        let surface = Surface::of("above", &packages(false)).unwrap();
        assert_eq!(surface.types.values().collect::<Vec<_>>(), ["above::Shown"]);
        let (path, uses) = surface.leaks.first_key_value().unwrap();
        assert_eq!(path, "below::inner::Kept");
        assert_eq!(uses.iter().collect::<Vec<_>>(), ["above::Shown::field"]);
    }

    #[test]
    fn surface_type_exported_by_other_name_is_no_leak() {
        let surface = Surface::of("above", &packages(true)).unwrap();
        assert_eq!(surface.types.values().collect::<Vec<_>>(), ["above::Shown", "above::Named"]);
        assert!(surface.leaks.is_empty(), "{:?}", surface.leaks);
    }
}
