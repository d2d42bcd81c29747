//! Bindings to cuObject.
