//! The lines of a stream, each bounded in length and in the time that it may take to come.

use std::time::Duration;

use futures::StreamExt as _;
use hyper::body::Bytes;
use tokio::time::timeout;

use super::trouble::Trouble;
use super::wire::Source;

/// Bytes of a line: more than any event has.
const LINE: usize = 1024 * 1024;

/// A stream, line by line.
pub(in crate::cli) struct Lines {
    source: Source,
    /// What came after the last line that was given out.
    rest: Vec<u8>,
    /// Bytes of the rest that have no line feed.
    seen: usize,
    /// Bytes of lines that may still be given out; `None`: without an end.
    left: Option<usize>,
}

impl Lines {
    pub(in crate::cli) fn new(source: Source) -> Self {
        Self { source, rest: Vec::new(), seen: 0, left: None }
    }

    /// The same, for what a watchdog has kept: more than that many bytes are none of its.
    pub(super) fn at_most(self, bytes: usize) -> Self {
        Self { left: Some(bytes), ..self }
    }

    /// The next line that is not empty; `None`: a clean end. Between two pieces pass no more than `patience`.
    pub(in crate::cli) async fn next(&mut self, patience: Duration) -> Result<Option<Vec<u8>>, Trouble> {
        loop {
            if let Some(at) = self.rest[self.seen..].iter().position(|byte| *byte == b'\n') {
                let after = self.rest.split_off(self.seen + at + 1);
                let mut line = std::mem::replace(&mut self.rest, after);
                self.seen = 0;
                line.truncate(line.trim_ascii_end().len());
                if line.is_empty() {
                    continue;
                }
                if let Some(left) = &mut self.left {
                    let rest = left.checked_sub(line.len());
                    *left = rest.ok_or_else(|| Trouble::lasting("it sends more than a watchdog keeps"))?;
                }
                return Ok(Some(line));
            }
            self.seen = self.rest.len();
            if self.seen > LINE {
                return Err(Trouble::passing("a line is longer than any event"));
            }
            match self.piece(patience).await? {
                Some(piece) => self.rest.extend_from_slice(&piece),
                None if self.rest.is_empty() => return Ok(None),
                None => return Err(Trouble::passing("it broke within an event")),
            }
        }
    }

    /// All that is still to come, up to `most` bytes.
    pub(in crate::cli) async fn whole(
        &mut self,
        patience: Duration,
        most: usize,
    ) -> Result<Vec<u8>, Trouble> {
        while let Some(piece) = self.piece(patience).await? {
            self.rest.extend_from_slice(&piece);
            if self.rest.len() > most {
                return Err(Trouble::lasting("it sends more than a watchdog has"));
            }
        }
        Ok(std::mem::take(&mut self.rest))
    }

    async fn piece(&mut self, patience: Duration) -> Result<Option<Bytes>, Trouble> {
        match timeout(patience, self.source.next()).await {
            Ok(None) => Ok(None),
            Ok(Some(Ok(piece))) => Ok(Some(piece)),
            Ok(Some(Err(why))) => Err(Trouble::passing(&why)),
            Err(_) => Err(Trouble::passing(&format!("nothing came for {} s", patience.as_secs_f32()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(45);

    async fn read(pieces: Vec<Result<&'static str, &'static str>>) -> (Vec<String>, Option<String>) {
        let pieces = pieces
            .into_iter()
            .map(|piece| piece.map(|text| Bytes::from_static(text.as_bytes())).map_err(str::to_owned));
        let mut lines = Lines::new(stream::iter(pieces).boxed());
        let mut all = Vec::new();
        loop {
            match lines.next(PATIENCE).await {
                Ok(Some(line)) => all.push(String::from_utf8(line).unwrap()),
                Ok(None) => return (all, None),
                Err(trouble) => return (all, Some(trouble.why)),
            }
        }
    }

    #[tokio::test]
    async fn lines_do_not_follow_the_pieces() {
        let (lines, why) = read(vec![Ok("a"), Ok("b\r\n\n\nc\nd"), Ok(""), Ok("e\n")]).await;
        assert_eq!((lines, why), (vec!["ab".to_owned(), "c".to_owned(), "de".to_owned()], None));
    }

    #[tokio::test]
    async fn half_a_line_is_no_event() {
        let (lines, why) = read(vec![Ok("a\n{\"spec")]).await;
        assert_eq!((lines.len(), why.as_deref()), (1, Some("it broke within an event")));
        let (lines, why) = read(vec![Ok("a\n"), Err("reset")]).await;
        assert_eq!((lines.len(), why.as_deref()), (1, Some("reset")));
    }

    #[tokio::test]
    async fn a_line_without_end_is_not_kept() {
        let endless = stream::repeat_with(|| Ok(Bytes::from(vec![b'x'; 64 * 1024])));
        let mut lines = Lines::new(endless.boxed());
        let trouble = lines.next(PATIENCE).await.unwrap_err();
        assert_eq!(trouble.why, "a line is longer than any event");
        assert!(lines.rest.len() < 2 * LINE);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_a_broken_stream() {
        let mut lines = Lines::new(stream::pending().boxed());
        assert_eq!(lines.next(PATIENCE).await.unwrap_err().why, "nothing came for 45 s");
    }
}
