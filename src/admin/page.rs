//! The status page: one document that shows `/v1/state` and follows `/v1/events`, in the browser.
//!
//! It must not know what the state holds. Its script and its style are in it and named by their hashes: a browser runs
//! nothing else on it, whatever a text of others says.

use std::sync::LazyLock;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};

use super::routes::accepts;

const PAGE: &str = include_str!("page.html");

/// What a browser may do on the page; nothing but its own script and style, and requests to where it came from.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash_of(PAGE, "<script type=\"module\">", "</script>"),
        hash_of(PAGE, "<style>", "</style>"),
    )
});

/// Whether the client asks for a page: browsers do, curl does not.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    accepts(headers, "text/html")
}

/// The page.
pub(super) fn page() -> Response {
    const HEADERS: [(HeaderName, HeaderValue); 5] = [
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        // The same address has a text for other clients.
        (header::VARY, HeaderValue::from_static("accept")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    ];
    (HEADERS, [(header::CONTENT_SECURITY_POLICY, POLICY.as_str())], Html(PAGE)).into_response()
}

/// The source of a policy that names the text between the two marks; `'none'` where they are not there.
fn hash_of(page: &str, start: &str, end: &str) -> String {
    let text = page.split_once(start).and_then(|(_, rest)| rest.split_once(end)).map(|(text, _)| text);
    text.map_or_else(
        || "'none'".to_owned(),
        |text| format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes()))),
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_source_is_the_hash_of_the_text_alone() {
        // `printf 'alert(1)' | openssl dgst -sha256 -binary | base64`
        let source = "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='";
        assert_eq!(hash_of("<p><script>alert(1)</script>", "<script>", "</script>"), source);
        assert_eq!(hash_of("<p><script>alert(1)", "<script>", "</script>"), "'none'");
    }

    #[test]
    fn it_has_one_script_and_one_style_and_nothing_from_elsewhere() {
        assert_eq!((PAGE.matches("<script").count(), PAGE.matches("<style").count()), (1, 1));
        assert!(!POLICY.contains("script-src 'none'") && !POLICY.contains("style-src 'none'"), "{}", *POLICY);
        for odd in
            ["src=", "href=", "style=", " on", "url(", "@import", "innerHTML", "//cdn", "http:", "https:"]
        {
            let found = PAGE.match_indices(odd).filter(|(at, _)| odd != " on" || is_handler(&PAGE[at + 1..]));
            assert_eq!(found.count(), 0, "{odd} in the page");
        }
        assert!(PAGE.len() < 24 * 1024, "{} bytes", PAGE.len());
    }

    /// `onclick="…` and the like.
    fn is_handler(text: &str) -> bool {
        let name: String = text.chars().take_while(char::is_ascii_alphanumeric).collect();
        name.len() > 2 && text[name.len()..].starts_with('=')
    }

    #[test]
    fn it_knows_each_verdict_and_each_word_for_what_is_withheld() {
        use crate::domain::{Verdict, Withheld};
        let words = Verdict::ALL.iter().map(|verdict| verdict.as_str());
        for word in words.chain(Withheld::ALL.iter().map(|withheld| withheld.as_str())) {
            assert_eq!(PAGE.matches(&format!("\n  '{word}': ")).count(), 1, "{word}");
        }
    }

    #[rstest]
    #[case::a_browser(&["text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"], true)]
    #[case::two_lines(&["application/json", "text/html"], true)]
    #[case::curl(&["*/*"], false)]
    #[case::nothing_said(&[], false)]
    fn who_gets_it(#[case] accepts: &[&'static str], #[case] page: bool) {
        let headers = accepts.iter().map(|accept| (header::ACCEPT, HeaderValue::from_static(accept)));
        assert_eq!(is_asked_for(&headers.collect()), page);
    }
}
