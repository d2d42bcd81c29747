//! MD5 (RFC 1321), over one message or over several at once.
//!
//! MD5 is a chain: every step needs the result of the one before, so one message leaves most of a
//! core idle. [`update_together`] fills it with other messages, [`LANES`] side by side; the loops
//! over lanes have the shape that compilers turn into vector instructions.

/// Messages that are computed side by side: a vector register of 32-bit words. More of them than
/// the target has registers for would be slower than one after the other.
pub(super) const LANES: usize = if cfg!(target_feature = "avx2") { 16 } else { 4 };

/// Size of a block in bytes.
const BLOCK: usize = 64;

/// One word of each lane.
type Words<const N: usize> = [u32; N];

/// RFC 1321, 3.3.
const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// RFC 1321, 3.4: the integer part of 2³² × |sin(i)|, i in radians from 1.
const SINES: [u32; 64] = [
    0xd76a_a478,
    0xe8c7_b756,
    0x2420_70db,
    0xc1bd_ceee,
    0xf57c_0faf,
    0x4787_c62a,
    0xa830_4613,
    0xfd46_9501,
    0x6980_98d8,
    0x8b44_f7af,
    0xffff_5bb1,
    0x895c_d7be,
    0x6b90_1122,
    0xfd98_7193,
    0xa679_438e,
    0x49b4_0821,
    0xf61e_2562,
    0xc040_b340,
    0x265e_5a51,
    0xe9b6_c7aa,
    0xd62f_105d,
    0x0244_1453,
    0xd8a1_e681,
    0xe7d3_fbc8,
    0x21e1_cde6,
    0xc337_07d6,
    0xf4d5_0d87,
    0x455a_14ed,
    0xa9e3_e905,
    0xfcef_a3f8,
    0x676f_02d9,
    0x8d2a_4c8a,
    0xfffa_3942,
    0x8771_f681,
    0x6d9d_6122,
    0xfde5_380c,
    0xa4be_ea44,
    0x4bde_cfa9,
    0xf6bb_4b60,
    0xbebf_bc70,
    0x289b_7ec6,
    0xeaa1_27fa,
    0xd4ef_3085,
    0x0488_1d05,
    0xd9d4_d039,
    0xe6db_99e5,
    0x1fa2_7cf8,
    0xc4ac_5665,
    0xf429_2244,
    0x432a_ff97,
    0xab94_23a7,
    0xfc93_a039,
    0x655b_59c3,
    0x8f0c_cc92,
    0xffef_f47d,
    0x8584_5dd1,
    0x6fa8_7e4f,
    0xfe2c_e6e0,
    0xa301_4314,
    0x4e08_11a1,
    0xf753_7e82,
    0xbd3a_f235,
    0x2ad7_d2bb,
    0xeb86_d391,
];

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// A message's state.
#[derive(Clone)]
pub(super) struct Md5 {
    state: [u32; 4],
    length: u64,
    /// Bytes that do not fill a block yet; how many follows from `length`.
    tail: [u8; BLOCK],
}

/// One step of one round in every lane. `x` is the word that the step before has just made, so the
/// functions are written to need it late: where the two halves of `G` never have a bit in common
/// their sum is their union, and one half is added before `x` is there.
#[inline(always)]
fn step<const ROUND: usize, const N: usize>(
    [w, x, y, z]: [&Words<N>; 4],
    message: &Words<N>,
    sine: u32,
    shift: u32,
) -> Words<N> {
    std::array::from_fn(|i| {
        let (x, y, z) = (x[i], y[i], z[i]);
        let mixed = match ROUND {
            0 => z ^ (x & (y ^ z)),
            1 => (y & !z).wrapping_add(x & z),
            2 => x ^ y ^ z,
            _ => y ^ (x | !z),
        };
        let sum = w[i].wrapping_add(message[i]).wrapping_add(sine).wrapping_add(mixed);
        sum.rotate_left(shift).wrapping_add(x)
    })
}

/// Writes out the 16 steps of a round, since only then the tables become constants.
macro_rules! round {
    ($round:literal, $a:ident $b:ident $c:ident $d:ident, $message:ident: $($k0:literal $k1:literal $k2:literal $k3:literal),*) => {{
        let mut at = 16 * $round;
        $(
            $a = step::<$round, N>([&$a, &$b, &$c, &$d], &$message[$k0], SINES[at], SHIFTS[$round][0]);
            $d = step::<$round, N>([&$d, &$a, &$b, &$c], &$message[$k1], SINES[at + 1], SHIFTS[$round][1]);
            $c = step::<$round, N>([&$c, &$d, &$a, &$b], &$message[$k2], SINES[at + 2], SHIFTS[$round][2]);
            $b = step::<$round, N>([&$b, &$c, &$d, &$a], &$message[$k3], SINES[at + 3], SHIFTS[$round][3]);
            at += 4;
        )*
        let _ = at;
    }};
}

/// Takes whole blocks of every lane's message; all have the same length.
#[inline(always)]
fn compress<const N: usize>(states: &mut [Words<N>; 4], messages: [&[u8]; N]) {
    let blocks = messages[0].len() / BLOCK;
    for at in (0..blocks).map(|block| block * BLOCK) {
        let mut message = [[0; N]; 16];
        for (lane, bytes) in messages.iter().enumerate() {
            for (word, bytes) in message.iter_mut().zip(bytes[at..at + BLOCK].as_chunks().0) {
                word[lane] = u32::from_le_bytes(*bytes);
            }
        }
        let [mut a, mut b, mut c, mut d] = *states;
        round!(0, a b c d, message: 0 1 2 3, 4 5 6 7, 8 9 10 11, 12 13 14 15);
        round!(1, a b c d, message: 1 6 11 0, 5 10 15 4, 9 14 3 8, 13 2 7 12);
        round!(2, a b c d, message: 5 8 11 14, 1 4 7 10, 13 0 3 6, 9 12 15 2);
        round!(3, a b c d, message: 0 7 14 5, 12 3 10 1, 8 15 6 13, 4 11 2 9);
        for (state, words) in states.iter_mut().zip([a, b, c, d]) {
            for (state, word) in state.iter_mut().zip(words) {
                *state = state.wrapping_add(word);
            }
        }
    }
}

impl Md5 {
    pub(super) fn new() -> Self {
        Self { state: START, length: 0, tail: [0; BLOCK] }
    }

    fn filled(&self) -> usize {
        (self.length % BLOCK as u64) as usize
    }

    #[inline(never)]
    fn blocks(&mut self, data: &[u8]) {
        let mut states = self.state.map(|word| [word]);
        compress::<1>(&mut states, [data]);
        self.state = states.map(|[word]| word);
    }

    /// Takes bytes until a block is full, or none are left. Gives the rest.
    fn fill<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let filled = self.filled();
        if filled == 0 {
            return data;
        }
        let (head, rest) = data.split_at(data.len().min(BLOCK - filled));
        self.tail[filled..filled + head.len()].copy_from_slice(head);
        self.length += head.len() as u64;
        if self.filled() == 0 {
            let tail = self.tail;
            self.blocks(&tail);
        }
        rest
    }

    /// Takes the next bytes.
    pub(super) fn update(&mut self, data: &[u8]) {
        let data = self.fill(data);
        let (whole, tail) = data.split_at(data.len() - data.len() % BLOCK);
        self.blocks(whole);
        self.length += data.len() as u64;
        // When `fill` has left nothing, the block may still be open and must stay as it is.
        if !tail.is_empty() {
            self.tail[..tail.len()].copy_from_slice(tail);
        }
    }

    /// Ends the message.
    pub(super) fn finish(mut self) -> [u8; 16] {
        let bits = self.length.wrapping_mul(8);
        let filled = self.filled();
        let padding = if filled < 56 { 56 - filled } else { 120 - filled };
        let mut end = [0; 2 * BLOCK];
        end[0] = 0x80;
        end[padding..padding + 8].copy_from_slice(&bits.to_le_bytes());
        self.update(&end[..padding + 8]);
        let mut value = [0; 16];
        for (bytes, word) in value.as_chunks_mut().0.iter_mut().zip(self.state) {
            *bytes = word.to_le_bytes();
        }
        value
    }
}

/// Gives each of up to [`LANES`] messages its next bytes. The part that all of them have is computed
/// side by side, the rest one after the other.
///
/// # Panics
/// When there are more messages than lanes.
pub(super) fn update_together(mut messages: Vec<(&mut Md5, &[u8])>) {
    assert!(messages.len() <= LANES, "more messages than lanes");
    for (md5, data) in &mut messages {
        *data = md5.fill(data);
    }
    let shared = messages.iter().map(|(_, data)| data.len()).min().unwrap_or(0) / BLOCK * BLOCK;
    if messages.len() > 1 && shared > 0 {
        // Lanes without a message repeat the first one.
        let lane = |i: usize| if i < messages.len() { i } else { 0 };
        let parts: [&[u8]; LANES] = std::array::from_fn(|i| &messages[lane(i)].1[..shared]);
        let mut states: [Words<LANES>; 4] =
            std::array::from_fn(|word| std::array::from_fn(|i| messages[lane(i)].0.state[word]));
        side_by_side(&mut states, parts);
        for (i, (md5, data)) in messages.iter_mut().enumerate() {
            md5.state = std::array::from_fn(|word| states[word][i]);
            md5.length += shared as u64;
            *data = &data[shared..];
        }
    }
    for (md5, data) in messages {
        md5.update(data);
    }
}

#[inline(never)]
fn side_by_side(states: &mut [Words<LANES>; 4], parts: [&[u8]; LANES]) {
    compress(states, parts);
}

#[cfg(test)]
mod tests {
    use super::*;
    use md5::Digest as _;
    use proptest::prelude::*;

    fn one_piece(data: &[u8]) -> String {
        let mut md5 = Md5::new();
        md5.update(data);
        hex::encode(md5.finish())
    }

    /// The test suite of RFC 1321, A.5.
    #[test]
    fn known_answers() {
        for (message, value) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "d174ab98d277d9f5a5611c2c9f419d9f",
            ),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(one_piece(message.as_bytes()), value);
        }
    }

    fn reference(data: &[u8]) -> [u8; 16] {
        md5::Md5::digest(data).into()
    }

    #[test]
    fn every_length_around_the_blocks() {
        let data: Vec<u8> = (0..300).map(|i| (i * 37) as u8).collect();
        for length in 0..data.len() {
            let mut md5 = Md5::new();
            md5.update(&data[..length]);
            assert_eq!(md5.finish(), reference(&data[..length]), "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn any_pieces_of_any_messages(
            messages in proptest::collection::vec(
                proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..400), 0..5),
                1..=LANES,
            ),
        ) {
            let mut states = vec![Md5::new(); messages.len()];
            for piece in 0..5 {
                let batch = states
                    .iter_mut()
                    .zip(&messages)
                    .filter_map(|(md5, pieces)| Some((md5, &**pieces.get(piece)?)))
                    .collect();
                update_together(batch);
            }
            for (md5, pieces) in states.into_iter().zip(&messages) {
                prop_assert_eq!(md5.finish(), reference(&pieces.concat()));
            }
        }
    }
}
