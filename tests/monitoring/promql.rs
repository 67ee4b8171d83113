//! The selectors of an expression. promtool judges the syntax; this one only has to find every name.

/// A name with its matchers, label and value each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    pub name: String,
    pub matchers: Vec<(String, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(String),
    Text(String),
    Sign(char),
}

/// What is followed by a list of labels in parentheses.
const GROUPING: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const WORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

fn tokens(expr: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut rest = expr.chars().peekable();
    while let Some(next) = rest.next() {
        if next == '"' {
            let mut text = String::new();
            while let Some(inner) = rest.next().filter(|inner| *inner != '"') {
                text.push(inner);
            }
            found.push(Token::Text(text));
        } else if next.is_alphanumeric() || "_:$.".contains(next) {
            let mut word = next.to_string();
            while let Some(inner) = rest.next_if(|it| it.is_alphanumeric() || "_:.".contains(*it)) {
                word.push(inner);
            }
            found.push(Token::Word(word));
        } else if !next.is_whitespace() {
            found.push(Token::Sign(next));
        }
    }
    found
}

/// Every selector of an expression, in its order.
pub fn selectors(expr: &str) -> Vec<Selector> {
    let tokens = tokens(expr);
    let mut found: Vec<Selector> = Vec::new();
    let mut at = 0;
    let skip_to = |from: usize, end: char| {
        (from..tokens.len()).find(|at| tokens[*at] == Token::Sign(end)).unwrap_or(tokens.len())
    };
    while at < tokens.len() {
        match (&tokens[at], tokens.get(at + 1)) {
            (Token::Word(word), Some(Token::Sign('('))) if GROUPING.contains(&word.as_str()) => {
                at = skip_to(at, ')');
            }
            // A function, or an aggregation with its grouping first.
            (Token::Word(_), Some(Token::Sign('('))) => {}
            (Token::Word(_), Some(Token::Word(by))) if by == "by" || by == "without" => {}
            (Token::Word(word), _) if WORDS.contains(&word.as_str()) || GROUPING.contains(&word.as_str()) => {
            }
            (Token::Word(word), _) if word.starts_with(|it: char| it.is_ascii_digit()) => {}
            (Token::Word(word), _) => found.push(Selector { name: word.clone(), matchers: Vec::new() }),
            (Token::Sign('{'), _) => {
                let end = skip_to(at, '}');
                let selector = found.last_mut().unwrap_or_else(|| panic!("no name before {{ in {expr}"));
                for inner in at..end {
                    if let (Token::Word(label), Some(Token::Sign('=' | '!'))) =
                        (&tokens[inner], tokens.get(inner + 1))
                    {
                        let value = tokens[inner..end].iter().find_map(|token| match token {
                            Token::Text(text) => Some(text.clone()),
                            Token::Word(_) | Token::Sign(_) => None,
                        });
                        selector.matchers.push((label.clone(), value.expect("a value")));
                    }
                }
                at = end;
            }
            (Token::Sign('['), _) => at = skip_to(at, ']'),
            (Token::Text(_) | Token::Sign(_), _) => {}
        }
        at += 1;
    }
    found
}

/// The labels that the groupings of an expression name.
pub fn grouped_by(expr: &str) -> Vec<String> {
    let tokens = tokens(expr);
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let list_follows = tokens.get(at + 1) == Some(&Token::Sign('('));
        if list_follows && matches!(token, Token::Word(word) if GROUPING.contains(&word.as_str())) {
            let list = tokens[at + 1..].iter().take_while(|token| **token != Token::Sign(')'));
            found.extend(list.filter_map(|token| match token {
                Token::Word(label) => Some(label.clone()),
                Token::Text(_) | Token::Sign(_) => None,
            }));
        }
    }
    found
}

#[test]
fn every_name_is_found() {
    let expr = "sum by (a, le) (rate(x_bucket{a=~\"b|c\",d!=\"e\"}[$__rate_interval:1m])) / on (a) group_left \
                max without (b) (y) >= 2.5 or absent(z{q=\"{}\"} offset 5m) unless on (n) (up == bool 1)";
    let found = selectors(expr);
    let names: Vec<&str> = found.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["x_bucket", "y", "z", "up"], "{found:?}");
    let pair = |label: &str, value: &str| (label.to_owned(), value.to_owned());
    assert_eq!(found[0].matchers, [pair("a", "b|c"), pair("d", "e")]);
    assert_eq!(found[2].matchers, [pair("q", "{}")]);
    assert_eq!(grouped_by(expr), ["a", "le", "a", "b", "n"]);
}
