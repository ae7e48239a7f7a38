//! What the OpenAPI document says of the console.

use super::Route;
use crate::auth::COOKIE;
use serde_json::{Value, json};
use web::rest::{About, describe};

/// Describes the routes of the console.
pub fn document(routes: &[Route]) -> Value {
    let about = About {
        title: "Dunlin console",
        description: "What the console of a server uses, all of it. Each call runs as the user that makes it.",
        security: json!({
            "basic": { "type": "http", "scheme": "basic" },
            "session": {
                "type": "apiKey", "in": "cookie", "name": COOKIE,
                "description": "Given by POST /session. Requests other than GET also need its token in the header X-CSRF-Token."
            }
        }),
        of_changes: json!([]),
        failures: &[],
    };
    describe(about, routes)
}

#[cfg(test)]
mod tests {
    use super::super::{document as text, routes};
    use serde_json::Value;
    use std::collections::BTreeSet;

    /// Every `$ref` in a document.
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(reference)) = map.get("$ref") {
                    found.insert(reference.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_describes_every_route_and_nothing_else() {
        let document: Value = serde_json::from_str(text()).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(|method| (path.clone(), method.clone()))
            })
            .collect();
        let known: BTreeSet<(String, String)> = routes()
            .iter()
            .map(|route| (route.path.to_owned(), route.method.as_str().to_ascii_lowercase()))
            .collect();
        assert_eq!(described, known);
        assert_eq!(known.len(), routes().len(), "no route is there twice");
    }

    #[test]
    fn the_document_is_whole() {
        let document: Value = serde_json::from_str(text()).unwrap();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for reference in &found {
            let pointer = reference.strip_prefix('#').expect("it is in the document");
            assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
        }
        let mut ids = BTreeSet::new();
        for methods in document["paths"].as_object().unwrap().values() {
            for operation in methods.as_object().unwrap().values() {
                assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()));
                assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()));
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    let is_described = parameter["description"].is_string();
                    assert!(is_described, "{parameter} of {} has no text", operation["summary"]);
                }
            }
        }
    }
}
