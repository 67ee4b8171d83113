//! Runs one reader over its corpus and over what becomes of it. Must not know what is read.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::damage::Damage;

/// As many as a quick run of all tests affords.
const QUICK: u64 = 500;
/// From so many on, both must have come up: inputs that are taken and inputs that are not.
const TELLING: u64 = 200;
/// How often a smaller input is tried in place of one that breaks a rule.
const SHRINKS: usize = 400;

/// Whether the reader took the input; the error is the rule that it broke.
pub(crate) type Checked = Result<bool, String>;

/// What is tested.
pub(crate) struct Reader {
    /// The name of its corpus.
    pub(crate) name: &'static str,
    /// Words of its language, which are put into inputs.
    pub(crate) words: &'static [&'static str],
    /// Holds the reader to its rules on one input.
    pub(crate) check: fn(&[u8]) -> Checked,
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is no number")))
}

impl Reader {
    pub(crate) fn run(&self) {
        let files = self.files();
        assert!(!files.is_empty(), "no corpus of {}", self.name);
        let corpus: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).expect("a corpus file")).collect();
        for (file, input) in files.iter().zip(&corpus) {
            if let Err(why) = self.checked(input) {
                panic!("{}: {why}", file.display());
            }
        }
        let (cases, seed) = (number("FUZZ_CASES").unwrap_or(QUICK), number("FUZZ_SEED").unwrap_or(0));
        let damage = Damage { corpus: &corpus, words: self.words };
        let mut taken = 0;
        for case in 0..cases {
            let input = damage.make(seed, self.name, case);
            match self.checked(&input) {
                Ok(is_taken) => taken += u64::from(is_taken),
                Err(why) => self.fail(case, &input, &why),
            }
        }
        println!(
            "{}: {} corpus files, {cases} damaged inputs of seed {seed}, {taken} of them taken",
            self.name,
            files.len()
        );
        assert!(
            cases < TELLING || (taken > 0 && taken < cases),
            "{taken} of {cases} inputs were taken: the rules for the others were not tested"
        );
    }

    fn files(&self) -> Vec<PathBuf> {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus").join(self.name);
        let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
        files.sort();
        files
    }

    /// A panic breaks a rule as well.
    fn checked(&self, input: &[u8]) -> Checked {
        catch_unwind(AssertUnwindSafe(|| (self.check)(input))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            Err(format!("panic: {}", text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("?")))
        })
    }

    fn fail(&self, case: u64, input: &[u8], why: &str) -> ! {
        let small = self.smaller(input);
        let why = self.checked(&small).err().unwrap_or_else(|| why.to_owned());
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}-{case}", self.name));
        fs::write(&file, &small).expect("the input is kept");
        panic!(
            "case {case}: {why}\nIts input, {} bytes, is {}; once mended, it belongs to tests/fuzz/corpus/{}:\n{}",
            small.len(),
            file.display(),
            self.name,
            String::from_utf8_lossy(&small)
        );
    }

    /// The same without what does not matter, as far as a few tries find out.
    fn smaller(&self, input: &[u8]) -> Vec<u8> {
        let mut small = input.to_vec();
        let (mut width, mut tries) = (small.len() / 2, 0);
        while width > 0 && tries < SHRINKS {
            let mut at = 0;
            while at < small.len() && tries < SHRINKS {
                let mut without = small.clone();
                without.drain(at..(at + width).min(small.len()));
                tries += 1;
                if self.checked(&without).is_err() {
                    small = without;
                } else {
                    at += width;
                }
            }
            width /= 2;
        }
        small
    }
}
