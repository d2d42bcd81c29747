//! Tokens: the text that lets a gateway reach a window of this process's memory.

use std::fmt;

use crate::rdma::{Descriptor, OwnedToken};

/// A token for one operation.
///
/// Its text opens memory to whoever holds it, so [`Debug`](fmt::Debug) leaves it out. A token that
/// is dropped without [`finish`](Self::finish) counts as in use: see [`Buffer`](super::Buffer).
pub struct Token(Box<dyn Grant>);

/// What stands behind a [`Token`]: the library's own, or a test's.
pub trait Grant: Send + Sync {
    /// The 81 characters.
    fn text(&self) -> &str;
    /// What they say.
    fn descriptor(&self) -> &Descriptor;
    /// The gateway is done with the memory, or was never told of it.
    fn finish(self: Box<Self>);
}

impl Grant for OwnedToken {
    fn text(&self) -> &str {
        self.as_str()
    }

    fn descriptor(&self) -> &Descriptor {
        OwnedToken::descriptor(self)
    }

    fn finish(self: Box<Self>) {
        OwnedToken::finish(*self);
    }
}

impl Token {
    /// Wraps a token of any kind.
    pub fn new(grant: impl Grant + 'static) -> Self {
        Self(Box::new(grant))
    }

    /// The text, for the request's header.
    pub fn as_str(&self) -> &str {
        self.0.text()
    }

    /// What the text says.
    pub fn descriptor(&self) -> &Descriptor {
        self.0.descriptor()
    }

    /// Says that the gateway is done with the memory, or was never told of it.
    pub fn finish(self) {
        self.0.finish();
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Token").field(self.descriptor()).finish()
    }
}
