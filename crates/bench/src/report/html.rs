//! The page: the document itself, and a script that draws it. It needs nothing from outside, so it
//! can be mailed and kept.

use super::document::Document;

const PAGE: &str = include_str!("page.html");
const PLACE: &str = "\"{{document}}\"";

/// The page of a document.
pub fn page(document: &Document) -> Result<String, String> {
    let json = serde_json::to_string(document).map_err(|error| error.to_string())?;
    // Inside of a script element `</` could end it, whatever the quotes say.
    Ok(PAGE.replacen(PLACE, &json.replace("</", "<\\/").replace("<!--", "<\\u0021--"), 1))
}
