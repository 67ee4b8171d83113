//! Labels that a pod must have: `key=value`, several separated by commas.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A conjunction of equalities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelMatch(Vec<(String, String)>);

/// A text that is no list of `key=value`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form key=value[,key=value…]")]
pub struct LabelError(String);

impl LabelMatch {
    /// Whether all of them are there.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// As a label selector.
impl fmt::Display for LabelMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (key, value)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for LabelMatch {
    type Err = LabelError;

    fn from_str(text: &str) -> Result<Self, LabelError> {
        let pair = |part: &str| {
            let (key, value) = part.trim().split_once('=')?;
            let (key, value) = (key.trim_end(), value.trim_start());
            (!key.is_empty() && !value.starts_with('=')).then(|| (key.to_owned(), value.to_owned()))
        };
        let pairs: Option<Vec<_>> = text.split(',').map(pair).collect();
        pairs.map(Self).ok_or_else(|| LabelError(text.to_owned()))
    }
}
