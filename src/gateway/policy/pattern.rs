//! Texts of policies that stand for many: `*`, `?`, and variables of the request.

use super::Values;

/// What a pattern is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Itself.
    Char(char),
    /// `*`: any characters, also none.
    Any,
    /// `?`: any one character.
    One,
    /// `${name}` or `${name, 'default'}`: a value of the request.
    Variable { name: String, default: Option<String> },
}

/// How `*` and `?` are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wildcards {
    /// They stand for other characters.
    Match,
    /// They stand for themselves.
    Literal,
}

/// A text that texts are compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    pieces: Vec<Piece>,
}

impl Pattern {
    /// Reads a pattern. Variables are those of version 2012-10-17 of the language; before, `${…}` is
    /// a text like any other. `${*}`, `${?}` and `${$}` are these characters themselves.
    pub(super) fn new(text: &str, wildcards: Wildcards, variables: bool) -> Self {
        let mut pieces = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(next) = rest.chars().next() {
            if variables && let Some((inner, after)) = rest.strip_prefix("${").and_then(|r| r.split_once('}'))
            {
                pieces.push(match inner {
                    "*" | "?" | "$" => Piece::Char(inner.chars().next().unwrap_or('$')),
                    _ => variable(inner),
                });
                rest = after;
                continue;
            }
            pieces.push(match (next, wildcards) {
                ('*', Wildcards::Match) => Piece::Any,
                ('?', Wildcards::Match) => Piece::One,
                _ => Piece::Char(next),
            });
            rest = &rest[next.len_utf8()..];
        }
        Self { pieces }
    }

    /// Whether it stands for one text only, whatever the request.
    pub(super) fn is_fixed(&self) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::Char(_)))
    }

    /// Whether it is `*` alone.
    pub(super) fn is_everything(&self) -> bool {
        !self.pieces.is_empty() && self.pieces.iter().all(|piece| *piece == Piece::Any)
    }

    /// Names of the variables in it.
    pub(super) fn variables(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Variable { name, .. } => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether it stands for `text`. With a variable that the request has no value for, it stands for
    /// nothing.
    pub(super) fn matches(&self, text: &str, values: &Values) -> bool {
        self.compare(text, values, false)
    }

    /// As [`matches`](Self::matches), upper and lower case being the same.
    pub(super) fn matches_ignoring_case(&self, text: &str, values: &Values) -> bool {
        self.compare(text, values, true)
    }

    fn compare(&self, text: &str, values: &Values, ignore_case: bool) -> bool {
        let Some(pieces) = self.filled_in(values) else { return false };
        let text: Vec<char> = text.chars().collect();
        let same = |a: char, b: char| a == b || (ignore_case && a.to_lowercase().eq(b.to_lowercase()));
        let (mut at, mut in_text) = (0, 0);
        // Where the last `*` was, and how far the text went that it took.
        let mut star: Option<(usize, usize)> = None;
        while in_text < text.len() {
            match pieces.get(at) {
                Some(Piece::Any) => {
                    star = Some((at, in_text));
                    at += 1;
                }
                Some(Piece::One) => {
                    at += 1;
                    in_text += 1;
                }
                Some(Piece::Char(c)) if same(*c, text[in_text]) => {
                    at += 1;
                    in_text += 1;
                }
                _ => {
                    let Some((from, taken)) = star else { return false };
                    star = Some((from, taken + 1));
                    at = from + 1;
                    in_text = taken + 1;
                }
            }
        }
        pieces[at..].iter().all(|piece| *piece == Piece::Any)
    }

    /// Whether it stands for some text that starts with `start`, and that no variable is needed for.
    pub(super) fn matches_start_of(&self, start: &str) -> bool {
        let mut rest = start.chars();
        for piece in &self.pieces {
            let Some(next) = rest.clone().next() else { return true };
            match piece {
                Piece::Any => return true,
                Piece::One => {}
                Piece::Char(c) if *c == next => {}
                Piece::Char(_) | Piece::Variable { .. } => return false,
            }
            rest.next();
        }
        rest.as_str().is_empty()
    }

    /// The pattern with the request's values in place of the variables; characters in them are just
    /// that.
    fn filled_in(&self, values: &Values) -> Option<std::borrow::Cow<'_, [Piece]>> {
        if self.variables().next().is_none() {
            return Some((&self.pieces[..]).into());
        }
        let mut pieces = Vec::with_capacity(self.pieces.len() + 16);
        for piece in &self.pieces {
            match piece {
                Piece::Variable { name, default } => {
                    let value = values.single(name).or(default.as_deref())?;
                    pieces.extend(value.chars().map(Piece::Char));
                }
                other => pieces.push(other.clone()),
            }
        }
        Some(pieces.into())
    }
}

fn variable(inner: &str) -> Piece {
    match inner.split_once(',') {
        None => Piece::Variable { name: inner.trim().to_owned(), default: None },
        Some((name, default)) => {
            let default = default.trim().trim_matches('\'');
            Piece::Variable { name: name.trim().to_owned(), default: Some(default.to_owned()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use test_case::test_case;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::new(pattern, Wildcards::Match, true).matches(text, &Values::default())
    }

    #[test_case("", "" => true)]
    #[test_case("", "a" => false)]
    #[test_case("*", "" => true)]
    #[test_case("*", "a/b" => true)]
    #[test_case("a*", "abc" => true)]
    #[test_case("a*c", "abcabc" => true)]
    #[test_case("a*c", "abcab" => false)]
    #[test_case("*ab*ab*", "xabyaabz" => true)]
    #[test_case("*ab*ab*", "xab" => false)]
    #[test_case("a?c", "abc" => true)]
    #[test_case("a?c", "ac" => false)]
    #[test_case("??", "äö" => true; "characters and not bytes")]
    #[test_case("A*", "abc" => false)]
    #[test_case("a${*}", "ab" => false)]
    #[test_case("a${*}", "a*" => true)]
    #[test_case("${$}", "$" => true)]
    #[test_case("${open", "${open" => true)]
    fn wildcards(pattern: &str, text: &str) -> bool {
        matches(pattern, text)
    }

    #[test]
    fn literal_and_caseless() {
        let literal = Pattern::new("a*", Wildcards::Literal, true);
        assert!(literal.matches("a*", &Values::default()) && !literal.matches("ab", &Values::default()));
        let action = Pattern::new("s3:get*", Wildcards::Match, false);
        assert!(action.matches_ignoring_case("s3:GetObject", &Values::default()));
    }

    #[test]
    fn variables() {
        let mut values = Values::default();
        values.set("aws:username", "a*n");
        let home = Pattern::new("home/${aws:username}/*", Wildcards::Match, true);
        assert!(home.matches("home/a*n/x", &values));
        assert!(!home.matches("home/aXn/x", &values), "a value is no pattern");
        assert!(!home.matches("home//x", &Values::default()), "no value, no match");
        let other = Pattern::new("home/${aws:username, 'guest'}", Wildcards::Match, true);
        assert!(other.matches("home/guest", &Values::default()));
        let old = Pattern::new("${aws:username}", Wildcards::Match, false);
        assert!(old.matches("${aws:username}", &values), "before 2012 it is a text");
        assert!(!home.is_fixed() && Pattern::new("a", Wildcards::Match, true).is_fixed());
    }

    /// The definition, slow and plain.
    fn by_definition(pattern: &[char], text: &[char]) -> bool {
        match (pattern.first(), text.first()) {
            (None, None) => true,
            (Some('*'), _) => {
                by_definition(&pattern[1..], text) || (!text.is_empty() && by_definition(pattern, &text[1..]))
            }
            (Some('?'), Some(_)) => by_definition(&pattern[1..], &text[1..]),
            (Some(p), Some(t)) if p == t => by_definition(&pattern[1..], &text[1..]),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn as_defined(pattern in "[ab*?]{0,9}", text in "[ab]{0,9}") {
            let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
            prop_assert_eq!(matches(&pattern, &text), by_definition(&p, &t));
        }

        #[test]
        fn a_text_matches_itself_and_what_it_starts_with(text in "[a-z/?*]{0,20}", cut in 0_usize..20) {
            let cut = cut.min(text.len());
            let start = format!("{}*", &text[..cut]);
            prop_assert!(matches(&text, &text));
            prop_assert!(matches(&start, &text));
        }
    }
}
