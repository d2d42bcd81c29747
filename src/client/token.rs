//! Tokens: the text that lets a gateway reach a window of this process's memory.

use std::any::Any;
use std::fmt;

use super::{Error, Result};
use crate::rdma::Descriptor;

/// Which way the bytes of an operation go, seen from S3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The gateway reads the memory (PUT, UploadPart).
    Put,
    /// The gateway writes the memory (GET).
    Get,
}

/// A token for one operation; it goes back to the library that minted it when it drops.
///
/// Its text opens memory to whoever holds it, so [`Debug`](fmt::Debug) leaves it out.
pub struct Token {
    text: String,
    descriptor: Descriptor,
    _release: Option<Box<dyn Any + Send>>,
}

impl Token {
    /// Takes a minted text, and whatever gives it back when dropped.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the text is not a descriptor of 81 characters.
    pub fn new(text: String, release: Option<Box<dyn Any + Send>>) -> Result<Self> {
        let text = text.trim_end_matches('\0').to_owned();
        let descriptor = Descriptor::parse(&text).map_err(|e| Error::Invalid {
            what: format!("the client library minted a token that does not parse: {e}"),
        })?;
        Ok(Self { text, descriptor, _release: release })
    }

    /// The text, for the request's header.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What the text says.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(&self.descriptor).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0102030405060708:01020304:01020304:0102:010203:1:00000000000000000000ffff0a000001";

    #[test]
    fn parses_strips_the_terminator_and_hides_the_text() {
        let token = Token::new(format!("{TEXT}\0"), None).unwrap();
        assert_eq!(token.as_str(), TEXT);
        assert_eq!(token.descriptor().size, 0x0102_0304);
        let shown = format!("{token:?}");
        assert!(!shown.contains("0102030405060708") && shown.contains("10.0.0.1"), "{shown}");
        assert!(Token::new("nonsense".into(), None).is_err());
    }
}
