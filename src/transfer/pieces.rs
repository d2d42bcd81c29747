//! How a transfer is cut into pieces, one operation and one chunk each.

use super::config::PAGE_SIZE;

/// A piece: where it begins in the transfer, and how many bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) index: usize,
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// Cuts `length` bytes into spans of `size`, but the last one. Where the storage offset `base` is
/// in the middle of a page and more than one span is needed, the first span ends on a page, so that
/// the others are aligned in storage as well as in memory.
pub(super) fn cut(length: u64, size: usize, base: u64) -> impl Iterator<Item = Span> {
    let size = size as u64;
    let into_page = base % PAGE_SIZE as u64;
    let first = if length > size && into_page != 0 { size - into_page } else { size };
    let mut offset = 0;
    (0..).map_while(move |index| {
        let most = if index == 0 { first } else { size };
        let span = Span { index, offset, length: most.min(length - offset) as usize };
        offset += span.length as u64;
        (span.length > 0).then_some(span)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_has_no_pieces() {
        assert_eq!(cut(0, 4096, 5).count(), 0);
    }

    #[test]
    fn the_largest_window_in_the_largest_chunks() {
        let lengths: Vec<_> = cut((4 << 30) - (64 << 10), 1 << 30, 0).map(|s| s.length).collect();
        assert_eq!(lengths, [1 << 30, 1 << 30, 1 << 30, (1 << 30) - (64 << 10)]);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_transfer(length in 1u64..3_000_000, pages in 1usize..64, base in 0u64..20_000) {
            let size = pages * PAGE_SIZE;
            let spans: Vec<_> = cut(length, size, base).collect();
            let mut at = 0;
            for (i, span) in spans.iter().enumerate() {
                prop_assert_eq!((span.index, span.offset), (i, at));
                prop_assert!(span.length > 0 && span.length <= size);
                if i > 0 {
                    prop_assert_eq!((base + span.offset) % PAGE_SIZE as u64, 0);
                }
                at += span.length as u64;
            }
            prop_assert_eq!(at, length);
        }
    }
}
