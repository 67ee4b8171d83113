//! Damages inputs as disks, cuts, other versions and other hands do. Must not know what an input means.

use std::hash::{DefaultHasher, Hash, Hasher};

use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};

/// Numbers at which something may change.
const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "2",
    "255",
    "256",
    "65536",
    "2147483648",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e400",
    "0.5",
];

/// What inputs are made of.
pub(crate) struct Damage<'a> {
    /// The inputs that are damaged.
    pub(crate) corpus: &'a [Vec<u8>],
    /// Words that are put in.
    pub(crate) words: &'a [&'a str],
}

struct Dice(TestRng);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound.max(1) as u64).unwrap_or_default()
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A part of so many bytes, seldom a long one.
    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        let longest = if self.below(4) == 0 { len } else { 16 };
        start..(start + self.below(longest + 1)).min(len)
    }
}

impl Damage<'_> {
    /// The input of a case: the same for the same seed.
    pub(crate) fn make(&self, seed: u64, name: &str, case: u64) -> Vec<u8> {
        let mut hash = DefaultHasher::new();
        (seed, name, case).hash(&mut hash);
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&hash.finish().to_le_bytes());
        let mut dice = Dice(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
        let mut input = dice.one_of(self.corpus).clone();
        for _ in 0..=dice.below(3) {
            input = self.once(input, &mut dice);
        }
        input
    }

    fn once(&self, mut input: Vec<u8>, dice: &mut Dice) -> Vec<u8> {
        let len = input.len();
        match dice.below(12) {
            0 if len > 0 => {
                let at = dice.below(len);
                input[at] ^= 1 << dice.below(8);
            }
            1 => input.truncate(dice.below(len + 1)),
            2 => drop(input.drain(dice.range(len))),
            3 => {
                let part = input[dice.range(len)].to_vec();
                let at = dice.below(len + 1);
                input.splice(at..at, part);
            }
            // As a file system does that lost the data and kept the length.
            4 => {
                let from = dice.below(len + 1);
                input[from..].fill(0);
            }
            5 => {
                let other = dice.one_of(self.corpus);
                input.truncate(dice.below(len + 1));
                input.extend_from_slice(&other[dice.below(other.len() + 1)..]);
            }
            6 => {
                let range = dice.range(len);
                input.splice(range, dice.one_of(self.words).bytes());
            }
            7 => {
                let at = dice.below(len + 1);
                input.splice(at..at, dice.one_of(self.words).bytes());
            }
            8 => replace_run(&mut input, dice, u8::is_ascii_digit, &NUMBERS),
            9 => replace_run(&mut input, dice, u8::is_ascii_alphanumeric, self.words),
            _ => input = other_value(&input, dice).unwrap_or(input),
        }
        input
    }
}

/// Puts another word in place of one run of such bytes.
fn replace_run(input: &mut Vec<u8>, dice: &mut Dice, is_of: fn(&u8) -> bool, words: &[&str]) {
    let starts: Vec<usize> =
        (0..input.len()).filter(|at| is_of(&input[*at]) && (*at == 0 || !is_of(&input[at - 1]))).collect();
    if starts.is_empty() {
        return;
    }
    let start = *dice.one_of(&starts);
    let end = input[start..].iter().position(|byte| !is_of(byte)).map_or(input.len(), |run| start + run);
    input.splice(start..end, dice.one_of(words).bytes());
}

/// A JSON document with one value taken out, or another in its place; `None` where it is no JSON.
fn other_value(input: &[u8], dice: &mut Dice) -> Option<Vec<u8>> {
    let mut whole: Value = serde_json::from_slice(input).ok()?;
    let mut places = Vec::new();
    pointers(&whole, &mut String::new(), &mut places);
    let place = dice.one_of(&places).clone();
    if let (0, Some((parent, key))) = (dice.below(4), place.rsplit_once('/')) {
        match whole.pointer_mut(parent)? {
            Value::Object(map) => drop(map.remove(&key.replace("~1", "/").replace("~0", "~"))),
            Value::Array(items) => drop(items.remove(key.parse().ok()?)),
            _ => return None,
        }
    } else {
        let another = whole.pointer(dice.one_of(&places).as_str())?.clone();
        let values = [Value::Null, json!(true), json!(0), json!(-1), json!(u64::MAX), json!(0.5)];
        let texts = [json!(""), json!("x"), json!("\u{1b}[2J"), json!([]), json!({}), json!([null])];
        let new = match dice.below(3) {
            0 => another,
            1 => dice.one_of(&values).clone(),
            _ => dice.one_of(&texts).clone(),
        };
        *whole.pointer_mut(&place)? = new;
    }
    serde_json::to_vec(&whole).ok()
}

/// Where the values of a document are.
fn pointers(value: &Value, at: &mut String, all: &mut Vec<String>) {
    all.push(at.clone());
    let len = at.len();
    let mut below = |key: &str, value: &Value| {
        at.push('/');
        at.push_str(key);
        pointers(value, at, all);
        at.truncate(len);
    };
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| below(&index.to_string(), item));
        }
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| below(&key.replace('~', "~0").replace('/', "~1"), value));
        }
        _ => {}
    }
}
