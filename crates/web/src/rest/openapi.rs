//! The OpenAPI 3.1 document, made from the routes.

use super::route::Route;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// What a document says of the whole interface.
pub struct About {
    /// Its title.
    pub title: &'static str,
    /// What it is for.
    pub description: &'static str,
    /// How users show who they are, by name.
    pub security: Value,
    /// Parameters of every request that changes something.
    pub of_changes: Value,
    /// Statuses of requests that are not served, and what they mean.
    pub failures: &'static [(u16, &'static str)],
}

/// Describes routes below [`super::PREFIX`].
pub fn describe<C>(about: About, routes: &[Route<C>]) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for route in routes {
        let mut operation = Map::new();
        operation.insert("summary".into(), route.summary.into());
        operation.insert("operationId".into(), operation_id(route).into());
        if let Some(query) = route.query {
            let schema = query(&mut generator).to_value();
            let schema = resolved(&schema, generator.definitions());
            operation.insert("parameters".into(), parameters(&schema));
        } else if about.of_changes.as_array().is_some_and(|list| !list.is_empty()) {
            operation.insert("parameters".into(), about.of_changes.clone());
        }
        if let Some(body) = route.body {
            let schema = body(&mut generator);
            let content = json!({ "application/json": { "schema": schema } });
            operation.insert("requestBody".into(), json!({ "required": true, "content": content }));
        }
        let content = match route.reply {
            Some(reply) => json!({ "application/json": { "schema": reply(&mut generator) } }),
            None => json!({ "text/event-stream": { "schema": { "type": "string" } } }),
        };
        let mut responses = Map::new();
        responses.insert("200".into(), json!({ "description": "Done", "content": content }));
        for (status, _) in about.failures {
            let name = format!("#/components/responses/Failure{status}");
            responses.insert(status.to_string(), json!({ "$ref": name }));
        }
        responses.insert("default".into(), json!({ "$ref": "#/components/responses/Failure" }));
        operation.insert("responses".into(), responses.into());
        if route.is_login {
            operation.insert("security".into(), json!([]));
        }
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = Value::Object(operation);
    }
    let names = about.security.as_object().into_iter().flatten();
    let mut alternatives: Vec<Value> =
        names.map(|(name, _)| json!({ name.as_str(): [] })).collect();
    alternatives.push(json!({}));
    let mut failures = Map::new();
    failures.insert("Failure".into(), failure("The request is not served"));
    for (status, text) in about.failures {
        failures.insert(format!("Failure{status}"), failure(text));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": env!("CARGO_PKG_VERSION"),
            "description": about.description
        },
        "servers": [{ "url": super::PREFIX }],
        "security": alternatives,
        "paths": paths,
        "components": {
            "schemas": generator.definitions(),
            "responses": failures,
            "securitySchemes": about.security
        }
    })
}

fn operation_id<C>(route: &Route<C>) -> String {
    let words = route.path.replace(['/', '-', '.'], " ");
    let words = words.split(' ').filter(|word| !word.is_empty());
    [route.method.as_str().to_ascii_lowercase()]
        .into_iter()
        .chain(words.map(|word| word[..1].to_uppercase() + &word[1..]))
        .collect()
}

/// The schema itself where it is a reference to a definition.
fn resolved(schema: &Value, definitions: &Map<String, Value>) -> Value {
    let name = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    name.and_then(|name| definitions.get(name)).unwrap_or(schema).clone()
}

/// The properties of an object as parameters of the query.
fn parameters(schema: &Value) -> Value {
    let required = |name: &String| {
        schema["required"].as_array().is_some_and(|list| list.iter().any(|other| other == name))
    };
    let properties = schema["properties"].as_object();
    let parameter = |(name, property): (&String, &Value)| {
        json!({
            "name": name, "in": "query", "required": required(name),
            "description": property["description"], "schema": property
        })
    };
    properties.into_iter().flatten().map(parameter).collect()
}

fn failure(description: &str) -> Value {
    let text = json!({ "type": "string" });
    let error = json!({
        "type": "object",
        "properties": { "code": text, "message": text },
        "required": ["code", "message"]
    });
    json!({
        "description": description,
        "content": { "application/json": { "schema": {
            "type": "object", "properties": { "error": error }, "required": ["error"]
        } } }
    })
}
